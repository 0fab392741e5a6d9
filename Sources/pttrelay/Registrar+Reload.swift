// The channels of a configuration that has changed while the relay runs.
import RelayProtocol
import RelayServer
import RelayStore

extension Registrar {
    /// Serves the channels of the names, made if they are new, and no others but those of the records; and gives every channel the rules
    /// of `floors`.
    ///
    /// - Returns: What has changed, a sentence each.
    /// - Throws: what is wrong with a name, or with the records.
    func reload(channels names: [String], floors: Floors) async throws -> [String] {
        try await inTurn { try await $0.takeOver(names, floors) }
    }

    private func takeOver(_ names: [String], _ floors: Floors) async throws -> [String] {
        guard let server else { return [] }
        guard part == nil else {
            guard names.isEmpty else { throw RelayStateError.channelsOfCluster }
            self.floors = floors
            return []
        }
        let wanted = try state.servedChannels(named: names)
        guard wanted.count <= channelsMaximum else {
            throw RelayStoreError.limit(
                "the relay would have \(wanted.count) channels, and may have \(channelsMaximum); raise 'channels' in [limits], and restart it"
            )
        }
        try store.setServed(Set(wanted.map(\.id)), declared: Set(wanted.filter(\.isDeclared).map(\.id)))
        self.floors = floors
        var served: [ChannelID: RelayChannelConfiguration] = [:]
        for channel in await server.channelConfigurations { served[channel.id] = channel }
        var changes: [String] = []
        for channel in try state.configurations(wanted, floors) {
            let known = served.removeValue(forKey: channel.id)
            changes += await bring(channel, from: known, on: server)
        }
        for channel in served.values.sorted(by: { $0.name.text < $1.name.text }) {
            await server.remove(channel.id, "the channel is not served any more")
            changes.append(
                "'\(channel.name)' is not served any more; its members are told that it has ended, and its records are kept"
            )
        }
        return changes
    }

    /// Has the relay serve a channel as it is to be.
    ///
    /// - Parameter known: As it is served now; nil: it is not.
    /// - Returns: What has changed, a sentence each.
    func bring(
        _ channel: RelayChannelConfiguration, from known: RelayChannelConfiguration?, on server: RelayServer
    ) async -> [String] {
        guard let known else {
            return [
                await server.serve(channel)
                    ? "'\(channel.name)' is served now: 'pttrelay invite \(channel.name)' prints its link"
                    : "'\(channel.name)' is not served: the relay has reached its limit of channels"
            ]
        }
        var changes: [String] = []
        if known.name != channel.name {
            await server.rename(channel.id, to: channel.name)
            changes.append("'\(known.name)' is called '\(channel.name)' now")
        }
        if known.retention != channel.retention {
            await server.setRetention(channel.retention, of: channel.id)
            changes.append("'\(channel.name)' keeps \(channel.retention.words) from now on")
        }
        // Told in any case: other rules may wait for the end of a burst.
        if await server.setRules(channel.rules, of: channel.id) == true {
            changes.append("the rules of '\(channel.name)' change as soon as nobody talks; its members are told")
        }
        return changes
    }
}
