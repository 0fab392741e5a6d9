// Serial ports on pseudo-terminals, lines on pipes, and permissions that change.
import CLinux
import Glibc
import Logging
import MonotonicTime
import Reactor
import Synchronization
import TestSupport
import Testing

@testable import LinuxInput

/// A folder that goes with the object.
final class TemporaryFolder {
    let path: String
    init() throws {
        var template = Array("/tmp/pttd-input-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw SystemError("mkdtemp") }
        path = String(decoding: template.dropLast().map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
    }
    deinit {
        unlink(path + "/null")
        unlink(path + "/node")
        rmdir(path)
    }
}

/// The far end of a serial cable.
private final class Cable {
    private(set) var end: Int32
    let node: String

    init() throws {
        end = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
        // TIOCSPTLCK and TIOCGPTN of <asm/ioctls.h>: what unlockpt(3) and ptsname(3) do, which the importer does not show.
        var lock: Int32 = 0
        var number: UInt32 = 0
        guard end >= 0, ioctl(end, 0x4004_5431, &lock) == 0, ioctl(end, 0x8004_5430, &number) == 0 else {
            throw SystemError("/dev/ptmx")
        }
        node = "/dev/pts/\(number)"
    }
    func send(_ text: String) throws {
        let bytes = Array(text.utf8)
        guard write(end, bytes, bytes.count) == bytes.count else { throw SystemError("write") }
    }
    func unplug() {
        if end >= 0 { close(end) }
        end = -1
    }
    deinit { unplug() }
}

private final class Heard: Sendable {
    private let state = Mutex<(text: [UInt8], lines: [String])>(([], []))
    func note(_ event: LinuxInputEvent) {
        state.withLock { state in
            switch event {
            case .added(let device): state.lines.append("added \(device.kind)")
            case .key(_, let edge): state.lines.append("\(edge.isDown ? "down" : "up") \(edge.code)")
            case .bytes(_, let bytes, let time):
                state.text += bytes
                if time > .now { state.lines.append("from the future") }
            case .removed: state.lines.append("removed")
            case .problem(_, let problem): state.lines.append("problem \(problem ?? "none")")
            }
        }
    }
    var text: String { state.withLock { String(decoding: $0.text, as: UTF8.self) } }
    var lines: [String] { state.withLock { $0.lines } }
}

@Suite struct SerialPortTests {
    /// Whoever closes a descriptor twice closes what another thread has opened in between.
    @Test func `a node that is no serial port is closed once`() async {
        let closedByOthers = await withTaskGroup(of: Int.self) { group in
            group.addTask {
                for _ in 0..<20_000 { _ = try? SerialPortDescriptor(node: "/dev/null", baud: 9600) }
                return 0
            }
            group.addTask { (0..<20_000).count { _ in close(open("/dev/null", O_RDONLY | O_CLOEXEC)) != 0 } }
            return await group.reduce(0, +)
        }
        #expect(closedByOthers == 0)
    }

    private func until(_ condition: () async -> Bool) async throws {
        let limit = Instant.now + .seconds(10)
        while await !condition() {
            try #require(Instant.now < limit, "it did not happen within 10 s")
            try await Task.sleep(for: .milliseconds(2))
        }
    }

    private func withMonitor(_ body: (LinuxInputMonitor, Heard) async throws -> Void) async throws {
        let loop = try EventLoop(name: "serial")
        defer { loop.stop() }
        let heard = Heard()
        let monitor = LinuxInputMonitor(loop: loop, logger: Logger(label: "test")) { heard.note($0) }
        try await body(monitor, heard)
        await monitor.stop()
    }

    @Test func `bytes come as they were sent`() async throws {
        try await withMonitor { monitor, heard in
            let cable = try Cable()
            // Sent before anybody listened: no press.
            await monitor.handle(.tagged(.serial(cable.node, ["ID_MODEL": "USB_Serial", "PTTD_ACCESSORY": "desk"])))
            let device = try #require(await monitor.openDevices.first)
            #expect(device.kind == .serialPort && device.name == "USB Serial" && device.rule.accessoryName == "desk")
            // In raw mode: no line ends, no editing, no interrupt character, nothing translated.
            let text = "+PTT=P\r\u{3}\u{4}\u{7F}\u{11}\u{13}+PTT=R\n\0\u{1A}"
            try cable.send(text)
            try await until { heard.text.utf8.count >= text.utf8.count }
            #expect(heard.text == text)
            #expect(heard.lines == ["added serialPort"])
        }
    }

    @Test func `nobody else may open a port that is read`() async throws {
        try await withMonitor { monitor, heard in
            let cable = try Cable()
            await monitor.handle(.tagged(.serial(cable.node)))
            #expect(heard.lines == ["added serialPort"])
            // TIOCEXCL does not hold for root, whom a test may run as.
            if geteuid() != 0 { #expect(open(cable.node, O_RDONLY | O_NOCTTY) == -1 && errno == EBUSY) }
            var settings = termios()
            #expect(tcgetattr(cable.end, &settings) == 0)
            #expect(settings.c_lflag & tcflag_t(ICANON | ECHO | ISIG) == 0)
            #expect(settings.c_cflag & tcflag_t(CSIZE) == tcflag_t(CS8))
            #expect(settings.c_cflag & tcflag_t(PARENB | CSTOPB) == 0)
            #expect(cfgetispeed(&settings) == speed_t(B9600))
        }
    }

    @Test func `hang up removes the port`() async throws {
        try await withMonitor { monitor, heard in
            let cable = try Cable()
            await monitor.handle(.tagged(.serial(cable.node)))
            try cable.send("+PTT=P")
            try await until { heard.text == "+PTT=P" }
            cable.unplug()
            try await until { heard.lines.contains("removed") }
            #expect(heard.lines == ["added serialPort", "removed"])
            #expect(await monitor.openDevices.isEmpty)
        }
    }

    @Test func `a flood is read in pieces and whole`() async throws {
        try await withMonitor { monitor, heard in
            let cable = try Cable()
            await monitor.handle(.tagged(.serial(cable.node, ["PTTD_BAUD": "230400"])))
            let piece = String(repeating: "+PTT=P+PTT=R", count: 80)
            for _ in 0..<100 { try cable.send(piece) }
            try await until { heard.text.utf8.count >= piece.utf8.count * 100 }
            #expect(heard.text == String(repeating: piece, count: 100))
        }
    }

    @Test func `a changed rule opens the port anew and a line that is not there is said`() async throws {
        try await withMonitor { monitor, heard in
            let cable = try Cable()
            await monitor.handle(.tagged(.serial(cable.node)))
            // A pseudo-terminal has no lines.
            await monitor.handle(.tagged(.serial(cable.node, ["PTTD_LINE": "cts"])))
            #expect(heard.lines.prefix(2) == ["added serialPort", "removed"])
            #expect(heard.lines.last?.contains("does not tell what its lines do") == true)
            await monitor.handle(.tagged(.serial(cable.node)))
            #expect(Array(heard.lines.suffix(2)) == ["added serialPort", "problem none"])
        }
    }

    // MARK: Lines

    private func change(_ lines: Int32 = 0, error: Int32 = 0, slept: Bool = false) -> ptt_serial_line_change {
        ptt_serial_line_change(
            nanoseconds: Instant.now.nanoseconds, lines: lines, error: error, slept: slept ? 1 : 0, reserved: 0)
    }

    /// Runs a switch on a pipe instead of a thread's; returns what became of the changes.
    private func edges(_ line: SerialLine, _ changes: [ptt_serial_line_change]) async throws -> [String] {
        let loop = try EventLoop(name: "line")
        defer { loop.stop() }
        let seen = Lines()
        let box = Box<SerialLineSwitch>()
        var ends: [Int32] = [-1, -1]
        #expect(pipe(&ends) == 0)
        let pipe = (read: ends[0], write: dup(ends[1]))
        try await loop.run {
            box.value = try SerialLineSwitch(
                .serial("/dev/ttyS9"), line: line, port: nil, pipe: pipe, loop: loop,
                onEdge: { seen.note("\($0.isDown ? "down" : "up") \($0.code)") },
                onLoss: { seen.note("lost: \($0)") })
        }
        for var change in changes {
            #expect(write(ends[1], &change, MemoryLayout.size(ofValue: change)) == MemoryLayout.size(ofValue: change))
        }
        // Read when nothing is left in it.
        try await until {
            var waiting: Int32 = 0
            return ioctl(ends[1], UInt(FIONREAD), &waiting) != 0 || waiting == 0
        }
        try await loop.run { box.value?.shut() }
        close(ends[1])
        return seen.all
    }

    @Test func `a switch is a key whose edges are the lines`() async throws {
        let cts = Int32(TIOCM_CTS)
        let dsr = Int32(TIOCM_DSR)
        // Other lines, and repeats of the same state, are nothing.
        let seen = try await edges(
            SerialLine(.cts), [change(dsr), change(cts | dsr), change(cts), change(0), change(dsr)])
        #expect(seen == ["down 183", "up 183"])
        let opening = try await edges(SerialLine(.dsr, isInverted: true), [change(0), change(dsr)])
        #expect(opening == ["down 183", "up 183"])
    }

    @Test func `a held switch comes up when it is closed or lost`() async throws {
        let dcd = Int32(TIOCM_CAR)
        #expect(try await edges(SerialLine(.dcd), [change(dcd)]) == ["down 183", "up 183"])
        let lost = try await edges(SerialLine(.dcd), [change(dcd), change(error: EIO)])
        #expect(lost == ["down 183", "up 183", "lost: /dev/ttyS9 is gone: plug it in again"])
        let missing = try await edges(SerialLine(.dcd), [change(error: ENOTTY)])
        #expect(missing.first?.contains("does not tell what its lines do") == true)
    }

    @Test func `what a machine slept through is released`() async throws {
        let cts = Int32(TIOCM_CTS)
        let seen = try await edges(SerialLine(.cts), [change(cts), change(cts, slept: true), change(0)])
        #expect(seen == ["down 183", "up 183", "down 183", "up 183"])
    }

    @Test func `the waiting thread ends by itself on an error and when it is told`() throws {
        let cable = try Cable()
        let port = open(cable.node, O_RDONLY | O_NOCTTY | O_NONBLOCK)
        var ends: [Int32] = [-1, -1]
        #expect(pipe(&ends) == 0)
        let thread = try #require(ptt_serial_line_start(port, ends[1], Int32(TIOCM_CTS), 0, nil))
        var change = ptt_serial_line_change()
        #expect(read(ends[0], &change, MemoryLayout.size(ofValue: change)) == MemoryLayout.size(ofValue: change))
        // A pseudo-terminal cannot; the kernel says so, and that is what is told.
        #expect(change.error != 0)
        ptt_serial_line_stop(thread)
        for descriptor in ends + [port] { close(descriptor) }
    }

    @Test func `a release between two waits is told all the same`() throws {
        SimulatedLine.state.withLock { $0 = SimulatedLine.State() }
        var calls = ptt_serial_line_calls(
            wait: { _, _ in
                // The first wait ends with the press; nothing wakes the second one.
                guard SimulatedLine.state.withLock({ $0.press() }) else {
                    while !SimulatedLine.state.withLock({ $0.isUnplugged }) { usleep(1000) }
                    errno = EIO
                    return -1
                }
                return 0
            },
            lines: { _, lines in
                lines?.pointee = SimulatedLine.state.withLock { $0.read() }
                return 0
            })
        var ends: [Int32] = [-1, -1]
        #expect(pipe(&ends) == 0)
        let thread = try #require(ptt_serial_line_start(-1, ends[1], Int32(TIOCM_CTS), 0, &calls))
        var told: [Int32] = []
        for _ in 0..<3 {
            var ready = pollfd(fd: ends[0], events: Int16(POLLIN), revents: 0)
            if poll(&ready, 1, 1000) == 1 {
                var change = ptt_serial_line_change()
                #expect(
                    read(ends[0], &change, MemoryLayout.size(ofValue: change)) == MemoryLayout.size(ofValue: change))
                told.append(change.error != 0 ? -change.error : change.lines)
            }
            if told.count == 2 { SimulatedLine.state.withLock { $0.isUnplugged = true } }
        }
        SimulatedLine.state.withLock { $0.isUnplugged = true }
        ptt_serial_line_stop(thread)
        for descriptor in ends { close(descriptor) }
        #expect(told == [Int32(TIOCM_CTS), 0, -EIO])
    }

    // MARK: Permissions

    @Test func `a folder that came anew is watched anew`() async throws {
        let loop = try EventLoop(name: "access")
        defer { loop.stop() }
        let folder = try TemporaryFolder()
        let node = folder.path + "/node"
        let told = Lines()
        let watch = Box<AccessWatch>()
        try await loop.run {
            watch.value = try AccessWatch(loop: loop) { told.note($0 ?? "missed") }
            try watch.value?.add(folderOf: node)
        }
        #expect(rmdir(folder.path) == 0 && mkdir(folder.path, 0o700) == 0)
        close(open(node, O_CREAT | O_WRONLY, 0o000))
        try await until {
            _ = try? await loop.run { try watch.value?.add(folderOf: node) }
            chmod(node, 0o600)
            return told.all.contains(node)
        }
        try await loop.run { watch.value?.shut() }
    }

    @Test func `permissions that change are told`() async throws {
        let loop = try EventLoop(name: "access")
        defer { loop.stop() }
        let folder = try TemporaryFolder()
        let node = folder.path + "/node"
        close(open(node, O_CREAT | O_WRONLY, 0o000))
        let told = Lines()
        let watch = Box<AccessWatch>()
        try await loop.run {
            watch.value = try AccessWatch(loop: loop) { told.note($0 ?? "missed") }
            try watch.value?.add(folderOf: node)
            try watch.value?.add(folderOf: node)
        }
        #expect(chmod(node, 0o600) == 0)
        try await until { !told.all.isEmpty }
        #expect(told.all == [node])
        try await loop.run { watch.value?.shut() }
    }

    @Test func `changes that the kernel dropped are told as missed, and the folder can be watched anew`() async throws {
        let loop = try EventLoop(name: "access")
        defer { loop.stop() }
        let folder = try TemporaryFolder()
        let nodes = [folder.path + "/node", folder.path + "/null"]
        for node in nodes { close(open(node, O_CREAT | O_WRONLY, 0o600)) }
        let told = Lines()
        let watch = Box<AccessWatch>()
        var digits = [UInt8](repeating: 0, count: 32)
        let file = open("/proc/sys/fs/inotify/max_queued_events", O_RDONLY | O_CLOEXEC)
        let count = read(file, &digits, digits.count)
        close(file)
        let queued = try #require(Int(String(decoding: digits.prefix(max(0, count - 1)), as: UTF8.self)))
        try await loop.run {
            watch.value = try AccessWatch(loop: loop) { told.note($0 ?? "missed") }
            try watch.value?.add(folderOf: nodes[0])
            // While the loop is busy nothing is read. Equal events that follow each other would be one.
            for count in 0..<(queued + 8) { chmod(nodes[count % 2], 0o600) }
        }
        try await until { told.all.last == "missed" }
        #expect(try await loop.run { try watch.value?.add(folderOf: nodes[0]) } == true)
        #expect(chmod(nodes[1], 0o600) == 0)
        try await until { told.all.last == nodes[1] }
        try await loop.run { watch.value?.shut() }
    }
}

/// A line whose switch is let go as soon as its press was read.
private enum SimulatedLine {
    struct State {
        var isPressed = false
        var waits = 0
        var isUnplugged = false

        /// False: it is pressed no more.
        mutating func press() -> Bool {
            waits += 1
            isPressed = waits == 1
            return isPressed
        }

        mutating func read() -> Int32 {
            defer { isPressed = false }
            return isPressed ? Int32(TIOCM_CTS) : 0
        }
    }

    static let state = Mutex(State())
}

/// Carries what is confined to a loop into and out of closures that run on it.
private final class Box<Value>: @unchecked Sendable {
    var value: Value?
}

/// Lines that closures of any thread write.
private final class Lines: Sendable {
    private let lines = Mutex<[String]>([])
    func note(_ line: String) { lines.withLock { $0.append(line) } }
    var all: [String] { lines.withLock { $0 } }
}
