// The errors of org.pttd's accessory interfaces, by D-Bus error names, both ways.
import DBus
import Vocabulary

extension AccessoryError {
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
        DBusErrorReply(errorName(error.code), error.description)
    }
}

extension DaemonClientError {
    /// The accessory error that the daemon answered; nil when it is another kind of failure.
    public var accessoryError: AccessoryError? {
        guard case .bus(.remote(let name, let message)) = self else { return nil }
        return AccessoryError(busName: name, message: message)
    }
}
