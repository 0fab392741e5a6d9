# Two commands do everything: `make demo` and `make test`. The others are parts of them.
# Shipped programs: Swift's runtime inside, checked libc calls and stack guards in C, all symbols bound at the start, and no
# search for libraries beside the program. Nothing is exported, and relative relocations take a bit each: docs/building.md.
# Checked calls are not for C functions that Swift calls (__swift__ is 0 elsewhere): glibc 2.41 declares them twice, which Swift
# finds ambiguous.
# Nothing of them tells where or when they were built: without breadcrumbs, debug information has no hash of the imported C modules, which
# covers the times of their headers. JOBS='-j 1' compiles one module at a time, for a machine with little memory.
SHIPPED := $(JOBS) --static-swift-stdlib --disable-local-rpath -Xcc -D_FORTIFY_SOURCE=2-__swift__ -Xcc -fstack-protector-strong \
  -Xswiftc -file-prefix-map -Xswiftc $(CURDIR)=. -Xcc -ffile-prefix-map=$(CURDIR)=. -Xswiftc -Xfrontend -Xswiftc -no-clang-module-breadcrumbs \
  -Xlinker -z -Xlinker relro -Xlinker -z -Xlinker now -Xlinker --build-id=sha1 \
  -Xswiftc -use-ld=lld -Xswiftc -ld-path=$(CURDIR)/debian/tools/linking/ld.lld \
  -Xlinker --no-export-dynamic -Xlinker -z -Xlinker pack-relative-relocs -Xlinker --icf=safe -Xlinker -O2
# The compiler's output depends on where its memory lies (docs/building.md): always in the same place, where that is allowed.
STEADY := $(shell setarch -R true 2>/dev/null && echo setarch -R)
# Where SwiftPM builds.
SCRATCH ?= .build
# `pttd` and `pttctl` as they are installed, with one library for both: debian/tools/linking/shared.
SHARED = $(SCRATCH)/shared
CHECKED_IMPORTS := --explicit-target-dependency-import-check error

BUILD_PACKAGES := pkg-config libdbus-1-dev libasound2-dev libbluetooth-dev libopus-dev libspeexdsp-dev libogg-dev libevdev-dev libudev-dev \
  libngtcp2-dev libngtcp2-crypto-gnutls-dev libgnutls28-dev libsodium-dev libtomlplusplus-dev libqrencode-dev libsqlite3-dev \
  libpulse-dev libnats-dev
DEB_PACKAGES := build-essential debhelper fakeroot
RUN_PACKAGES := dbus libasound2-plugins
DEMO_PACKAGES := espeak-ng python3 python3-numpy python3-matplotlib
TEST_PACKAGES := espeak-ng speech-dispatcher speech-dispatcher-espeak-ng pulseaudio pulseaudio-utils pipewire wireplumber pipewire-pulse alsa-utils sox strace procps iproute2 python3-venv opus-tools protobuf-compiler systemd \
  modemmanager mandoc rtkit zbar-tools avahi-daemon shellcheck codespell curl nghttp2-client

# Where the tests of links over TLS and of the page run: not in a root of another release.
WEB_PACKAGES := nodejs chromium iptables openssl

.PHONY: demo test test-debian-13 deps demo-deps test-deps build programs release test-programs unit vm vm-accessories vm-dbus-broker vm-debian-13 lint format bench fuzz install install-pttd install-pttrelay deb deb-deps dist docs api-check apt-repository

# Builds, runs the whole line from a simulated button to the ear, and shows what came out.
demo: demo-deps release
	Tests/Demo/run --build $(BUILT)

# Everything that CI runs.
test: test-deps
	Tests/run

deps:
	@Tests/install-packages $(BUILD_PACKAGES) $(RUN_PACKAGES)
demo-deps:
	@Tests/install-packages $(BUILD_PACKAGES) $(RUN_PACKAGES) $(DEMO_PACKAGES)
test-deps:
	@Tests/install-packages $(BUILD_PACKAGES) $(RUN_PACKAGES) $(DEMO_PACKAGES) $(TEST_PACKAGES) $(WEB_PACKAGES) $(DEB_PACKAGES)
	@Tests/unpack-package ofono
	@Tests/unpack-package --alone nats-server

