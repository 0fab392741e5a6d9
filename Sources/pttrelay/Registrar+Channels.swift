// Channels that the operator makes, changes and removes, by commands or by a configuration that has changed.
import Cryptography
import Logging
import RelayProtocol
import RelayServer
import RelayStore

extension Registrar {
    /// The channel that is meant.
    func record(_ channel: ChannelReference) throws -> ChannelRecord {
        switch channel {
        case .named(let name): return try store.channel(named: name)
        case .id(let text):
            guard let id = ChannelID(text) else { throw RelayStoreError.unknownChannel(text, known: []) }
            return try store.channel(id)
        }
    }

    // MARK: Lists

    func channels(_ after: String?, _ limit: Int?) async throws -> AdministrationResponse {
        let limit = min(limit ?? .max, AdministrationLimits.channelsPerResponse)
        // One more than are told: then there are more.
        let found = try store.channelSummaries(after: after, limit: limit + 1, now: clock())
        let present = await presence(of: found.prefix(limit).map(\.channel.id), .count)
        let lines = found.prefix(limit).map { line($0, present[$0.channel.id]) }
        return .channels(lines, next: found.count > limit ? lines.last?.name : nil)
    }

    func channel(_ reference: ChannelReference) async throws -> AdministrationResponse {
        // Another command may remove it while other relays are asked.
        let summary = try summary(try record(reference))
        let present = await presence(of: [summary.channel.id], .count)[summary.channel.id]
        var line = line(summary, present)
        line.talkers = present?.talkers
        return .channel(line)
    }

    func line(_ channel: ChannelRecord) async throws -> AdministrationResponse.ChannelLine {
        let present = await ownPresence(of: [channel.id], .count)[channel.id]
        return line(try summary(channel), present)
    }

    private func summary(_ channel: ChannelRecord) throws -> ChannelSummary {
        guard let summary = try store.channelSummary(of: channel.id, now: clock()) else {
            throw RelayStoreError.noChannel(channel.id)
        }
        return summary
    }

    private func line(
        _ summary: ChannelSummary, _ presence: ChannelPresence?
    ) -> AdministrationResponse.ChannelLine {
        let channel = summary.channel
        let rules = floors.rules(of: channel)
        let retention = floors.retention(of: channel)
        return .init(
            name: channel.name.text, id: channel.id.description, members: summary.members,
            connected: presence?.count, servedAt: part?.place(of: channel.id),
            openInvitations: summary.openInvitations, isEndToEnd: channel.isEndToEnd,
            isServed: channel.isServed || channel.isAdded, isDeclared: channel.isDeclared,
            mode: ChannelSettings.Mode(rules.mode), hasQueue: rules.hasQueue, preemptionStep: rules.preemptionStep,
            keptBursts: retention.bursts, keptMilliseconds: retention.time.wholeMilliseconds)
    }

    // MARK: Changes

    /// Makes a channel and serves it. One that the records keep and that is not served is served again, with its invitations and members.
    ///
    /// - Parameter retry: Names the request. Where it comes again, the channel that it made is the answer. A channel that is served again
    ///   keeps its identifier, so a repetition is refused as the request of somebody else is.
    func addChannel(
        _ text: String, _ change: ChannelChange, isEndToEnd: Bool, _ retry: String?
    ) async throws -> AdministrationResponse {
        guard let name = DisplayName(text) else { throw RelayStateError.badName(text, of: "channel") }
        if let retry, let known = try store.knownChannel(try retryID(retry)) {
            // The same request again.
            guard known.name == name, known.isEndToEnd == isEndToEnd else { throw RelayStoreError.retryDiffers }
            return .added(try await line(known), isNew: false)
        }
        let known = try store.knownChannel(named: text)
        if let known, known.isServed || known.isAdded { throw RelayStoreError.channelExists(text) }
        if let known, known.isEndToEnd != isEndToEnd {
            throw RelayStoreError.wrongKind(
                "the records keep a channel '\(text)' of the other kind; remove it first: pttrelay channel remove")
        }
        guard try store.servedChannelCount() < channelsMaximum else {
            throw RelayStoreError.limit(
                "the relay may have \(channelsMaximum) channels, and has them; raise 'channels' in [limits], and restart it"
            )
        }
        let settings = change.applied(to: known?.settings ?? ChannelSettings())
        let channel: ChannelRecord
        if let known {
            channel = try store.changeChannel(known.id, name: name, settings: settings, isServed: true)
        } else {
            channel = try store.addChannel(
                name, id: try retry.map { try retryID($0) } ?? ChannelID(), isEndToEnd: isEndToEnd, isAdded: true,
                isServed: true, settings: settings, now: clock())
        }
        try await serve(channel)
        logger.notice("a channel is added", metadata: ["channel": "\(channel.name)", "id": "\(channel.id)"])
        return .added(try await line(channel), isNew: known == nil)
    }

