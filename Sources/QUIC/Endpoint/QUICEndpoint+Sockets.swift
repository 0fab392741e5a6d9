// An endpoint's sockets: the one that it was bound with and those of connections that move, whether they are read, and how several
// endpoints share a port.
import CGnuTLS
import CLinux
import CNgtcp2
import Glibc
import MonotonicTime
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

    // MARK: A pause of reading

    /// How long nothing is read before the owner is asked again.
    private static let pause: Duration = .milliseconds(20)

    /// Waiting packets stay in the kernel unacknowledged, as if the whole process had stopped. Sending continues.
    ///
    /// - Returns: Whether it may read now.
    func mayReadNow() -> Bool {
        guard pauseTimer == nil else { return false }
        guard let mayRead, !mayRead() else { return true }
        watchSockets(reading: false)
        pauseTimer = loop.schedule(after: Self.pause) { [weak self] in
            guard let self else { return }
            pauseTimer = nil
            if !isClosed, mayReadNow() { watchSockets(reading: true) }
        }
        return false
    }

    private func watchSockets(reading: Bool) {
        for socket in sockets { socket.watch?.update(interest(in: socket, reading: reading)) }
    }

    /// What is waited for at a socket.
    func interest(in socket: UDPSocket, reading: Bool) -> EventLoop.Readiness {
        var interest: EventLoop.Readiness = reading ? .readable : []
        if sender.blocked === socket { interest.insert(.writable) }
        return interest
    }

    // MARK: Several endpoints on one port

    /// Where packets have the connection id, which begins with the worker's number (RFC 9000, sections 17.2 and 17.3).
    private static let identifierOffsets: (short: UInt32, long: UInt32) = (1, 6)
    /// Where RTP has its source (RFC 3550, section 5.1).
    private static let sourceOffset: UInt32 = 8

    /// Lets further endpoints of the same user bind this one's address, with `reusePort`. This one was bound
    /// exclusively, so that a second server learns that its port is in use.
    ///
    /// - Throws: `QUICError.socket`, `.closed`.
    public func shareAddress() throws(QUICError) {
        loop.checkIsolated()
        guard let socket = sockets.first else { throw QUICError.closed }
        guard UDPSocket.setOption(socket.descriptor, SOL_SOCKET, SO_REUSEPORT) else {
            throw QUICError.socket(SystemError("SO_REUSEPORT"), during: "sharing UDP \(localAddress)")
        }
    }

    /// Where the packets of new connections go, whose ids name no worker.
    public enum StrangerSteering: Sendable {
        /// To an endpoint by the hash of both addresses, to the same one each time.
        case spread
        /// To the first endpoint.
        case first
    }

    /// Has the kernel give each packet to the endpoint that its connection id names by `QUICServerOptions.worker`: the first that was
    /// bound to the address is 0, the next 1, and so on. A client's first packets carry an id of its own choice, which names none: they
    /// go as `strangers` says. A foreign packet is RTP, and goes to the remainder of its source's number (SSRC) divided by the number of
    /// endpoints. There are `endpoints` of them. Called on any of the endpoints, once all are bound, and again to change it.
    ///
    /// - Throws: `QUICError.socket` where the kernel takes no such program; `.closed`.
    public func steerByConnectionID(of endpoints: Int, strangers: StrangerSteering = .spread) throws(QUICError) {
        loop.checkIsolated()
        guard let socket = sockets.first else { throw QUICError.closed }
        let offsets = Self.identifierOffsets
        let otherwise = strangers == .spread ? UInt32.max : 0
        guard
            ptt_steer_by_number(
                socket.descriptor, offsets.short, offsets.long, Self.sourceOffset, UInt32(endpoints), otherwise) == 0
        else {
            throw QUICError.socket(
                SystemError("SO_ATTACH_REUSEPORT_CBPF"), during: "sharing UDP \(localAddress)")
        }
    }
}
