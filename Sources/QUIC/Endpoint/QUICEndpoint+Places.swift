// The addresses of a server's peers, so that a restarted server can tell them that their connections are gone.
import CGnuTLS
import CLinux
import CNgtcp2
import Cryptography
import Reactor

/// Where the peer of a server's connection was, and by which of the server's ids it knows the connection.
///
/// Kept over a crash, it is enough for a stateless reset (RFC 9000, section 10.3) to an idle peer, which sends nothing
/// that could be answered.
public struct QUICPeerPlace: Hashable, Sendable {
    let id: [UInt8]
    let remote: SocketAddress
    /// The server's own address, where its socket has several.
    let local: SocketAddress?

    /// One line of text without its end: the id, the peer's address and port, and the server's address or `-`.
    public var text: String {
        "\(Hexadecimal.encode(id)) \(remote.host) \(remote.port) \(local?.host ?? "-")"
    }
}

extension QUICPeerPlace {
    /// Parses `text`; nil if it is not such a line.
    public init?(text: Substring) {
        let parts = text.split(separator: " ", omittingEmptySubsequences: false)
        guard parts.count == 4, parts[0].utf8.count == 2 * ConnectionID.ownLength,
            let id = Hexadecimal.decode(parts[0]), let port = UInt16(parts[2]), port > 0,
            let remote = SocketAddress(String(parts[1]), port: port), !remote.isUnspecified
        else { return nil }
        var local: SocketAddress?
        if parts[3] != "-" {
            guard let address = SocketAddress(String(parts[3]), port: 0) else { return nil }
            local = address
        }
        self.init(id: id, remote: remote, local: local)
    }
}

extension QUICConnection {
    /// A server's: where the peer is, and by which id it sends; nil while that is not known.
    public var place: QUICPeerPlace? {
        guard isServer, let destination else { return nil }
        return QUICPeerPlace(
            id: destination.bytes, remote: remoteAddress,
            local: local.endIfAny?.value.flatMap { $0.isUnspecified ? nil : $0 })
    }

    /// A packet came to `id`.
    func noteDestination(_ id: ConnectionID, _ packet: UnsafeRawBufferPointer) {
        guard isServer, destination?.id != id else { return }
        destination = (id, Array(packet[1..<(1 + ConnectionID.ownLength)]))
    }
}

extension QUICEndpoint {
    /// Tells the peer at `place` that its connection is gone, if it still has that connection; any other peer ignores
    /// it. It is one packet of 40 bytes, which may get lost. It has no effect if the endpoint's keys differ from those
    /// of the endpoint that had the connection.
    public func sendReset(to place: QUICPeerPlace) {
        loop.checkIsolated()
        guard !isClosed, let socket = sockets.first else { return }
        turn { reset(place, on: socket) }
    }

    private func reset(_ place: QUICPeerPlace, on socket: UDPSocket) {
        let remote = StoredEnd(place.remote, family: socket.family)
        let local = place.local.map { StoredEnd($0, family: socket.family) }
        var id = ngtcp2_cid()
        ngtcp2_cid_init(&id, place.id, place.id.count)
        guard remote.length > 0, let room = sender.reserve(), let base = room.baseAddress else { return }
        let length = writeReset(for: &id, byteCount: Self.resetLength, into: base.assumingMemoryBound(to: UInt8.self))
        guard length > 0 else { return }
        withExtendedLifetime((remote, local)) {
            sender.commit(length, on: socket, from: local?.endIfAny, to: remote.end)
        }
        statistics.resetsSent += 1
    }
}
