// What a relay's shards and carriers tell each other, and the numbers of connections.
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol
import Synchronization

/// What a carrier has to do.
enum RelayWorkerOrder: Sendable {
    /// An action of a shard's rules, for this carrier's connections.
    case action(RelayCore.Action)
    /// The rules have taken so many bytes of a connection's control stream: its peer may send as many more.
    case returnCredit(ConnectionID, bytes: Int)
    /// Count connections for the next query; for those over TLS.
    case count

    /// Whether it is better lost than kept when too much waits already: packets come too late then, those that were asked for are
    /// asked for again, and who wants a count asks again. What changes who is a member, who talks and who listens is never lost.
    var mayBeLost: Bool {
        switch self {
        case .action(.forward), .action(.answerRepair), .action(.answerBurst), .count: true
        case .action, .returnCredit: false
        }
    }
}

/// What a carrier's connections do.
enum RelayWorkerReport: Sendable {
    /// Something for the rules.
    case event(RelayCore.Event)
    /// A connection is greeted or connected, or moves here from another shard. Its media go to the path; nil while its
    /// handshake is not complete, and over TLS.
    case announced(ConnectionID, RelayCore.Event, FanOutPath?)
    /// A connection's media go to another path.
    case moved(ConnectionID, FanOutPath)
    /// A media packet, read at `arrived`.
    case media(MediaPacketHeader, [UInt8], from: ConnectionID, arrived: Instant)
    /// A request for lost packets that came in a datagram.
    case repairRequest(ClientMessage, from: ConnectionID)
    /// The answer of `bytes` bytes to a request for a burst cannot be sent now.
    case burstNotTaken(ConnectionID, BurstRequestID, bytes: Int)
    /// The messages before this took so many bytes of a connection's control stream.
    case read(ConnectionID, bytes: Int)
    /// A media packet that cannot be read.
    case malformedMedia(from: ConnectionID)

    /// Whether it is better lost than kept when too much waits already: what came in datagrams, which no window of the transport
    /// holds back and whose senders count on losses.
    var mayBeLost: Bool {
        switch self {
        case .media, .repairRequest, .malformedMedia: true
        case .event, .announced, .moved, .burstNotTaken, .read: false
        }
    }
}

/// Numbers the connections of all carriers in order. Each number identifies the carrier.
final class ConnectionNumbers: Sendable {
    private let carriers: UInt64
    private let last = Atomic<UInt64>(0)

    init(carriers: Int) { self.carriers = UInt64(carriers) }

    /// A number for a connection of that carrier.
    func next(of carrier: Int) -> ConnectionID {
        let order = last.add(1, ordering: .relaxed).newValue
        return ConnectionID(number: order * carriers + UInt64(carrier))
    }

    /// The carrier that has a connection.
    func carrier(of id: ConnectionID) -> Int { Int(id.number % carriers) }
}

/// What a carrier and the shard on its thread count, for the relay to read on another thread.
struct RelayWorkerTally: Sendable {
    /// Of the relay's: the packets out and not sent, which could not wait for a shard or a carrier among them, the stray packets, and the
    /// requests for lost packets that were refused.
    var counters = RelayCounters()
    var forwarding = LatencyHistogram()
    var connections = 0
    /// Handshakes of links over TLS that did not succeed.
    var webHandshakesFailed = 0
    /// Copies that a link over TLS did not take in time.
    var mediaTooLate = 0
    /// What came to the port; nil: nothing was asked, or it is a carrier without one.
    var transport: QUICEndpoint.Statistics?
}

/// The one message that a client may send in a datagram, without a length before it.
enum RepairDatagram {
    /// RTP begins with 128 or more (RFC 9443), this message's protobuf field with less.
    private static let rtpFrom: UInt8 = 128

    /// The request in `datagram` of at most `limit` bytes; nil: it is none, but media or rubbish.
    static func request(in datagram: [UInt8], limit: Int) -> ClientMessage? {
        guard let first = datagram.first, first < rtpFrom,
            datagram.count <= limit,
            let message = try? ClientMessage(parsing: datagram), case .repairRequest = message
        else { return nil }
        return message
    }
}