    func changeChannel(
        _ reference: ChannelReference, _ change: ChannelChange, _ tag: String?
    ) async throws -> AdministrationResponse {
        let known = try await own(reference, tag)
        let text = change.name ?? known.name.text
        guard let name = DisplayName(text) else { throw RelayStateError.badName(text, of: "channel") }
        let isServed = known.isServed || known.isAdded
        let channel = try store.changeChannel(
            known.id, name: name, settings: change.applied(to: known.settings), isServed: isServed)
        if isServed, let server {
            let served = configuration(known, token: nil)
            for change in await bring(configuration(channel, token: nil), from: served, on: server) {
                logger.notice("\(change)")
            }
        }
        return .channel(try await line(channel))
    }

    func removeChannel(_ reference: ChannelReference, _ tag: String?) async throws -> AdministrationResponse {
        let channel = try await own(reference, tag)
        let line = try await line(channel)
        try store.removeChannel(channel.id)
        await server?.remove(channel.id, "the channel was removed")
        logger.notice(
            "a channel is removed",
            metadata: ["channel": "\(channel.name)", "id": "\(channel.id)", "members": "\(line.members)"])
        return .channel(line)
    }

    /// A channel that commands may change, because the configuration does not declare it.
    private func own(_ reference: ChannelReference, _ tag: String?) async throws -> ChannelRecord {
        let channel = try record(reference)
        if let tag, try await line(channel).tag != tag {
            throw RelayStoreError.changedSince("the channel '\(channel.name)'")
        }
        guard !channel.isDeclared else { throw RelayStoreError.declared(channel.name.text) }
        return channel
    }

    private func configuration(_ channel: ChannelRecord, token: InvitationToken?) -> RelayChannelConfiguration {
        channel.configuration(token: token, floors)
    }

    /// Has the relay serve a channel that it did not serve.
    func serve(_ channel: ChannelRecord) async throws {
        part?.channels?[channel.id.share(), default: []].insert(channel.id)
        guard owns(channel.id) else { return }
        let configuration = configuration(channel, token: try store.standingToken(of: channel.id))
        guard let server, await !server.serve(configuration) else { return }
        throw RelayStateError(
            description:
                "the channel is created but not served: the relay has reached its limit of channels; restart it with fewer others"
        )
    }

    // MARK: Repeated requests

    /// The identifier of the channel that a request makes.
    private func retryID(_ retry: String) throws -> ChannelID {
        var bytes = Array(try retryBytes("channel", retry).prefix(ChannelID.byteCount))
        // A UUID of version 8 (RFC 9562): its bits are the maker's own.
        bytes[6] = bytes[6] & 0x0F | 0x80
        bytes[8] = bytes[8] & 0x3F | 0x80
        return ChannelID(bytes: bytes) ?? ChannelID()
    }

    /// Bytes that the same request has again and nobody else knows: a MAC of the name of the request.
    func retryBytes(_ kind: String, _ retry: String) throws -> [UInt8] {
        hmacSHA256(Array("\(kind)\0\(retry)".utf8), key: try store.retrySecret())
    }
}

extension Duration {
    /// What is behind the point is left out.
    var wholeMilliseconds: Int64 { components.seconds * 1_000 + components.attoseconds / 1_000_000_000_000_000 }
}

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
        let configurations = try state.configurations(wanted, floors)
        let served = Dictionary(uniqueKeysWithValues: await server.channelConfigurations.map { ($0.id, $0) })
        let staying = Set(wanted.map(\.id))
        var changes: [String] = []
        // First those that end: at the limit of channels, others need their places.
        for channel in served.values.filter({ !staying.contains($0.id) }).sorted(by: { $0.name.text < $1.name.text }) {
            await server.remove(channel.id, "the channel is not served any more")
            changes.append(
                "'\(channel.name)' is not served any more; its members are told that it has ended, and its records are kept"
            )
        }
        for channel in configurations { changes += await bring(channel, from: served[channel.id], on: server) }
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
