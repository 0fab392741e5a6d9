// A switch on a line of a serial port, as a key. The kernel wakes a thread for a press. The release is polled, because
// the kernel does not report a change that happens between two waits.
import CLinux
import Glibc
import MonotonicTime
import Reactor

/// A switch at a serial port's line. It is confined to its loop's thread; the thread that waits writes into a pipe.
final class SerialLineSwitch: OpenDevice {
    /// Changes read at a turn.
    static let changesPerTurn = 64

    let info: InputDevice
    private let line: SerialLine
    private let port: SerialPortDescriptor?
    private var keys = KeyStateMachine()
    private var thread: OpaquePointer?
    private var pipe: (read: Int32, write: Int32)
    private var watch: EventLoop.Watch?
    private let onEdge: (KeyEdge) -> Void
    private let onLoss: (LinuxInputError) -> Void

    /// Opens the node and waits for the line that its rule names.
    convenience init(
        _ tagged: TaggedDevice, line: SerialLine, loop: EventLoop, onEdge: @escaping (KeyEdge) -> Void,
        onLoss: @escaping (LinuxInputError) -> Void
    ) throws(LinuxInputError) {
        let port = try SerialPortDescriptor(node: tagged.node, baud: tagged.rule.baud)
        var lines: Int32 = 0
        guard ptt_serial_lines(port.number, &lines) == 0 else { throw LinuxInputError.noSuchLine(node: tagged.node) }
        var ends: [Int32] = [-1, -1]
        guard Glibc.pipe(&ends) == 0 else {
            throw LinuxInputError.system(node: tagged.node, call: "pipe", code: errno)
        }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        try self.init(
            tagged, line: line, port: port, pipe: (ends[0], ends[1]), loop: loop, onEdge: onEdge, onLoss: onLoss)
        let rest = line.isInverted ? line.name.mask : 0
        guard let thread = ptt_serial_line_start(port.number, ends[1], line.name.mask, rest, nil) else {
            let code = errno
            shut()
            throw LinuxInputError.system(node: tagged.node, call: "pthread_create", code: code)
        }
        self.thread = thread
    }

    /// A switch whose changes come out of a pipe, which is closed with it.
    init(
        _ tagged: TaggedDevice, line: SerialLine, port: SerialPortDescriptor?, pipe: (read: Int32, write: Int32),
        loop: EventLoop, onEdge: @escaping (KeyEdge) -> Void, onLoss: @escaping (LinuxInputError) -> Void
    ) throws(LinuxInputError) {
        info = InputDevice(serial: tagged, kind: .serialLine)
        self.line = line
        self.port = port
        self.pipe = pipe
        self.onEdge = onEdge
        self.onLoss = onLoss
        _ = fcntl(pipe.read, F_SETFL, O_NONBLOCK)
        do throws(SystemError) {
            watch = try loop.watch(pipe.read, for: .readable) { [unowned self] _ in read() }
        } catch {
            close(pipe.read)
            close(pipe.write)
            throw LinuxInputError.system(node: tagged.node, call: error.call, code: error.code)
        }
    }

    /// Ends the thread and closes the port. A held switch comes up.
    func shut() {
        guard let watch else { return }
        watch.cancel()
        self.watch = nil
        // First the thread, which writes into the pipe and uses the port.
        if let thread { ptt_serial_line_stop(thread) }
        thread = nil
        close(pipe.read)
        close(pipe.write)
        for edge in keys.handle(.removed, at: .now) { onEdge(edge) }
    }

    private func read() {
        for _ in 0..<Self.changesPerTurn {
            guard watch != nil else { return }
            var change = ptt_serial_line_change()
            let size = MemoryLayout<ptt_serial_line_change>.size
            let count = Glibc.read(pipe.read, &change, size)
            guard count == size else { return }
            take(change)
        }
    }

    private func take(_ change: ptt_serial_line_change) {
        let time = Instant(nanoseconds: change.nanoseconds)
        if change.slept != 0 {
            // Released or pressed anew meanwhile, nobody knows: what comes is a fresh press.
            for edge in keys.handle(.removed, at: time) { onEdge(edge) }
        }
        guard change.error == 0 else {
            shut()
            let code = change.error
            let isMissing = code == ENOTTY || code == EINVAL || code == ENOSYS || code == EOPNOTSUPP
            return onLoss(
                isMissing
                    ? .noSuchLine(node: info.node)
                    : LinuxInputError(
                        node: info.node, isSerial: true, call: "TIOCMIWAIT", code: code == EIO ? ENODEV : code))
        }
        let isOn = change.lines & line.name.mask != 0
        let isPressed = isOn != line.isInverted
        for edge in keys.handle(.key(code: SerialLine.key, value: isPressed ? 1 : 0), at: time) { onEdge(edge) }
    }
}

extension SerialLine.Name {
    /// Its bit in TIOCMGET.
    var mask: Int32 {
        switch self {
        case .cts: Int32(TIOCM_CTS)
        case .dsr: Int32(TIOCM_DSR)
        case .dcd: Int32(TIOCM_CAR)
        }
    }
}
