// The errors of org.pttd: PTChannelError and PTInstantiationError by D-Bus error names, both ways.
import DBus
import PushToTalkCore

extension PTTBus {
    /// The prefix of every error name of `org.pttd`.
    public static let errorPrefix = "org.pttd.Error."

    /// How the words of an `AccessDenied` begin that comes from the daemon, and not from the bus's policy.
    static let foreignChannelWords = "the channel belongs to"

    /// The error reply for a channel error: `org.pttd.Error.` and Apple's case name with a capital.
    public static func reply(_ error: PTChannelError) -> DBusErrorReply {
        DBusErrorReply(errorPrefix + errorName(error.code), error.explanation)
    }

    /// The error reply for an instantiation error, named likewise.
    public static func reply(_ error: PTInstantiationError) -> DBusErrorReply {
        DBusErrorReply(errorPrefix + capitalized("\(error.code)"), error.explanation)
    }

    /// The error reply for a change of another program's channel.
    ///
    /// - Parameter owner: The bus name of the program that joined it.
    public static func foreignChannel(of owner: String) -> DBusErrorReply {
        .accessDenied("\(foreignChannelWords) \(owner), and only that program may change it")
    }

    /// Apple's case name with a capital letter, `TransmissionNotFound`.
    public static func errorName(_ code: PTChannelError.Code) -> String { capitalized("\(code)") }

    private static func capitalized(_ name: String) -> String { name.prefix(1).uppercased() + name.dropFirst() }
}

extension PTChannelError {
    /// The channel error that a reply of the daemon stands for; nil for an error of any other name.
    ///
    /// - Parameters:
    ///   - name: The D-Bus error name.
    ///   - message: The words that came with it.
    public init?(busName name: String, message: String) {
        guard let code = Code.allCases.first(where: { name == PTTBus.errorPrefix + PTTBus.errorName($0) }) else {
            return nil
        }
        self.init(code, explanation: message)
    }
}

extension PTInstantiationError {
    /// The instantiation error that a reply of the daemon stands for; nil for an error of any other name.
    ///
    /// - Parameters:
    ///   - name: The D-Bus error name.
    ///   - message: The words that came with it.
    public init?(busName name: String, message: String) {
        guard let code = Code.allCases.first(where: { name == PTTBus.reply(PTInstantiationError($0)).name }) else {
            return nil
        }
        self.init(code, explanation: message)
    }
}
