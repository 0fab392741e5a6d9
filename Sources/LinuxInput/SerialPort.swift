// One open serial port: raw bytes, or the state of one of its lines.
import CLinux
import Glibc
import MonotonicTime
import Reactor

/// An open terminal device in raw mode, 8 data bits, no parity, one stop bit, no flow control; nobody else may open it meanwhile.
final class SerialPortDescriptor {
    let number: Int32

    init(node: String, baud: Int) throws(LinuxInputError) {
        guard let speed = SerialPort.speeds[baud] else { throw LinuxInputError.notASerialPort(node: node) }
        // Not the terminal of this process: a hang-up would end it. Without O_NONBLOCK open waits for a carrier.
        number = open(node, O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC)
        // `deinit` closes the port, also when the rest of this fails.
        func check(_ result: Int32, _ call: String) throws(LinuxInputError) {
            if result < 0 { throw LinuxInputError(node: node, isSerial: true, call: call, code: errno) }
        }
        try check(number, "open")
        var settings = termios()
        try check(tcgetattr(number, &settings), "tcgetattr")
        try check(ioctl(number, UInt(TIOCEXCL), 0), "TIOCEXCL")
        cfmakeraw(&settings)
        settings.c_cflag |= tcflag_t(CLOCAL) | tcflag_t(CREAD)
        settings.c_cflag &= ~(tcflag_t(CSTOPB) | tcflag_t(ptt_crtscts))
        cfsetispeed(&settings, speed)
        cfsetospeed(&settings, speed)
        try check(tcsetattr(number, TCSANOW, &settings), "tcsetattr")
        // What was sent before anybody listened is no press.
        try check(tcflush(number, TCIFLUSH), "tcflush")
    }

    deinit {
        guard number >= 0 else { return }
        _ = ioctl(number, UInt(TIOCNXCL), 0)
        close(number)
    }
}

/// A serial port whose bytes are read. It is confined to its loop's thread.
final class SerialPort: OpenDevice {
    /// The speed unless the rule says another.
    static let usualBaud = 9600
    /// Speeds that can be asked for, in bits per second, and termios' names for them.
    static let speeds = [
        1200: speed_t(B1200), 2400: speed_t(B2400), 4800: speed_t(B4800), 9600: speed_t(B9600),
        19200: speed_t(B19200), 38400: speed_t(B38400), 57600: speed_t(B57600), 115_200: speed_t(B115200),
        230_400: speed_t(B230400),
    ]
    /// Bytes read at a turn; the rest waits for the next one, so that a port in a frenzy does not starve the loop.
    static let bytesPerTurn = 1024

    let info: InputDevice
    private var descriptor: SerialPortDescriptor?
    private var watch: EventLoop.Watch?
    private let onBytes: ([UInt8], Instant) -> Void
    private let onLoss: (LinuxInputError) -> Void

    /// Opens the node and watches it.
    ///
    /// - Parameters:
    ///   - onBytes: Called with what came, and when it was read.
    ///   - onLoss: Called once when the port hung up or fails; it is closed then.
    init(
        _ tagged: TaggedDevice, loop: EventLoop, onBytes: @escaping ([UInt8], Instant) -> Void,
        onLoss: @escaping (LinuxInputError) -> Void
    ) throws(LinuxInputError) {
        let descriptor = try SerialPortDescriptor(node: tagged.node, baud: tagged.rule.baud)
        info = InputDevice(serial: tagged, kind: .serialPort)
        self.descriptor = descriptor
        self.onBytes = onBytes
        self.onLoss = onLoss
        do throws(SystemError) {
            watch = try loop.watch(descriptor.number, for: .readable) { [unowned self] _ in read() }
        } catch {
            throw LinuxInputError(node: tagged.node, isSerial: true, call: error.call, code: error.code)
        }
    }

    /// Ends the watch and closes the port.
    func shut() {
        watch?.cancel()
        watch = nil
        descriptor = nil
    }

    private func read() {
        guard let descriptor else { return }
        let count = withUnsafeTemporaryAllocation(byteCount: Self.bytesPerTurn, alignment: 1) { buffer -> Int in
            let count = Glibc.read(descriptor.number, buffer.baseAddress, buffer.count)
            guard count > 0 else { return count < 0 ? -Int(errno) : 0 }
            onBytes(Array(buffer.prefix(count)), .now)
            return count
        }
        guard count <= 0, count != -Int(EAGAIN), count != -Int(EINTR) else { return }
        // Nothing to read although it is ready: the other end, or the adapter, is gone. So says EIO.
        let code = count == 0 || count == -Int(EIO) ? ENODEV : Int32(-count)
        shut()
        onLoss(LinuxInputError(node: info.node, isSerial: true, call: "read", code: code))
    }
}

extension InputDevice {
    /// A serial port: what udev knows of the adapter behind it.
    init(serial tagged: TaggedDevice, kind: Kind) {
        let properties = tagged.properties
        func number(_ name: String) -> UInt16 { properties[name].flatMap { UInt16($0, radix: 16) } ?? 0 }
        self.init(
            node: tagged.node, kind: kind,
            // udev writes spaces as underscores.
            name: properties["ID_MODEL"].map { String($0.map { $0 == "_" ? " " : $0 }) } ?? tagged.node,
            bus: properties["ID_BUS"] == "usb" ? 3 : 0, vendor: number("ID_VENDOR_ID"),
            product: number("ID_MODEL_ID"), unique: properties["ID_SERIAL_SHORT"],
            keys: kind == .serialLine ? [SerialLine.key] : [], properties: properties, rule: tagged.rule)
    }
}
