// The remains of an ended connection: for a moment it answers packets that are still in flight.
import CGnuTLS
import CLinux
import CNgtcp2
import Glibc
import Reactor

/// The closing and draining periods of RFC 9000, section 10.2, without the connection's memory.
final class ClosingConnection {
    let ids: [ConnectionID]
    private let packet: [UInt8]
    private let socket: UDPSocket
    private var remote: sockaddr_storage
    private var local: sockaddr_storage
    private let lengths: (remote: socklen_t, local: socklen_t)
    private var heard = 0
    let deadline = Deadline()

    /// - Parameter packet: The CONNECTION_CLOSE packet; empty when the peer already knows (draining).
    init(of connection: QUICConnection, packet: [UInt8], whenOver: @escaping (ClosingConnection) -> Void) {
        ids = connection.ids
        self.packet = packet
        socket = connection.socket
        lengths = (connection.remoteLength, connection.localLength)
        local = connection.localStorage.pointee
        remote = connection.remoteStorage.pointee
        deadline.handler = { [unowned self] in whenOver(self) }
    }

    /// Sends the packet, or sends it again.
    func say(through sender: PacketSender) {
        let lengths = lengths
        withUnsafeMutableBytes(of: &remote) { remote in
            withUnsafeMutableBytes(of: &local) { local in
                guard let to = remote.baseAddress, let from = local.baseAddress else { return }
                packet.withUnsafeBytes {
                    sender.send(
                        $0, on: socket,
                        from: lengths.local > 0 ? NetworkEnd(address: from, length: lengths.local) : nil,
                        to: NetworkEnd(address: to, length: lengths.remote))
                }
            }
        }
    }

    /// A packet arrived after the end. The answer is repeated for the 1st, 2nd, 4th, 8th… such packet.
    func packetArrived(_ sender: PacketSender) {
        heard += 1
        if heard & (heard - 1) == 0 { say(through: sender) }
    }
}
