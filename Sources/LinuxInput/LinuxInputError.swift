// What can go wrong with input devices, and what to do.
import CLinux
import Reactor

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

/// An input device, or udev itself, that cannot be used.
public enum LinuxInputError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The daemon's user may not open the node.
    case permission(node: String)
    /// The node is there, but is no evdev device.
    case notAnInputDevice(node: String)
    /// The device is gone.
    case gone(node: String)
    /// Another program has grabbed the device.
    case grabbed(node: String)
    /// Any other failed system call.
    case system(node: String, call: String, code: Int32)
    /// libudev gives no context or monitor.
    case udev(call: String, code: Int32)

    /// From a failed call on a node.
    init(node: String, call: String, code: Int32) {
        switch code {
        case EACCES, EPERM: self = .permission(node: node)
        case ENOTTY, EINVAL: self = .notAnInputDevice(node: node)
        case ENOENT, ENODEV, ENXIO: self = .gone(node: node)
        case EBUSY: self = .grabbed(node: node)
        default: self = .system(node: node, call: call, code: code)
        }
    }

    /// What happened and what to do.
    public var description: String {
        switch self {
        case .permission(let node):
            "no permission to open \(node): in its udev rule write GROUP=\"pttd\", MODE=\"0660\" for the system service, "
                + "or TAG+=\"uaccess\" for a user's; then 'udevadm control --reload', 'udevadm trigger'"
        case .notAnInputDevice(let node):
            "\(node) is not an input device: the rule has to say SUBSYSTEM==\"input\", KERNEL==\"event*\""
        case .gone(let node):
            "\(node) is gone: plug it in again"
        case .grabbed(let node):
            "\(node) is grabbed by another program (fuser -v \(node) shows it): end that, or remove PTTD_GRAB"
        case .system(let node, let call, let code):
            "\(node): \(SystemError(call, code: code))"
        case .udev(let call, let code):
            "udev: \(SystemError(call, code: code)); wired and HID buttons do not work until it runs"
        }
    }
}
