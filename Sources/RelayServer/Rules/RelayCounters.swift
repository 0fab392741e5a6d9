// The counters of a relay. Every dropped packet and message has a reason here.

/// Why a media packet was not forwarded.
public enum MediaDrop: Int, Sendable, CaseIterable, Hashable {
    /// From a connection that has not joined a channel.
    case notJoined
    /// Not an RTP packet with an SFrame payload, as the protocol has them, or too long.
    case malformed
    /// Its SSRC is not the sender's.
    case foreignSource
    /// The sender does not hold the floor.
    case noFloor
    /// Sealed under a key id that is not bound to the floor.
    case wrongKeyID
    /// Seen before, or too old to tell.
    case duplicate
    /// After the last sequence number that the release named.
    case afterRelease
    /// Beyond what the sender may send in the time.
    case tooFast
}

/// Counters of a relay since its start.
public struct RelayCounters: Sendable, Equatable {
    /// Media packets that came in.
    public internal(set) var packetsIn = 0
    /// Media packets that were forwarded, counted once each.
    public internal(set) var packetsForwarded = 0
    /// Media packets handed to the kernel, counted for each listener.
    public internal(set) var packetsOut = 0
    /// Media packets that the kernel did not take at once, for one listener each, and those that a busy worker had no time for.
    public internal(set) var packetsNotSent = 0
    /// Packets on the media port that are neither QUIC nor expected.
    public internal(set) var strayPackets = 0
    /// Control messages that came in.
    public internal(set) var messagesIn = 0
    /// Those of them whose kind this relay does not know; nothing was done about them.
    public internal(set) var messagesUnknown = 0
    /// Connections closed because they broke the protocol.
    public internal(set) var protocolViolations = 0
    /// Joins refused.
    public internal(set) var joinsRefused = 0
    /// Clients that were sent to the relay of the cluster that serves their channel.
    public internal(set) var joinsSentOn = 0
    /// Invitations to open channels that were given to those who asked.
    public internal(set) var invitationsGiven = 0
    /// Those that were not.
    public internal(set) var invitationsRefused = 0
    /// Members that were removed.
    public internal(set) var membersRevoked = 0
    /// Listeners whose media were stopped because they did not report.
    public internal(set) var listenersStopped = 0
    /// Packets that came again on a control stream because their datagram was lost, and were forwarded.
    public internal(set) var packetsRepaired = 0
    /// Duplicate packets, received as datagrams or on a control stream. They do not count as dropped.
    public internal(set) var packetsSpare = 0
    /// Requests for lost packets that were answered.
    public internal(set) var repairsAnswered = 0
    /// Requests for lost packets that were not answered: too many, or too much.
    public internal(set) var repairsRefused = 0
    /// Packets that were sent again on request, counted for each listener.
    public internal(set) var packetsSentAgain = 0
    /// Requests for kept bursts, and for the list of them, that were answered.
    public internal(set) var burstsAnswered = 0
    /// Those that were refused.
    public internal(set) var burstsRefused = 0
    /// Packets of kept bursts that were given, counted for each listener.
    public internal(set) var packetsReplayed = 0
    /// Pushes that came.
    public internal(set) var pushesIn = 0
    /// Pushes that were accepted.
    public internal(set) var pushesAccepted = 0
    private var drops = [Int](repeating: 0, count: MediaDrop.allCases.count)

    /// Nothing counted.
    public init() {}

    /// Media packets dropped for `reason`.
    public func dropped(_ reason: MediaDrop) -> Int { drops[reason.rawValue] }

    /// Media packets dropped for any reason.
    public var droppedTotal: Int { drops.reduce(0, +) }

    /// Counts what another shard has counted as well.
    mutating func add(_ other: Self) {
        for field in Self.fields { self[keyPath: field] += other[keyPath: field] }
        for reason in drops.indices { drops[reason] += other.drops[reason] }
    }

    private static var fields: [WritableKeyPath<Self, Int>] {
        [
            \.packetsIn, \.packetsForwarded, \.packetsOut, \.packetsNotSent, \.strayPackets, \.messagesIn,
            \.messagesUnknown, \.protocolViolations, \.joinsRefused, \.joinsSentOn, \.invitationsGiven,
            \.invitationsRefused,
            \.membersRevoked, \.listenersStopped, \.packetsRepaired, \.packetsSpare, \.repairsAnswered,
            \.repairsRefused, \.packetsSentAgain, \.burstsAnswered, \.burstsRefused, \.packetsReplayed, \.pushesIn,
            \.pushesAccepted,
        ]
    }

    /// Counts a packet that is dropped.
    mutating func drop(_ reason: MediaDrop) -> RelayCore.MediaDecision {
        drops[reason.rawValue] += 1
        return .drop(reason)
    }
}
