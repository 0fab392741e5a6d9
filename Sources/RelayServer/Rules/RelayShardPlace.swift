// A relay's rules in several parts: which of them has a channel and a connection, and what the parts share; and which relay of a
// cluster has a channel. Pure, but for counters.
import RelayProtocol
import Synchronization

/// Which part of a relay's channels a `RelayCore` has.
struct RelayShardPlace: Sendable {
    /// Its number, from 0. The first also has the push tokens of all.
    let number: Int
    /// How many there are.
    let count: Int
    /// What all of them together are bounded by.
    let census: RelayCensus

    /// A relay whose rules are in one piece.
    static var only: Self { .init(number: 0, count: 1, census: RelayCensus()) }
}

/// What the shards of one relay count together, each on its own thread.
final class RelayCensus: Sendable {
    private let connectionsOfAll = Atomic<Int>(0)
    private let keptBytesOfAll = Atomic<Int>(0)

    /// Connections that the rules know.
    var connections: Int { connectionsOfAll.load(ordering: .relaxed) }
    /// Bytes of kept bursts.
    var keptBytes: Int { keptBytesOfAll.load(ordering: .relaxed) }

    func add(connections count: Int) { connectionsOfAll.add(count, ordering: .relaxed) }
    func add(keptBytes count: Int) { keptBytesOfAll.add(count, ordering: .relaxed) }
}

/// Which shard has a connection: that of its carrier's thread until its client names a channel of another one.
///
/// A connection is on one channel, so it moves once. A client that asks for an invitation may move once more, when it joins
/// another channel than the one that it asked about; then it stays, and is refused what other shards have.
struct ConnectionRoute: Sendable {
    private static let movesMaximum: UInt8 = 2

    /// The shard that hears what the connection says.
    private(set) var shard: Int
    private var moves: UInt8 = 0
    private var hasJoined = false

    init(shard: Int) { self.shard = shard }

    /// Whether an order may come from a shard that the connection has left meanwhile.
    var hasMoved: Bool { moves > 0 }

    /// The client says something. Returns whether the connection moves to another shard, which is to hear of it first.
    ///
    /// - Parameter shardOf: The shard that has a channel; nil when no channel of the relay has that identifier.
    mutating func moves(by message: ClientMessage, _ shardOf: (ChannelID) -> Int?) -> Bool {
        guard !hasJoined else { return false }
        let channel: ChannelID
        switch message {
        case .join(let join):
            hasJoined = true
            channel = join.channel
        case .invitationRequest(let request): channel = request.channel
        default: return false
        }
        guard moves < Self.movesMaximum, let target = shardOf(channel), target != shard else { return false }
        moves += 1
        shard = target
        return true
    }
}

/// What a relay knows of the channels that it may not serve itself.
public struct ChannelPlaces: Sendable, Equatable {
    /// Where a channel is.
    public enum Place: Sendable, Equatable {
        /// There is no other relay that could serve it.
        case alone
        /// This relay is the one that serves it, if it exists.
        case here
        /// The relay there does.
        case elsewhere(RelayPlace)
        /// None does at the moment.
        case nowhere
    }

    /// By the number of the share; empty: the relay is alone.
    private let shares: [Place]

    /// A relay that is in no cluster, or serves all channels of it.
    public static let alone = ChannelPlaces(shares: [])

    /// The places of the shares, in their order.
    public init(shares: [Place]) { self.shares = shares }

    /// The place of a channel.
    public subscript(channel: ChannelID) -> Place {
        shares.isEmpty ? .alone : shares[channel.share(of: shares.count)]
    }
}
