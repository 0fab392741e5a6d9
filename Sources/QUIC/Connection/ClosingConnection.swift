// The remains of an ended connection: for a moment it answers packets that are still in flight.
import CGnuTLS
import CLinux
import CNgtcp2
import Reactor

/// The closing and draining periods of RFC 9000, section 10.2, without the connection's memory.
final class ClosingConnection {
    let ids: [ConnectionID]
    private let packet: [UInt8]
    private let socket: UDPSocket
    private let remote: StoredEnd
    private let local: StoredEnd
    private var heard = 0
    let deadline = Deadline()

    /// - Parameter packet: The CONNECTION_CLOSE packet; empty when the peer already knows (draining).
    init(of connection: QUICConnection, packet: [UInt8], whenOver: @escaping (ClosingConnection) -> Void) {
        ids = connection.ids
        self.packet = packet
        socket = connection.socket
        (remote, local) = (connection.remote, connection.local)
        deadline.handler = { [unowned self] in whenOver(self) }
    }

    /// Sends the packet, or sends it again.
    func say(through sender: PacketSender) {
        packet.withUnsafeBytes { sender.send($0, on: socket, from: local.endIfAny, to: remote.end) }
    }

    /// A packet arrived after the end. The answer is repeated for the 1st, 2nd, 4th, 8th… such packet.
    func packetArrived(_ sender: PacketSender) {
        heard += 1
        if heard & (heard - 1) == 0 { say(through: sender) }
    }
}
