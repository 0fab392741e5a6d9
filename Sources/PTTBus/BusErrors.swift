// The errors of org.pttd: PTChannelError by D-Bus error names.
import DBus
import PushToTalkCore

extension PTTBus {
    /// The prefix of every error name of `org.pttd`.
    public static let errorPrefix = "org.pttd.Error."

    /// The error reply for a channel error: `org.pttd.Error.` and Apple's case name with a capital.
    public static func reply(_ error: PTChannelError) -> DBusErrorReply {
        DBusErrorReply(errorPrefix + errorName(error.code), error.explanation)
    }

    /// Apple's case name with a capital letter, `TransmissionNotFound`.
    public static func errorName(_ code: PTChannelError.Code) -> String {
        let name = "\(code)"
        return name.prefix(1).uppercased() + name.dropFirst()
    }
}
