// What a running relay is told, and asked, about its channels and their members.
import MonotonicTime
import Reactor
import RelayProtocol

extension RelayServer {
    /// The members that are connected to `channel`.
    public func memberCount(of channel: ChannelID) async -> Int {
        await ask(channel) { $0.core.memberCount(of: channel) } ?? 0
    }

    /// Answers `RelayServerConfiguration.enrol`. Answers and removals take effect in the order of the calls.
    public nonisolated func enrolled(
        _ connection: ConnectionID, _ enrolment: RelayEnrolment, _ verdict: RelayEnrolmentVerdict
    ) {
        loop.execute { [weak self] in
            self?.assumeIsolated { $0.engine?.handle(.enrolled(connection, enrolment, verdict)) }
        }
    }

    /// Removes members from a channel: their connections are closed and the media key is renewed, once, before this returns.
    public func revoke(_ members: [MemberID], from channel: ChannelID) async {
        engine?.handle(.revoke(members, from: channel))
        _ = await ask(channel) { _ in }
    }

    /// Lets a member that was removed come again.
    public func readmit(_ member: MemberID, to channel: ChannelID, as membership: RelayMembership) {
        engine?.handle(.readmit(member, to: channel, as: membership))
    }

    /// Keeps other bursts of a channel from now on; members read it when they join again.
    ///
    /// - Returns: Whether that is something else than before; `nil`: it does not run, or has no such channel.
    @discardableResult
    public func setRetention(_ retention: BurstRetention, of channel: ChannelID) -> Bool? {
        guard let engine, let known = engine.exchange.directory.configuration(of: channel) else { return nil }
        guard known.retention != retention else { return false }
        engine.exchange.directory.change(channel) { $0.retention = retention }
        engine.handle(.setRetention(retention, of: channel))
        return true
    }

    /// Serves one more channel, or one that nobody has joined with another configuration.
    ///
    /// - Parameters:
    ///   - members: The members of one more channel, removed ones included.
    ///   - isPaused: Whether nobody is granted its floor until `resume`.
    /// - Returns: Whether it is served so; false at the limit of channels, or when members are on it.
    public func serve(
        _ channel: RelayChannelConfiguration, members: [MemberID: RelayMembership] = [:], isPaused: Bool = false
    ) async -> Bool {
        guard let engine else { return false }
        let directory = engine.exchange.directory
        guard directory.configuration(of: channel.id) != channel else { return true }
        if directory.count < engine.exchange.limits.channels, let shard = directory.add(channel, isServed: false) {
            let isTaken =
                await ask(engine, shard) { $0.core.serve(channel, members: members, isPaused: isPaused) } ?? false
            directory.serve(channel.id, isTaken: isTaken)
            return isTaken
        }
        guard await ask(channel.id, { $0.core.serve(channel) }) == true else { return false }
        directory.change(channel.id) { $0 = channel }
        return true
    }

    /// Changes a channel's rules as soon as nobody talks on it, and informs its members.
    ///
    /// - Returns: Whether the rules differ from the previous ones; nil when the channel is not served.
    public func setRules(_ rules: FloorRules, of channel: ChannelID) -> Bool? {
        guard let engine, let known = engine.exchange.directory.configuration(of: channel) else { return nil }
        engine.exchange.directory.change(channel) { $0.rules = rules }
        engine.handle(.setRules(rules, of: channel))
        return known.rules != rules
    }

    /// Lets a newcomer into a channel whose creator is asked (`RelayMilestone.joinPending`), or not. Nothing happens when it waits no
    /// more.
    public func admit(_ isAdmitted: Bool, _ member: MemberID, to channel: ChannelID) {
        engine?.handle(.admit(isAdmitted, member, to: channel))
    }

    /// Deletes a channel: its members get `phrase` and do not reconnect, and its invitation is no longer given out.
    public func end(_ channel: ChannelID, _ phrase: String) {
        engine?.exchange.directory.change(channel) { $0.admission = .invited }
        engine?.handle(.end(channel, phrase))
    }

