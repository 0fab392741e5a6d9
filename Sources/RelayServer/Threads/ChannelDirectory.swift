// Which shard of a relay has which channel.
import RelayProtocol
import Synchronization

/// The channels of a relay, as they are configured now. Read on any thread.
///
/// Channels are dealt out in turn. A relay with one channel has it on its first worker, where the connections of a small
/// relay are (`ConnectionSpread`).
final class ChannelDirectory: Sendable {
    private struct Entry {
        /// In the order they came.
        let place: Int
        var configuration: RelayChannelConfiguration
        let shard: Int
        /// Whether the shard has it already.
        var isServed: Bool
    }

    private struct State {
        var entries: [ChannelID: Entry] = [:]
        var lastPlace = -1
    }

    private let shards: Int
    private let state = Mutex(State())

    init(shards: Int) { self.shards = shards }

    /// The shard that serves a channel; nil: no shard does.
    func shard(of channel: ChannelID) -> Int? {
        state.withLock { state in
            guard let entry = state.entries[channel], entry.isServed else { return nil }
            return entry.shard
        }
    }

    func configuration(of channel: ChannelID) -> RelayChannelConfiguration? {
        state.withLock { $0.entries[channel]?.configuration }
    }

    /// All of them, in the order they came.
    var configurations: [RelayChannelConfiguration] {
        state.withLock { $0.entries.values.sorted { $0.place < $1.place }.map(\.configuration) }
    }
    var count: Int { state.withLock { $0.entries.count } }

    /// Numbers that order them as they came.
    var places: [ChannelID: Int] { state.withLock { $0.entries.mapValues(\.place) } }

    /// Takes a channel in, which its shard has or, with `isServed` false, is going to be given: `serve` follows. Returns the shard;
    /// nil: the channel is here already.
    func add(_ configuration: RelayChannelConfiguration, isServed: Bool = true) -> Int? {
        state.withLock { state in
            guard state.entries[configuration.id] == nil else { return nil }
            state.lastPlace += 1
            let entry = Entry(
                place: state.lastPlace, configuration: configuration, shard: state.lastPlace % shards,
                isServed: isServed)
            state.entries[configuration.id] = entry
            return entry.shard
        }
    }

    /// The shard has the channel from now on, or does not take it.
    func serve(_ channel: ChannelID, isTaken: Bool) {
        state.withLock { state in
            if isTaken { state.entries[channel]?.isServed = true } else { state.entries[channel] = nil }
        }
    }

    /// A channel is not there any more; its shard has been told.
    func remove(_ channel: ChannelID) { state.withLock { $0.entries[channel] = nil } }

    /// Changes the configuration of a channel that is there.
    func change(_ channel: ChannelID, _ change: (inout RelayChannelConfiguration) -> Void) {
        state.withLock { state in
            guard var entry = state.entries[channel] else { return }
            change(&entry.configuration)
            state.entries[channel] = entry
        }
    }
}
