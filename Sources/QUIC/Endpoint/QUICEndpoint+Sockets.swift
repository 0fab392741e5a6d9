// An endpoint's sockets: the one that it was bound with, and those of connections that move.
import CLinux
import Glibc
import Reactor

extension QUICEndpoint {
    static func socketErrors<T>(
        _ during: String, _ body: () throws(SystemError) -> T
    ) throws(QUICError) -> T {
        do { return try body() } catch { throw QUICError.socket(error, during: during) }
    }

    func watched(_ socket: UDPSocket) throws(QUICError) -> UDPSocket {
        socket.watch = try Self.socketErrors("watching UDP \(socket.localAddress)") { () throws(SystemError) in
            try loop.watch(socket.descriptor, for: .readable) { [self, unowned socket] readiness in
                turn {
                    if readiness.contains(.writable) {
                        socket.watch?.update(pauseTimer == nil ? .readable : [])
                        if sender.blocked === socket { sender.resume() }
                    }
                    if readiness.contains(.error) { readErrors(of: socket) }
                    if mayReadNow() { receive(from: socket) }
                }
            }
        }
        return socket
    }

    /// How many errors are read in a turn; the loop comes back for the others.
    private static let errorsPerTurn = 64

    /// Tells connections whose host says that nobody has the port (RFC 1122, 4.1.3.1). Other errors may be temporary.
    private func readErrors(of socket: UDPSocket) {
        for _ in 0..<Self.errorsPerTurn {
            guard let error = socket.nextError() else { return }
            guard error.code == ECONNREFUSED, let destination = error.destination else { continue }
            for connection in connections.values
            where connection.remoteAddress == destination && connection.sends(error.packet) {
                connection.post(.refused)
            }
        }
    }

    /// A further socket, for a connection that moves.
    func openSocket(_ address: SocketAddress, like old: UDPSocket) throws(QUICError) -> UDPSocket {
        let address = address.isUnspecified && old.family == AF_INET ? address.asIPv4 : address
        let new = try UDPSocket(
            address, reusePort: reusePort, bufferSize: configuration.socketBuffer, reportsErrors: old.reportsErrors)
        guard new.family == old.family else {
            throw QUICError.invalidSetting("\(address) is of another address family than the connection")
        }
        sockets.append(try watched(new))
        return new
    }

    func socket(at local: SocketAddress) -> UDPSocket? { sockets.first { $0.serves(local) } }

    /// Closes the sockets that were opened for moves and that no connection is on any more; the first one stays.
    func closeUnusedSockets() {
        guard sockets.count > 1 else { return }
        for socket in sockets.dropFirst()
        where !connections.values.contains(where: { $0.socket === socket || $0.migration?.target === socket }) {
            sender.abandon(socket)
            socket.watch?.cancel()
            sockets.removeAll { $0 === socket }
        }
    }
}