    /// Serves a channel no more: its members get `phrase` and do not reconnect, and nothing of it is kept.
    public func remove(_ channel: ChannelID, _ phrase: String) {
        engine?.handle(.removeChannel(channel, phrase))
        engine?.exchange.directory.remove(channel)
    }

    /// Gives a channel another name. Members read it when they join again.
    public func rename(_ channel: ChannelID, to name: DisplayName) {
        engine?.exchange.directory.change(channel) { $0.name = name }
        engine?.handle(.renameChannel(channel, to: name))
    }

    /// The channels that are served, as they are configured now; empty when it does not run.
    public var channelConfigurations: [RelayChannelConfiguration] {
        engine?.exchange.directory.configurations ?? []
    }

    /// A channel as it is configured now; nil: it is not served.
    public func configuration(of channel: ChannelID) -> RelayChannelConfiguration? {
        engine?.exchange.directory.configuration(of: channel)
    }

    /// The statistics of one channel; nil when it is not served.
    public func statistics(of channel: ChannelID) async -> RelayStatistics.Channel? {
        await ask(channel) { $0.core.statistics(of: channel) } ?? nil
    }

    /// The members that are connected to `channel`, by the names that they have now; nil when it is not served.
    public func connectedMembers(of channel: ChannelID) async -> [MemberID: DisplayName]? {
        await ask(channel) { $0.core.connectedMembers(of: channel) } ?? nil
    }

    // MARK: Channels of a cluster

    /// Members of channels that other relays serve are sent there from now on.
    public func setPlaces(_ places: ChannelPlaces) {
        configuration.places = places
        engine?.handle(.setPlaces(places))
    }

    /// See `RelayCore.pause`; nil: the relay ends.
    public func pause(_ channels: [ChannelID]) async -> Set<ChannelID>? {
        guard let engine else { return nil }
        var busy: Set<ChannelID> = []
        for (shard, own) in engine.byShard(channels) {
            guard let further = await ask(engine, shard, { $0.core.pause(own, at: .now) }) else { return nil }
            busy.formUnion(further)
        }
        return busy
    }

    /// Nobody else has a say on the channels any more: requests for their floors that wait are looked at.
    public func resume(_ channels: [ChannelID]) { engine?.handle(.resume(channels)) }

    /// Another relay serves the channels from now on: their members go there, each channel's when nobody talks on it. It is told to
    /// `onMove` then.
    public func move(_ channels: [ChannelID], to place: RelayPlace) { engine?.handle(.move(channels, to: place)) }

    /// Whom `move` tells, on the relay's loop.
    public func onMove(_ handler: @escaping @Sendable (ChannelID) -> Void) {
        moveHandler = handler
        engine?.movedHandler = handler
    }

    // MARK: Questions to the shards

    /// Asks the shard that has a channel; nil: there is no such channel, or the relay does not run, or ends before it answers.
    private func ask<Value: Sendable>(
        _ channel: ChannelID, _ question: @escaping @Sendable (RelayShard) -> Value
    ) async -> Value? {
        guard let engine, let shard = engine.exchange.directory.shard(of: channel) else { return nil }
        return await ask(engine, shard, question)
    }

    private func ask<Value: Sendable>(
        _ engine: RelayEngine, _ shard: Int, _ question: @escaping @Sendable (RelayShard) -> Value
    ) async -> Value? {
        await withCheckedContinuation { continuation in
            engine.ask(shard, question) { continuation.resume(returning: $0) }
        }
    }

    /// Asks all shards; nil: the relay does not run, or ends before they answer.
    func askAll<Value: Sendable>(_ question: @escaping @Sendable (RelayShard) -> Value) async -> [Value]? {
        guard let engine else { return nil }
        var answers: [Value] = []
        // The first one's last, which is of this moment.
        for shard in (0..<engine.exchange.workers).reversed() {
            guard let answer = await ask(engine, shard, question) else { return nil }
            answers.append(answer)
        }
        return answers
    }
}