build:
	swift build $(CHECKED_IMPORTS)
# The commit that `--version` names.
release programs test-programs: export PTTD_COMMIT := $(shell debian/tools/commit)
programs:
	$(STEADY) swift build -c release --scratch-path $(SCRATCH) $(SHIPPED) --product pttd
	$(STEADY) swift build -c release --scratch-path $(SCRATCH) $(SHIPPED) --product pttctl
	$(STEADY) swift build -c release --scratch-path $(SCRATCH) $(SHIPPED) --product pttrelay
	debian/tools/linking/shared $(SHARED) libpttd-swift.so $(BUILT)/pttd $(BUILT)/pttctl
release: programs
	$(STEADY) swift build -c release --scratch-path $(SCRATCH) $(SHIPPED) --product fake-bluez
test-programs:
	$(STEADY) swift build -c release --scratch-path $(SCRATCH) $(SHIPPED) --product PushToTalkApp
	$(STEADY) swift build -c release --scratch-path $(SCRATCH) $(SHIPPED) --product bus-cycles

unit:
	swift test --no-parallel $(CHECKED_IMPORTS)
# The tests of what stands on libraries of the release (ngtcp2, GnuTLS, ALSA, libdbus, libevdev), in a root of Debian 13.
test-debian-13:
	PTTD_TESTS=QUIC,Cryptography,Reactor,DBus,LinuxInput,Audio,Relay Tests/Debian/in-root trixie \
	    swift test --no-parallel --scratch-path .build-trixie
vm: deb test-programs
	Tests/VM/run
	Tests/VM/run-accessories
	Tests/VM/run-system
	Tests/VM/run-sound
	Tests/VM/run-worn
vm-accessories: deb
	Tests/VM/run-accessories
# With Fedora's and Arch's bus in place of dbus-daemon.
vm-dbus-broker: export PTTD_VM_BUS := dbus-broker
vm-dbus-broker: deb test-programs
	Tests/VM/run
	Tests/VM/run-system
# The same in a guest of Debian 13, with packages that are built for it.
vm-debian-13:
	Tests/Debian/in-root trixie make deb test-programs SCRATCH=.build-trixie DEBS=.build-deb-trixie
	Tests/VM/run --suite trixie
	Tests/VM/run-accessories --suite trixie
	Tests/VM/run-system --suite trixie

lint:
	swift format lint --strict --recursive --configuration .swift-format Package.swift Sources Tests
	Tests/lint
format:
	swift format --in-place --recursive --configuration .swift-format Package.swift Sources Tests

# Everything that reads bytes from outside, with libFuzzer: ten minutes each, two at a time.
fuzz: deps
	Tests/Fuzz/run all

# Puts programs and system files where a package does; DESTDIR as usual. No other prefix: the system bus reads policies below /usr only.
# Programs are stripped, and debuggers find their symbols by build ID (gdb, "Debugging Information in Separate Files"); with STRIP=
# they stay whole, for dh_strip. UNITS: where systemd looks for units.
STRIP := yes
UNITS := /usr/lib/systemd/system
BUILT = $(SCRATCH)/release

