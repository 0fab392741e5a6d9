// Real devices, where the kernel offers them: keys made through uinput and read back.
import CEvdev
import Glibc
import Logging
import MonotonicTime
import Reactor
import Synchronization
import Testing

@testable import LinuxInput

private let hasUinput = access("/dev/uinput", R_OK | W_OK) == 0
/// In it: SUBSYSTEM=="input", KERNEL=="event*", ATTRS{name}=="pttd tagged keys", TAG+="pttd",
/// ENV{PTTD_PROFILE}="foot", ENV{PTTD_GRAB}="1"
private let hasTestRule = access("/run/udev/rules.d/90-pttd-test.rules", R_OK) == 0

/// What the handler was told, in words.
private final class Recorder: Sendable {
    let lines = Mutex<[String]>([])
    func note(_ event: LinuxInputEvent) {
        let line =
            switch event {
            case .added(let device): "added \(device.name)"
            case .key(_, let edge): "\(edge.isDown ? "down" : "up") \(edge.code)"
            case .bytes(_, let bytes, _): "bytes \(bytes)"
            case .removed: "removed"
            case .problem(_, let problem): "problem \(problem ?? "none")"
            }
        lines.withLock { $0.append(line) }
    }
    var all: [String] { lines.withLock { $0 } }
}

/// A keyboard that the test types on.
private final class UinputDevice: @unchecked Sendable {
    let device: OpaquePointer
    let node: String

    init(name: String) throws {
        let description = libevdev_new()
        defer { libevdev_free(description) }
        libevdev_set_name(description, name)
        libevdev_enable_event_type(description, UInt32(EV_KEY))
        for code in [KEY_F13, KEY_PLAYPAUSE] {
            libevdev_enable_event_code(description, UInt32(EV_KEY), UInt32(code), nil)
        }
        var device: OpaquePointer?
        let code = libevdev_uinput_create_from_device(
            description, Int32(LIBEVDEV_UINPUT_OPEN_MANAGED.rawValue), &device)
        guard code == 0, let device, let path = libevdev_uinput_get_devnode(device) else {
            throw LinuxInputError(node: "/dev/uinput", call: "uinput", code: -code)
        }
        self.device = device
        node = String(cString: path)
    }

    func key(_ code: Int32, _ value: Int32) {
        libevdev_uinput_write_event(device, UInt32(EV_KEY), UInt32(code), value)
        libevdev_uinput_write_event(device, UInt32(EV_SYN), UInt32(SYN_REPORT), 0)
    }

    func unplug() { libevdev_uinput_destroy(device) }
}

@Suite struct LinuxInputMonitorTests {
    private func until(_ condition: () async -> Bool) async throws {
        let limit = Instant.now + .seconds(10)
        while await !condition() {
            try #require(Instant.now < limit, "it did not happen within 10 s")
            try await Task.sleep(for: .milliseconds(2))
        }
    }

    private func withMonitor(
        _ body: (LinuxInputMonitor, Recorder) async throws -> Void
    ) async throws {
        let loop = try EventLoop(name: "input")
        defer { loop.stop() }
        let recorder = Recorder()
        let monitor = LinuxInputMonitor(loop: loop, logger: Logger(label: "test")) { recorder.note($0) }
        try await body(monitor, recorder)
        await monitor.stop()
    }

    @Test func `it starts and stops wherever udev is`() async throws {
        try await withMonitor { monitor, _ in
            try await monitor.start()
            try await monitor.start()
            await monitor.stop()
            try await monitor.start()
        }
    }

    @Test func `nodes that are no input devices are refused with the reason`() async throws {
        try await withMonitor { monitor, recorder in
            // A name that udev may give, and what is behind it is something else.
            let folder = try TemporaryFolder()
            let null = folder.path + "/null"
            #expect(symlink("/dev/null", null) == 0)
            await monitor.handle(.tagged(.input(null)))
            await monitor.handle(.tagged(.serial(null)))
            #expect(await monitor.openDevices.isEmpty)
            #expect(recorder.all.count == 2)
            #expect(recorder.all.first?.contains("\(null) is not an input device") == true)
            #expect(recorder.all.last?.contains("\(null) is not a serial port") == true)
            // One that is gone before it is opened: udev will say so.
            await monitor.handle(.tagged(.input("/dev/input/event-none")))
            #expect(recorder.all.count == 2)
            await monitor.handle(.untagged(node: null))
            #expect(recorder.all.last == "problem none")
        }
    }

