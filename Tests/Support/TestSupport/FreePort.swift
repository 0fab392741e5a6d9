// Ports for programs that have to be told one.
import Glibc

/// No port can be had.
public struct NoFreePort: Error {
    /// errno.
    public let code: Int32
}

/// A TCP port of 127.0.0.1 that nobody has now.
public func freePort() throws -> UInt16 { try freePort(SOCK_STREAM, on: 0x7F00_0001) }

/// A UDP port that nothing uses now, on any address of IPv4.
public func freeDatagramPort() throws -> UInt16 { try freePort(SOCK_DGRAM, on: 0) }

private func freePort(_ kind: __socket_type, on host: UInt32) throws -> UInt16 {
    let descriptor = socket(AF_INET, Int32(kind.rawValue), 0)
    defer { close(descriptor) }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = host.bigEndian
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let isBound = withUnsafeMutablePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            bind(descriptor, $0, length) == 0 && getsockname(descriptor, $0, &length) == 0
        }
    }
    guard isBound else { throw NoFreePort(code: errno) }
    return UInt16(bigEndian: address.sin_port)
}
