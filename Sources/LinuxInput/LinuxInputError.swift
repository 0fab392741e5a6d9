// What can go wrong with input devices and serial ports, and what to do.
import CLinux
import Glibc
import Reactor

/// A local device, or udev itself, that cannot be used.
public enum LinuxInputError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The daemon's user may not open the node.
    case permission(node: String)
    /// The node is there, but is no evdev device.
    case notAnInputDevice(node: String)
    /// The node is there, but is no serial port.
    case notASerialPort(node: String)
    /// The serial port does not tell what its lines do.
    case noSuchLine(node: String)
    /// The device is gone.
    case gone(node: String)
    /// Another program has it to itself.
    case inUse(node: String)
    /// Any other failed system call.
    case system(node: String, call: String, code: Int32)
    /// libudev gives no context or monitor.
    case udev(call: String, code: Int32)

    /// From a failed call on a node.
    init(node: String, isSerial: Bool = false, call: String, code: Int32) {
        switch code {
        case EACCES, EPERM: self = .permission(node: node)
        case ENOTTY, EINVAL: self = isSerial ? .notASerialPort(node: node) : .notAnInputDevice(node: node)
        case ENOENT, ENODEV, ENXIO: self = .gone(node: node)
        case EBUSY: self = .inUse(node: node)
        default: self = .system(node: node, call: call, code: code)
        }
    }

    /// What happened and what to do.
    public var description: String {
        switch self {
        case .permission(let node):
            "no permission to open \(node): 72-pttd-access.rules gives tagged devices to the group pttd and to the user at the "
                + "desktop; if it is installed, 'udevadm control --reload', 'udevadm trigger' and plug it in again"
        case .notAnInputDevice(let node):
            "\(node) is not an input device: the rule has to say SUBSYSTEM==\"input\", KERNEL==\"event*\""
        case .notASerialPort(let node):
            "\(node) is not a serial port: the rule has to say SUBSYSTEM==\"tty\" and fit ttyUSB*, ttyACM* or ttyS*"
        case .noSuchLine(let node):
            "\(node) does not tell what its lines do: its driver cannot (TIOCMIWAIT); use another adapter, or a USB foot switch"
        case .gone(let node):
            "\(node) is gone: plug it in again"
        case .inUse(let node):
            "\(node) is taken by another program (fuser -v \(node) shows it): end that; it is tried again"
        case .system(let node, let call, let code):
            "\(node): \(SystemError(call, code: code)); it is tried again"
        case .udev(let call, let code):
            "udev: \(SystemError(call, code: code)); wired and HID buttons do not work until it runs"
        }
    }
}
