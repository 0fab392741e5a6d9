# Two commands do everything: `make demo` and `make test`. The others are parts of them.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
SWIFT_STATIC := --static-swift-stdlib
CHECKED_IMPORTS := --explicit-target-dependency-import-check error

BUILD_PACKAGES := pkg-config libdbus-1-dev libasound2-dev libbluetooth-dev libopus-dev libevdev-dev libudev-dev \
  libngtcp2-dev libngtcp2-crypto-gnutls-dev libgnutls28-dev libtomlplusplus-dev
RUN_PACKAGES := dbus libasound2-plugins
DEMO_PACKAGES := espeak-ng python3 python3-numpy python3-matplotlib
TEST_PACKAGES := pulseaudio pulseaudio-utils alsa-utils sox strace procps python3-venv opus-tools protobuf-compiler systemd

.PHONY: demo test deps demo-deps test-deps build release unit tools interop vm lint format bench install

# Builds, runs the whole line from a simulated button to the ear, and shows what came out.
demo: demo-deps release
	Tests/Demo/run

# Everything that CI runs.
test: test-deps
	Tests/run

deps:
	@Tests/install-packages $(BUILD_PACKAGES) $(RUN_PACKAGES)
demo-deps:
	@Tests/install-packages $(BUILD_PACKAGES) $(RUN_PACKAGES) $(DEMO_PACKAGES)
test-deps:
	@Tests/install-packages $(BUILD_PACKAGES) $(RUN_PACKAGES) $(DEMO_PACKAGES) $(TEST_PACKAGES)

build:
	swift build $(CHECKED_IMPORTS)
release:
	swift build -c release $(SWIFT_STATIC) --product pttd
	swift build -c release $(SWIFT_STATIC) --product pttctl
	swift build -c release $(SWIFT_STATIC) --product pttrelay
	swift build -c release $(SWIFT_STATIC) --product fake-bluez

unit:
	swift test $(CHECKED_IMPORTS)
vm: release
	Tests/VM/run

lint:
	swift format lint --strict --recursive --configuration .swift-format Package.swift Sources Tests
format:
	swift format --in-place --recursive --configuration .swift-format Package.swift Sources Tests
