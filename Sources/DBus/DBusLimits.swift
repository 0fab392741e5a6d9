// Every limit of this module, in one place.

/// The bounds that a connection keeps. Beyond them an operation fails with `DBusError.limitReached`; nothing grows.
public enum DBusLimits {
    /// Longest message that is sent, or whose arguments are read, in bytes. A longer one is taken off the bus and refused.
    public static let messageBytes = 4 * 1024 * 1024
    /// Values in the arguments of one message; a value of one byte on the wire takes about a hundred in memory.
    public static let messageValues = 262_144
    /// Longest message that is taken off the bus, in bytes: the longest that D-Bus has (D-Bus specification, "Message Format").
    /// libdbus ends the connection when a longer one arrives, so the bound is the bus's own: 32 MiB on a system bus.
    public static let busMessageBytes = 128 * 1024 * 1024
    /// Bytes received and not yet handled, beyond which the socket is not read.
    public static let receivedBytes = 8 * 1024 * 1024
    /// Descriptors in one message that is sent.
    public static let messageDescriptors = 16
    /// Descriptors in one message that is taken off the bus: as many as the kernel passes at a time (unix(7), SCM_MAX_FD). libdbus ends
    /// the connection when more arrive.
    public static let busMessageDescriptors = 253
    /// Descriptors received and not yet handled, beyond which the socket is not read: the process has few of them.
    public static let receivedDescriptors = 64
    /// Bytes waiting to be written, beyond which nothing more is accepted for sending.
    public static let outgoingBytes = 8 * 1024 * 1024
    /// Calls of ours that wait for an answer.
    public static let pendingCalls = 1024
    /// Calls from others whose handlers are running. The `endings` of `DBusCallBound` are taken beyond it.
    public static let runningHandlers = 256
    /// Those of one caller.
    public static let runningHandlersPerCaller = 128
    /// Signal matches of one connection. A dbus-daemon allows 512 on the system bus.
    public static let matches = 480
    /// Objects exported by one connection.
    public static let exportedObjects = 4096
    /// Longest signature (D-Bus specification, "Signatures").
    public static let signatureBytes = 255
    /// Deepest nesting of arrays, and of structures, in one signature (D-Bus specification).
    public static let containerDepth = 32
    /// Deepest nesting of containers in a value, variants included (D-Bus specification).
    public static let valueDepth = 64
    /// Longest bus, interface, member or error name (D-Bus specification).
    public static let nameBytes = 255
    /// Messages handled before other descriptors of the loop get their turn.
    static let messagesPerTurn = 64
}
