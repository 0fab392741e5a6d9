// The errors of org.pttd by D-Bus error names, both ways.
import DBus
import PushToTalkCore
import Vocabulary

/// An error that travels by a D-Bus error name of its own for each code.
public protocol BusError: Error {
    /// Its codes.
    associatedtype Code: CaseIterable
    /// The code that programs decide by.
    var code: Code { get }
    /// What happened and what to do about it, in words for a person.
    var explanation: String { get }
    /// An error with `code`, explained by `explanation`.
    init(_ code: Code, explanation: String?)
    /// The D-Bus error name of a code.
    static func busName(of code: Code) -> String
}

extension BusError {
    /// `org.pttd.Error.` and the case's name with a capital letter, `TransmissionNotFound`.
    public static func busName(of code: Code) -> String {
        let name = "\(code)"
        return PTTBus.errorPrefix + name.prefix(1).uppercased() + name.dropFirst()
    }

    /// The error that a reply of the daemon stands for; nil for an error of any other name.
    ///
    /// - Parameters:
    ///   - name: The D-Bus error name.
    ///   - message: The words that came with it.
    public init?(busName name: String, message: String) {
        guard let code = Code.allCases.first(where: { Self.busName(of: $0) == name }) else { return nil }
        self.init(code, explanation: message)
    }
}

extension PTChannelError: BusError {}

extension PTInstantiationError: BusError {}

extension AccessoryError: BusError {
    /// `description`.
    public var explanation: String { description }

    /// An error with `code`, described by `explanation`.
    public init(_ code: Code, explanation: String?) { self.init(code, explanation ?? "") }

    /// `org.pttd.Error.Accessory.` and the code's raw value; D-Bus's own name for `.invalid`.
    public static func busName(of code: Code) -> String {
        code == .invalid ? DBusErrorReply.invalidArguments("").name : PTTBus.errorPrefix + "Accessory." + code.rawValue
    }
}

extension PTTBus {
    /// The prefix of every error name of `org.pttd`.
    public static let errorPrefix = "org.pttd.Error."

    /// How the words of an `AccessDenied` begin that comes from the daemon, and not from the bus's policy.
    static let foreignChannelWords = "the channel belongs to"

    /// The error reply for an error.
    public static func reply<Failure: BusError>(_ error: Failure) -> DBusErrorReply {
        DBusErrorReply(Failure.busName(of: error.code), error.explanation)
    }

    /// The error reply for a change of another program's channel.
    ///
    /// - Parameter owner: The bus name of the program that joined it.
    public static func foreignChannel(of owner: String) -> DBusErrorReply {
        .accessDenied("\(foreignChannelWords) \(owner), and only that program may change it")
    }
}
