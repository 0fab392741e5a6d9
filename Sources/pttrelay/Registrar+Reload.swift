// The channels of a configuration that has changed while the relay runs.
import RelayProtocol
import RelayServer
import RelayStore

/// The settings of the configuration for the channels' floors and their kept bursts.
struct Floors: Sendable, Equatable {
    /// By the channels' names.
    var rules: [String: FloorRules] = [:]
    /// What is kept of their bursts.
    var retentions: [String: BurstRetention] = [:]
    /// Whether presses wait on every channel, whatever its rules say.
    var allHaveQueues = false

    /// The rules of one channel.
    func rules(of channel: DisplayName) -> FloorRules {
        var rules = rules[channel.text] ?? FloorRules()
        if allHaveQueues { rules.hasQueue = true }
        return rules
    }

    /// What is kept of the bursts of one channel.
    func retention(of channel: DisplayName) -> BurstRetention {
        retentions[channel.text] ?? FloorSettings.standardRetention
    }
}

extension Registrar {
    /// Serves the channels of the names, made if they are new, and gives every channel the rules of `floors`.
    ///
    /// - Returns: What has changed, a sentence each.
    /// - Throws: what is wrong with a name, or with the records.
    func reload(channels names: [String], floors: Floors) async throws -> [String] {
        try await inTurn { try await $0.takeOver(names, floors) }
    }

    private func takeOver(_ names: [String], _ floors: Floors) async throws -> [String] {
        guard let (server, wanted) = try reloaded(channels: names, floors: floors) else { return [] }
        var changes: [String] = []
        for var channel in wanted {
            channel.rules = floors.rules(of: channel.name)
            channel.retention = floors.retention(of: channel.name)
            if await server.setRetention(channel.retention, of: channel.id) == true {
                changes.append("'\(channel.name)' keeps \(channel.retention.words) from now on")
            }
            switch await server.setRules(channel.rules, of: channel.id) {
            case false?: continue
            case true?:
                changes.append(
                    "the rules of '\(channel.name)' change as soon as nobody talks; its members are told")
            case nil:
                changes.append(
                    await server.serve(channel)
                        ? "'\(channel.name)' is served now: 'pttrelay invite \(channel.name)' prints its link"
                        : "'\(channel.name)' is not served: the relay has reached its limit of channels")
            }
        }
        for channel in await server.statistics?.channels ?? []
        where !wanted.contains(where: { $0.id == channel.id }) {
            changes.append("'\(channel.name)' is served until the relay restarts")
        }
        return changes
    }
}