    @Test(.enabled(if: hasUinput, "needs /dev/uinput ('modprobe uinput') and the right to write to it"))
    func `keys are read and unplugging releases them`() async throws {
        try await withMonitor { monitor, recorder in
            let keyboard = try UinputDevice(name: "pttd test keys")
            try await until { access(keyboard.node, R_OK) == 0 }
            await monitor.handle(.tagged(.input(keyboard.node, ["PTTD_GRAB": "1"])))
            #expect(await monitor.openDevices.first?.keys == [UInt16(KEY_F13), UInt16(KEY_PLAYPAUSE)])
            for value: Int32 in [1, 2, 2, 0, 1] { keyboard.key(KEY_F13, value) }
            keyboard.key(KEY_PLAYPAUSE, 1)
            try await until { recorder.all.count >= 5 }
            keyboard.unplug()
            try await until { recorder.all.last == "removed" }
            #expect(
                recorder.all == [
                    "added pttd test keys", "down 183", "up 183", "down 183", "down 164", "up 164", "up 183", "removed",
                ])
        }
    }

    @Test(.enabled(if: hasUinput, "needs /dev/uinput ('modprobe uinput') and the right to write to it"))
    func `what the kernel dropped is made up for`() async throws {
        try await withMonitor { monitor, recorder in
            let keyboard = try UinputDevice(name: "pttd flooding keys")
            defer { keyboard.unplug() }
            try await until { access(keyboard.node, R_OK) == 0 }
            await monitor.handle(.tagged(.input(keyboard.node)))
            // While the loop is busy far more comes than the kernel keeps; at the end one key is down, and another has come up.
            keyboard.key(KEY_PLAYPAUSE, 1)
            try await until { recorder.all.last == "down 164" }
            try await monitor.loop.run {
                for _ in 0..<2000 {
                    keyboard.key(KEY_F13, 1)
                    keyboard.key(KEY_F13, 0)
                }
                keyboard.key(KEY_PLAYPAUSE, 0)
                keyboard.key(KEY_F13, 1)
            }
            try await until { recorder.all.last == "down 183" && recorder.all.contains("up 164") }
            #expect(recorder.all.count < 4000)
            keyboard.key(KEY_F13, 0)
            try await until { recorder.all.last == "up 183" }
            // Each press has its release, whatever was lost between.
            for code in [164, 183] {
                let edges = recorder.all.filter { $0.hasSuffix(" \(code)") }
                for (index, edge) in edges.enumerated() {
                    #expect(edge == (index % 2 == 0 ? "down \(code)" : "up \(code)"))
                }
            }
        }
    }

    @Test(.enabled(if: hasUinput, "needs /dev/uinput ('modprobe uinput') and the right to write to it"))
    func `a device is grabbed once nothing is held`() async throws {
        try await withMonitor { monitor, recorder in
            let keyboard = try UinputDevice(name: "pttd held keys")
            defer { keyboard.unplug() }
            try await until { access(keyboard.node, R_OK) == 0 }
            let other = open(keyboard.node, O_RDONLY | O_NONBLOCK)
            defer { close(other) }
            keyboard.key(KEY_F13, 1)
            await monitor.handle(.tagged(.input(keyboard.node, ["PTTD_GRAB": "1"])))
            // Whoever saw the press sees the release; from then on the keys are ours alone.
            keyboard.key(KEY_F13, 0)
            keyboard.key(KEY_PLAYPAUSE, 1)
            try await until { recorder.all.last == "down 164" }
            keyboard.key(KEY_PLAYPAUSE, 0)
            try await until { recorder.all.last == "up 164" }
            #expect(recorder.all == ["added pttd held keys", "down 164", "up 164"])
            var events = [input_event](repeating: input_event(), count: 64)
            let count = max(0, read(other, &events, events.count * MemoryLayout<input_event>.stride))
            let seen = events.prefix(count / MemoryLayout<input_event>.stride).filter { $0.type == UInt16(EV_KEY) }
            #expect(seen.prefix(2).map(\.value) == [1, 0] && seen.prefix(2).allSatisfy { $0.code == UInt16(KEY_F13) })
            // Nobody else can grab it now: EVIOCGRAB of <linux/input.h>.
            #expect(ioctl(other, 0x4004_4590, 1) == -1 && errno == EBUSY)
        }
    }

    @Test(.enabled(if: hasUinput, "needs /dev/uinput ('modprobe uinput') and the right to write to it"))
    func `a device without the tag is not opened`() async throws {
        try await withMonitor { monitor, recorder in
            let keyboard = try UinputDevice(name: "pttd untagged keys")
            defer { keyboard.unplug() }
            try await monitor.start()
            try await Task.sleep(for: .milliseconds(300))
            #expect(await !monitor.openDevices.contains { $0.node == keyboard.node })
            #expect(!recorder.all.contains("added pttd untagged keys"))
        }
    }

    @Test(.enabled(if: hasUinput && hasTestRule, "needs /dev/uinput, and udevd with the rule above"))
    func `a tagged device is read whether it is there or comes`() async throws {
        try await withMonitor { monitor, recorder in
            try await monitor.start()
            let late = try UinputDevice(name: "pttd tagged keys")
            try await until { await monitor.openDevices.contains { $0.node == late.node } }
            #expect(await monitor.openDevices.first?.rule == InputDeviceRule(profileID: "foot", isGrabbed: true))
            late.key(KEY_F13, 1)
            try await until { recorder.all.last == "down 183" }
            await monitor.stop()
            #expect(recorder.all == ["added pttd tagged keys", "down 183", "up 183", "removed"])
            try await monitor.start()
            try await until { await monitor.openDevices.contains { $0.node == late.node } }
            late.unplug()
            try await until { recorder.all.last == "removed" }
        }
    }
}
