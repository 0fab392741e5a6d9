// Where the channels of a cluster are: each of its relays serves some shares of them. Pure.
import RelayProtocol

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
