// What a client needs of its connection to a relay, over whichever path it leads.
import MonotonicTime
import QUIC
import RelayProtocol

/// The two kinds of connection to a relay.
enum LinkKind: Sendable, Hashable, CaseIterable {
    /// QUIC over UDP.
    case quic
    /// A WebSocket over TLS, where UDP is blocked (docs/relay-protocol.md, section 21).
    case tls
}

/// One connection to a relay, from the attempt on. It tells its client of `connected`, of what comes, and of its end; all
/// use is on the client's loop.
protocol RelayTransport: AnyObject, Sendable {
    var kind: LinkKind { get }
    /// When something of the relay came last.
    var lastHeard: Instant? { get }
    /// The smoothed round-trip time; nil: not measured yet.
    var roundTripTime: Duration? { get }
    /// After how much silence the relay is asked for a sign of life.
    var keepAlive: Duration { get set }

    /// Sends a control message; false when the relay has not taken the ones before it.
    func send(_ message: ClientMessage) -> Bool
    /// Sends a media packet. Its fate is told later under the returned number; `nil` when it is not accepted.
    func send(_ datagram: [UInt8]) -> UInt64?
    /// Sends a message that arrives soon or never, where there is such a way.
    func send(loosely message: ClientMessage)
    /// Sends a packet again, as a control message; false when too many wait.
    func sendRepair(_ packet: [UInt8]) -> Bool
    /// This machine's network has changed, or the machine slept.
    func networkChanged(_ news: NetworkChanges.News)
    /// Closes it. No event follows.
    func close(_ code: RelayCloseCode)
}

extension RelayTransport {
    /// Whether nothing is lost on the way, so that nothing has to be sent again.
    var isReliable: Bool { kind == .tls }
}