# install-stripped FILE DESTINATION MODE: a program or a library, and its symbols.
define install-stripped
install -D -m $(3) $(if $(STRIP),-s) $(1) $(DESTDIR)/usr/$(2)
$(if $(STRIP),id=$$(readelf -n $(1) | sed -n 's/.*Build ID: //p') && [ -n "$$id" ] && \
    symbols=$(DESTDIR)/usr/lib/debug/.build-id/$$(printf %.2s $$id)/$${id#??}.debug && install -d "$$(dirname $$symbols)" && \
    objcopy --only-keep-debug --compress-debug-sections $(1) $$symbols && chmod 644 $$symbols)
endef
# install-program NAME FOLDER: the program that is built in that folder, its symbols and its completions.
define install-program
$(call install-stripped,$(2)/$(1),bin/$(1),755)
$(BUILT)/$(1) --generate-completion-script bash | sed '1{/^#!/d}' | \
    install -Dm 644 /dev/stdin $(DESTDIR)/usr/share/bash-completion/completions/$(1)
$(BUILT)/$(1) --generate-completion-script zsh | install -Dm 644 /dev/stdin $(DESTDIR)/usr/share/zsh/$(ZSH)/_$(1)
$(BUILT)/$(1) --generate-completion-script fish | install -Dm 644 /dev/stdin $(DESTDIR)/usr/share/fish/vendor_completions.d/$(1).fish
endef
# Debian's packages have another folder.
ZSH := site-functions

install: install-pttd install-pttrelay
ifeq ($(DESTDIR),)
	systemd-sysusers pttd.conf && systemd-tmpfiles --create pttd.conf && systemctl daemon-reload && systemctl reload dbus && systemd-hwdb update && \
	    udevadm control --reload && udevadm trigger -s input -s tty
endif
install-pttd:
	$(call install-program,pttd,$(SHARED)/bin)
	$(call install-program,pttctl,$(SHARED)/bin)
	$(call install-stripped,$(SHARED)/lib/pttd/libpttd-swift.so,lib/pttd/libpttd-swift.so,644)
	install -Dm 644 -t $(DESTDIR)$(UNITS) systemd/pttd.service systemd/pttd-pan.service
	install -Dm 644 systemd/user/pttd.service $(DESTDIR)/usr/lib/systemd/user/pttd.service
	install -Dm 644 systemd/pttd.sysusers $(DESTDIR)/usr/lib/sysusers.d/pttd.conf
	install -Dm 644 systemd/pttd.tmpfiles $(DESTDIR)/usr/lib/tmpfiles.d/pttd.conf
	install -Dm 644 systemd/org.pttd.conf $(DESTDIR)/usr/share/dbus-1/system.d/org.pttd.conf
	install -Dm 644 -t $(DESTDIR)/usr/share/dbus-1/system-services systemd/org.pttd.service
	install -Dm 644 -t $(DESTDIR)/usr/share/dbus-1/services systemd/org.pttd.service
	install -Dm 644 -t $(DESTDIR)/usr/lib/udev/rules.d udev/60-pttd.rules udev/72-pttd-access.rules
	install -Dm 644 -t $(DESTDIR)/usr/lib/udev/hwdb.d udev/60-pttd.hwdb
	install -Dm 644 -t $(DESTDIR)/usr/share/man/man1 docs/man/pttctl.1
	install -Dm 644 -t $(DESTDIR)/usr/share/man/man8 docs/man/pttd.8
install-pttrelay:
	$(call install-program,pttrelay,$(BUILT))
	install -Dm 644 -t $(DESTDIR)$(UNITS) systemd/pttrelay.service
	install -Dm 644 -t $(DESTDIR)/usr/share/man/man8 docs/man/pttrelay.8

# The Debian packages, into DEBS (docs/building.md). It builds what `make programs` does, with the same flags in the same folder:
# after that nothing is compiled again.
DEBS := .build-deb
deb: deps deb-deps
	debian/tools/deb $(DEBS)
# A signed repository of what `make deb` has built: make apt-repository KEY=… [REPOSITORY=folder].
REPOSITORY = $(DEBS)/repository
apt-repository:
	@Tests/install-packages apt-utils gnupg
	debian/tools/apt-repository --key '$(KEY)' '$(REPOSITORY)'
# The source tarball with the Swift packages and the documentation, into .build-dist.
dist: docs
	debian/tools/dist --scratch $(SCRATCH) --documentation .build-docs
# The documentation of the module PushToTalk, into .build-docs. Needs the debug build of the module, as api-check does.
docs: deps
	debian/tools/docs .build-docs $(SCRATCH)
# Whether apps that are written for the last release still compile.
api-check: deps
	Tests/API/check --scratch $(SCRATCH)
deb-deps:
	@Tests/install-packages $(DEB_PACKAGES)

# Figures, by hand; only cycles and pages fail, when memory or descriptors grow. Each script installs what it compares with: Mumble,
# PulseAudio, an X server. Benchmarks/tunnel is not among them: it needs root.
bench: deps release test-programs
	Benchmarks/latency
	Benchmarks/voice
	Benchmarks/clipping
	Benchmarks/loss
	Benchmarks/power
	Benchmarks/load
	Benchmarks/returning
	Benchmarks/cycles
	Benchmarks/pages
