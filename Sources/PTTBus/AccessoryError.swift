// The errors of org.pttd's accessory interfaces, by D-Bus error names, both ways.
import DBus

/// Why something about an accessory was not done.
public struct AccessoryError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The kind of it; the raw value is the end of the D-Bus error name.
    public enum Code: String, Hashable, Sendable, CaseIterable {
        /// There is no such device or accessory, or it does not answer.
        case notFound = "NotFound"
        /// It is not allowed, or the device cannot be a talk button.
        case refused = "Refused"
        /// No profile fits the device.
        case notRecognised = "NotRecognised"
        /// The device refused to be paired.
        case pairingFailed = "PairingFailed"
        /// The device could not be connected, or was lost.
        case notConnected = "NotConnected"
        /// It is an accessory already, or another has the name.
        case alreadyConfigured = "AlreadyConfigured"
        /// Somebody else does it, or too much is under way.
        case busy = "Busy"
        /// It could not be written, and so would not outlast a restart.
        case notSaved = "NotSaved"
        /// What was given means nothing here; `org.freedesktop.DBus.Error.InvalidArgs` on the bus.
        case invalid = "InvalidArgs"
    }

    /// The kind of it.
    public var code: Code
    /// What happened and what to do, for people.
    public var explanation: String

    /// An error.
    public init(_ code: Code, _ explanation: String) {
        self.code = code
        self.explanation = explanation
    }

    /// What happened and what to do.
    public var description: String { explanation }

    /// The error that a reply of the daemon stands for; nil for an error of any other name.
    ///
    /// - Parameters:
    ///   - name: The D-Bus error name.
    ///   - message: The words that came with it.
    public init?(busName name: String, message: String) {
        guard let code = Code.allCases.first(where: { name == PTTBus.errorName($0) }) else { return nil }
        self.init(code, message)
    }
}

extension PTTBus {
    /// The D-Bus error name of an accessory error.
    public static func errorName(_ code: AccessoryError.Code) -> String {
        code == .invalid ? DBusErrorReply.invalidArguments("").name : errorPrefix + "Accessory." + code.rawValue
    }

    /// The error reply for an accessory error.
    public static func reply(_ error: AccessoryError) -> DBusErrorReply {
        DBusErrorReply(errorName(error.code), error.explanation)
    }
}

extension DaemonClientError {
    /// The accessory error that the daemon answered; nil when it is another kind of failure.
    public var accessoryError: AccessoryError? {
        guard case .bus(.remote(let name, let message)) = self else { return nil }
        return AccessoryError(busName: name, message: message)
    }
}
