// Several endpoints on one port, each with its own thread: the kernel passes every packet to the endpoint that has its
// connection.
import CLinux
import Glibc
import Reactor

extension QUICEndpoint {
    /// Where packets have the connection id, which begins with the worker's number (RFC 9000, sections 17.2 and 17.3).
    private static let identifierOffsets: (short: UInt32, long: UInt32) = (1, 6)

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
    /// go as `strangers` says. There are `endpoints` of them. Called on any of the endpoints, once all are bound, and again to change it.
    ///
    /// - Throws: `QUICError.socket` where the kernel takes no such program; `.closed`.
    public func steerByConnectionID(of endpoints: Int, strangers: StrangerSteering = .spread) throws(QUICError) {
        loop.checkIsolated()
        guard let socket = sockets.first else { throw QUICError.closed }
        let offsets = Self.identifierOffsets
        let otherwise = strangers == .spread ? UInt32.max : 0
        guard
            ptt_steer_by_number(socket.descriptor, offsets.short, offsets.long, UInt32(endpoints), otherwise) == 0
        else {
            throw QUICError.socket(
                SystemError("SO_ATTACH_REUSEPORT_CBPF"), during: "sharing UDP \(localAddress)")
        }
    }
}
