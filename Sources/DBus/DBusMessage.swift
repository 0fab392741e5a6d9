// Messages: as they come in, and as they are handed to libdbus.
import MonotonicTime

/// A message that arrived.
public struct DBusMessage: Sendable {
    /// The four kinds of D-Bus messages.
    public enum Kind: Sendable {
        /// A call of a method of ours.
        case methodCall
        /// The answer to a call of ours.
        case methodReturn
        /// The answer to a call of ours that failed.
        case error
        /// A signal.
        case signal
    }

    /// What it is.
    public let kind: Kind
    /// The sender's number for it.
    public let serial: UInt32
    /// The number of the call that it answers; 0 for others.
    public let replySerial: UInt32
    /// The unique name of the sender, filled in by the bus and so not forged.
    public let sender: String?
    /// Whom it was sent to; nil for broadcasts.
    public let destination: String?
    /// The object.
    public let path: DBusObjectPath?
    /// The interface.
    public let interface: String?
    /// The method's or signal's name.
    public let member: String?
    /// The error's name, of an error.
    public let errorName: String?
    /// Whether the caller wants an answer.
    public let wantsReply: Bool
    /// The types of the arguments, as one signature.
    let signature: String
    /// The arguments. Empty while only the head has been read.
    public internal(set) var arguments: [DBusValue] = []
    /// When it was taken off the socket.
    public let receivedAt: Instant
}

/// A message to be sent, not yet checked.
struct OutgoingMessage: Sendable {
    enum Kind: Sendable {
        case call(destination: String, path: DBusObjectPath, interface: String, member: String)
        case signal(path: DBusObjectPath, interface: String, member: String, destination: String?)
        case reply(serial: UInt32, destination: String)
        case error(serial: UInt32, destination: String, name: String)
    }

    var kind: Kind
    var arguments: [DBusValue] = []
    var startsService = true

    func check() throws(DBusError) -> DBusSignature {
        switch kind {
        case .call(let destination, _, let interface, let member):
            try DBusName.checkBus(destination)
            try DBusName.checkInterface(interface)
            try DBusName.checkMember(member)
        case .signal(_, let interface, let member, let destination):
            try DBusName.checkInterface(interface)
            try DBusName.checkMember(member)
            if let destination { try DBusName.checkBus(destination) }
        case .reply(_, let destination): try DBusName.checkBus(destination)
        case .error(_, let destination, let name):
            try DBusName.checkBus(destination)
            try DBusName.checkError(name)
        }
        _ = try ValueCheck(arguments)
        return try DBusSignature(arguments.map(\.type.code).joined())
    }
}
