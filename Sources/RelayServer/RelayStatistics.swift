// A relay's statistics for its operator, all of one instant, and what they are counted with.
import MonotonicTime
import QUIC
import RelayProtocol

/// A relay that runs, seen from outside.
public struct RelayStatistics: Sendable, Equatable {
    /// How long it has run.
    public var uptime: Duration
    /// Connections, those in handshake included.
    public var connections: Int
    /// What the rules counted.
    public var counters: RelayCounters
    /// What the transport counted.
    public var transport: Transport
    /// From the turn in which a media packet was read until its last copy was with the kernel.
    public var forwarding: LatencyHistogram
    /// Live push tokens.
    public var pushTokens: Int
    /// Whether it waits for the end of what is being said, to go down then.
    public var isDraining: Bool
    /// The channels, in the order they came.
    public var channels: [Channel]
    /// The links over TLS; nil where none are taken.
    public var web: Web?
    /// What the bursts that are kept take in memory.
    public var keptBytes = 0

    /// The links over TLS.
    public struct Web: Sendable, Equatable {
        /// Those that are open, pending handshakes included.
        public var connections = 0
        /// Handshakes inside TLS that did not succeed.
        public var handshakesFailed = 0
        /// Copies of media packets that waited for too long and were dropped.
        public var mediaTooLate = 0

        /// Nothing counted.
        public init() {}
    }

    /// What came to the port.
    public struct Transport: Sendable, Equatable {
        /// Packets that came from the network.
        public var packetsReceived = 0
        /// Packets that could not be read.
        public var malformedPackets = 0
        /// Packets for no connection.
        public var strayPackets = 0
        /// Connections accepted.
        public var accepted = 0
        /// Handshakes that did not succeed.
        public var handshakesFailed = 0
        /// Beginnings of connections beyond the bounds.
        public var refusedForLoad = 0
        /// Clients that had to prove their address by a Retry.
        public var retriesSent = 0

        mutating func add(_ other: QUICEndpoint.Statistics) {
            packetsReceived += other.packetsReceived
            malformedPackets += other.malformedPackets
            strayPackets += other.strayPackets
            accepted += other.accepted
            handshakesFailed += other.handshakesFailed
            refusedForLoad += other.refusedForLoad
            retriesSent += other.retriesSent
        }
    }

    /// One channel.
    public struct Channel: Sendable, Equatable {
        /// Its name.
        public var name: DisplayName
        /// Its identifier.
        public var id: ChannelID
        /// The members that are connected, oldest connection first.
        public var members: [Member]
        /// Requests that wait for the floor.
        public var waiting: Int
        /// What was counted.
        public var counters: RelayChannelCounters
    }

    /// One member that is connected.
    public struct Member: Sendable, Equatable {
        /// Who it is.
        public var id: MemberID
        /// What it calls itself.
        public var name: DisplayName
        /// Whether it has the floor.
        public var isTalking: Bool
        /// Whether its media were stopped, because it does not report.
        public var isSilent: Bool
    }
}

/// Counters of one channel since the relay's start.
public struct RelayChannelCounters: Sendable, Equatable {
    /// Floors granted.
    public internal(set) var grants = 0
    /// Requests that had to wait.
    public internal(set) var queued = 0
    /// Bursts that ended.
    public internal(set) var bursts = 0
    /// Packets of these that were forwarded, once each.
    public internal(set) var packets = 0
    /// Packets of these that did not reach the relay.
    public internal(set) var packetsLostUp = 0
    /// Packets that came to listeners, by their reports.
    public internal(set) var packetsHeard = 0
    /// Packets lost on the way to listeners, by their reports: before repair.
    public internal(set) var packetsLostDown = 0
    private var denials: [FloorDenyCause: Int] = [:]
    private var revocations: [FloorRevokeCause: Int] = [:]

    /// Nothing counted.
    public init() {}

    /// Requests refused for `cause`.
    public func denied(_ cause: FloorDenyCause) -> Int { denials[cause] ?? 0 }

    /// Floors taken back for `cause`.
    public func revoked(_ cause: FloorRevokeCause) -> Int { revocations[cause] ?? 0 }

    mutating func note(_ burst: RelayBurstSummary) {
        bursts += 1
        packets += burst.packets
        packetsLostUp += burst.lost
    }

    mutating func note(heard: Int, lost: Int) {
        packetsHeard += heard
        packetsLostDown += lost
    }

    mutating func count(_ cause: FloorDenyCause) { denials[cause, default: 0] += 1 }
    mutating func count(_ cause: FloorRevokeCause) { revocations[cause, default: 0] += 1 }
}

extension RelayStatistics.Channel {
    /// A channel as it is now.
    init(_ channel: RelayChannel) {
        let talkers = channel.floor.talkers
        self.init(
            name: channel.name, id: channel.configuration.id,
            members: channel.members.everyone.compactMap { channel.members[$0] }.map {
                .init(id: $0.id, name: $0.name, isTalking: talkers.contains($0.ssrc), isSilent: $0.isSilent)
            }, waiting: channel.floor.waiting.count, counters: channel.floor.counters)
    }
}

/// How often something took how long.
public struct LatencyHistogram: Sendable, Equatable {
    /// The upper ends of the classes, in microseconds; one class beyond the last takes the rest.
    public static let bounds: [Int64] = [
        25, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000,
    ]

    /// How many fell in each class, in the order of `bounds`, and how many beyond them.
    public private(set) var counts = [Int](repeating: 0, count: bounds.count + 1)
    /// All times together, in nanoseconds.
    public private(set) var sum: Int64 = 0

    /// Nothing counted.
    public init() {}

    /// How many were counted.
    public var total: Int { counts.reduce(0, +) }

    /// Counts one time. Allocates nothing.
    public mutating func count(_ time: Duration) {
        let nanoseconds = max(0, time.nanoseconds)
        sum &+= nanoseconds
        var index = 0
        while index < Self.bounds.count, nanoseconds > Self.bounds[index] * 1_000 { index += 1 }
        counts[index] += 1
    }

    /// Adds what another one counted.
    mutating func add(_ other: LatencyHistogram) {
        for index in counts.indices { counts[index] += other.counts[index] }
        sum &+= other.sum
    }
}
