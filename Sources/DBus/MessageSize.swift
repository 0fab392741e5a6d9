// Limits how much of a message is read, and measures the arguments of messages that are not read.
import CDBus
import Glibc

/// What may still be read of one message. A message of 32 MiB that is all small values would take gigabytes as values.
struct ReadingBudget {
    private var bytes = DBusLimits.messageBytes
    private var values = DBusLimits.messageValues

    /// Takes one value of so many bytes beyond its own.
    /// - Throws: `.limitReached`.
    mutating func take(_ count: Int) throws(DBusError) {
        bytes -= count
        values -= 1
        guard bytes >= 0 else { throw .limitReached("more than \(DBusLimits.messageBytes) bytes in a message") }
        guard values >= 0 else { throw .limitReached("more than \(DBusLimits.messageValues) values in a message") }
    }
}

/// How long the arguments of a message are.
struct MessageSize: CustomStringConvertible {
    /// Bytes of what has been looked at: strings and numbers, without what is between them.
    private(set) var bytes = 0
    /// Values that may still be looked at.
    private var steps = 4_096

    /// Nothing.
    init() {}

    /// Looks at what libdbus received. Arrays of bytes are one step, so the time has a bound.
    init(of message: OpaquePointer) {
        var iterator = DBusMessageIter()
        if dbus_message_iter_init(message, &iterator) != 0 { look(&iterator) }
    }

    /// The bytes, for a log.
    var description: String { steps > 0 ? "\(bytes)" : "more than \(bytes)" }

    private mutating func look(_ iterator: inout DBusMessageIter) {
        while steps > 0 {
            let type = dbus_message_iter_get_arg_type(&iterator)
            guard type != 0, let scalar = Unicode.Scalar(UInt32(type)) else { return }
            steps -= 1
            switch scalar {
            case "s", "o", "g":
                var text: UnsafePointer<CChar>?
                dbus_message_iter_get_basic(&iterator, &text)
                bytes += text.map { strlen($0) } ?? 0
            case "a" where dbus_message_iter_get_element_type(&iterator) == Int32(UInt8(ascii: "y")):
                bytes += DBusMessage.fixedArray(&iterator).count
            case "a", "r", "e", "v":
                var inner = DBusMessageIter()
                dbus_message_iter_recurse(&iterator, &inner)
                look(&inner)
            case "y": bytes += 1
            case "n", "q": bytes += 2
            case "b", "i", "u", "h": bytes += 4
            default: bytes += 8
            }
            dbus_message_iter_next(&iterator)
        }
    }
}
