// A file descriptor that travels in a message and closes itself.
import Glibc
import Reactor

/// An owned file descriptor. It is closed when the last reference goes.
public final class DBusDescriptor: Hashable, Sendable, CustomStringConvertible {
    /// The descriptor's number. It stays this object's.
    public let number: Int32

    /// Takes over `descriptor`, to close it.
    public init(owning descriptor: Int32) { number = descriptor }

    /// A duplicate of `descriptor`, with close-on-exec set.
    /// - Throws: `SystemError` when the descriptor is bad or the process has none left.
    public init(duplicating descriptor: Int32) throws(SystemError) {
        number = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        guard number >= 0 else { throw SystemError("fcntl(F_DUPFD_CLOEXEC)") }
    }

    deinit {
        if number >= 0 { close(number) }
    }

    /// Two are equal when they are the same object: numbers are reused, files have no identity here.
    public static func == (lhs: DBusDescriptor, rhs: DBusDescriptor) -> Bool { lhs === rhs }
    /// Hashes the identity.
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
    /// The number, for logs.
    public var description: String { "fd \(number)" }
}
