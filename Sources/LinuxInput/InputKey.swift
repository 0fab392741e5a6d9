// The names of key codes, from libevdev's table of <linux/input-event-codes.h>.
import CEvdev
import Glibc

/// Key codes by name, as evtest(1) and hwdb files show them.
public enum InputKey {
    /// The code of `KEY_*` or `BTN_*`; nil when there is none of this name.
    public static func code(named name: String) -> UInt16? {
        guard name.hasPrefix("KEY_") || name.hasPrefix("BTN_") else { return nil }
        return UInt16(exactly: libevdev_event_code_from_name(UInt32(EV_KEY), name))
    }

    /// The name of a code; nil when it has none.
    public static func name(of code: UInt16) -> String? {
        libevdev_event_code_get_name(UInt32(EV_KEY), UInt32(code)).map { String(cString: $0) }
    }

    /// All names, for "did you mean".
    public static var names: [String] { (0..<KeyStateMachine.codesCount).compactMap(name) }
}
