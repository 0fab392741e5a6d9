// The messages between a relay's rules and its workers, and the numbers of connections.
import MonotonicTime
import Reactor
import RelayProtocol
import Synchronization

/// What a worker has to do.
enum RelayWorkerOrder: Sendable {
    /// An action of the relay's rules, for this worker's connections.
    case action(RelayCore.Action)
    /// The rules have taken so many bytes of a connection's control stream: its peer may send as many more.
    case returnCredit(ConnectionID, bytes: Int)
    /// Count connections and packets for the next query.
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

/// Who has connections of a relay, and does what its rules say.
protocol RelayCarrier: AnyObject {
    /// What is counted; read on any thread.
    var tally: Mutex<RelayWorkerTally> { get }
    /// Has an order carried out. False when it was dropped, which is allowed only where `mayBeLost` says so.
    func take(_ order: RelayWorkerOrder) -> Bool
}

/// What a worker's connections do.
enum RelayWorkerReport: Sendable {
    /// Something for the rules.
    case event(RelayCore.Event)
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
        case .event, .burstNotTaken, .read: false
        }
    }
}

/// Numbers the connections of all workers in order. Each number identifies the worker.
final class ConnectionNumbers: Sendable {
    private let workers: UInt64
    private let last = Atomic<UInt64>(0)

    init(workers: Int) { self.workers = UInt64(workers) }

    /// A number for a connection of that worker.
    func next(of worker: Int) -> ConnectionID {
        let order = last.add(1, ordering: .relaxed).newValue
        return ConnectionID(number: order * workers + UInt64(worker))
    }

    /// The worker that has a connection.
    func worker(of id: ConnectionID) -> Int { Int(id.number % workers) }
}

/// What a worker counts, for its relay to read on another thread.
struct RelayWorkerTally: Sendable {
    var packetsOut = 0
    var packetsNotSent = 0
    var strayPackets = 0
    var repairsRefused = 0
    /// Media packets that could not wait for the rules, or for the worker.
    var mediaDropped = 0
    var forwarding = LatencyHistogram()
    var connections = 0
    /// Handshakes of links over TLS that did not succeed.
    var webHandshakesFailed = 0
    /// Copies that a link over TLS did not take in time.
    var mediaTooLate = 0
    var transport = RelayStatistics.Transport()
}
