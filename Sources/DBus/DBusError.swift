// The errors of D-Bus, as one type.

/// A failure of a D-Bus operation.
public enum DBusError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The bus cannot be reached: its address, and why.
    case connectFailed(address: String, reason: String)
    /// There is no connection to the bus (any more). Calls in flight end with this when the bus goes away.
    case disconnected
    /// No answer came within the call's time-out. The text names the call.
    case timedOut(String)
    /// The task that awaited the call was cancelled.
    case cancelled
    /// The other side answered with an error: its D-Bus error name and its words.
    case remote(name: String, message: String)
    /// The caller passed an invalid name, path, signature or value.
    case invalid(String)
    /// A value is not of the type that was asked for; both as D-Bus signatures.
    case unexpectedType(expected: String, got: String)
    /// A bound of this library was reached; the text names it.
    case limitReached(String)
    /// The bus did not give us the name because another connection owns it.
    case nameTaken(String)

    /// The D-Bus error name, where the other side sent one.
    public var remoteName: String? {
        if case .remote(let name, _) = self { return name }
        return nil
    }

    /// What happened, in a sentence for a log or a terminal.
    public var description: String {
        switch self {
        case .connectFailed(let address, let reason):
            return "cannot connect to the bus at '\(address)': \(reason)"
        case .disconnected: return "not connected to the bus"
        case .timedOut(let call): return "no answer to \(call) in time"
        case .cancelled: return "the call was cancelled"
        case .remote(let name, let message): return message.isEmpty ? name : "\(name): \(message)"
        case .invalid(let what): return "invalid: \(what)"
        case .unexpectedType(let expected, let got):
            return "expected D-Bus type '\(expected)', got '\(got)'"
        case .limitReached(let what): return "limit reached: \(what)"
        case .nameTaken(let name): return "the bus name \(name) belongs to another process"
        }
    }
}

/// An error for a caller of an exported method: thrown by a handler, sent by its D-Bus error name.
public struct DBusErrorReply: Error, Hashable, Sendable, CustomStringConvertible {
    /// The D-Bus error name, such as `org.freedesktop.DBus.Error.InvalidArgs`.
    public let name: String
    /// Words for the caller.
    public let message: String

    /// An error reply. A name that is no valid D-Bus error name is sent as `org.freedesktop.DBus.Error.Failed`.
    public init(_ name: String, _ message: String) {
        self.name = name
        self.message = message
    }

    /// The error name and its words.
    public var description: String { "\(name): \(message)" }

    static let namespace = "org.freedesktop.DBus.Error"
    /// The arguments do not fit the method.
    public static func invalidArguments(_ message: String) -> Self { .init("\(namespace).InvalidArgs", message) }
    /// Something failed that has no name of its own.
    public static func failed(_ message: String) -> Self { .init("\(namespace).Failed", message) }
    /// The caller may not do this.
    public static func accessDenied(_ message: String) -> Self { .init("\(namespace).AccessDenied", message) }
    /// There is no such method.
    public static func unknownMethod(_ message: String) -> Self { .init("\(namespace).UnknownMethod", message) }
    /// There is no object at that path.
    public static func unknownObject(_ message: String) -> Self { .init("\(namespace).UnknownObject", message) }
    /// The object has no such interface.
    public static func unknownInterface(_ message: String) -> Self { .init("\(namespace).UnknownInterface", message) }
    /// The interface has no such property.
    public static func unknownProperty(_ message: String) -> Self { .init("\(namespace).UnknownProperty", message) }
    /// The property cannot be written.
    public static func propertyReadOnly(_ message: String) -> Self { .init("\(namespace).PropertyReadOnly", message) }
    /// A bound of this process was reached.
    public static func limitsExceeded(_ message: String) -> Self { .init("\(namespace).LimitsExceeded", message) }
}
