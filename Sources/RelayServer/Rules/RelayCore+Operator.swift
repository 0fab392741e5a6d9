// What a relay's operator does while it runs, and sees: members that are removed, keys, channels that end, draining; and pushes from
// outside, for all of whose tokens one shard has the registry.
import MonotonicTime
import RelayProtocol

extension RelayCore {
    // MARK: Members

    /// Removes members. Their connections are closed, pending handshakes included, and a new media key is used from now
    /// on, unless the channel is end-to-end encrypted.
    mutating func revoke(_ members: [MemberID], from channel: ChannelID, at now: Instant) -> [Action] {
        for member in members { roster.revoke(member, from: channel) }
        guard let number = numbers[channel], !members.isEmpty else { return [] }
        let connections = shared.connections.of(members, on: channel, number)
        var actions: [Action] = []
        for member in members {
            let its = connections[member] ?? []
            for id in its {
                actions += [.close(id, .revoked, "the member was removed from the channel")] + remove(id, at: now)
            }
            shared.counters.membersRevoked += 1
            // Of thousands at once, the log tells those that it told the coming of.
            guard !its.isEmpty || members.count == 1 else { continue }
            let name = channels[number].name
            actions.append(.note(.memberRevoked(channel: name, member: member, connections: its.count)))
        }
        return actions + renewMediaKey(number, at: now)
    }

    /// Lets a member that was removed come again, or changes what a member may do.
    mutating func readmit(
        _ member: MemberID, to channel: ChannelID, as membership: RelayMembership, at now: Instant
    ) -> [Action] {
        roster.readmit(member, to: channel, as: membership)
        guard let number = numbers[channel], let id = channels[number].members.connections[member] else { return [] }
        return on(number, at: now) { channel, _ in channel.readmit(id, as: membership, at: now) }
    }

    mutating func renewMediaKey(_ number: Int, at now: Instant) -> [Action] {
        let roster = roster.members(of: channels[number].configuration.id)
        return on(number, at: now) { $0.renewMediaKey(roster, &$1, at: now) }
    }

    // MARK: Ends

    /// Whether it takes nobody any more, and all have gone.
    public var isDrained: Bool { isDraining && inhabited.isEmpty }

    /// Sends away those on channels where nobody talks any more, once the last word has reached them.
    mutating func closeQuietChannels(at now: Instant) -> [Action] {
        if seededFault("a-relay-that-drains-keeps-its-members") { return [] }
        return takeTouched().filter { channels[$0].isClosing(at: now) }.flatMap { number in
            guard moving.contains(number) else { return dismiss(number, .goingDown, Self.goingDown, at: now) }
            let channel = channels[number].configuration.id
            return dismiss(number, .goingDown, Self.moves, at: now)
                + vacate(number, .goingDown, Self.moves, at: now) + [.moved(channel)]
        }
    }

    /// Ends a channel for all its members, who do not come back.
    mutating func end(_ channel: ChannelID, _ phrase: String, at now: Instant) -> [Action] {
        guard let number = numbers[channel], !seededFault("a-deleted-channel-goes-on") else { return [] }
        return dismiss(number, .channelEnded, phrase, at: now)
            + on(number, at: now) { $0.refuseNewcomers(&$1, at: now) }
    }

    /// Sends away everybody on a channel. Nobody is told that the others leave: they leave themselves.
    private mutating func dismiss(
        _ number: Int, _ code: RelayCloseCode, _ phrase: String, at now: Instant
    ) -> [Action] {
        var gone: [ConnectionID] = []
        let actions = on(number, at: now) { channel, shared in
            gone = channel.empty(&shared)
            return gone.flatMap { [.stopMedia($0, channel: number), .close($0, code, phrase)] }
        }
        for id in gone { forget(id, at: now) }
        return actions
    }

    // MARK: Moves

    /// Nobody is granted the floor of these channels any more, until they are moved or resumed: another relay is about to have a say. Those
    /// on which somebody talks or waits go on as before until they are moved, since that one is told of them.
    ///
    /// - Returns: The channels that go on.
    public mutating func pause(_ channels: [ChannelID], at now: Instant) -> Set<ChannelID> {
        var busy: Set<ChannelID> = []
        for channel in channels {
            guard let number = numbers[channel] else { continue }
            if self.channels[number].isBusy {
                busy.insert(channel)
            } else {
                _ = on(number, at: now) { channel, _ in
                    channel.pause()
                    return []
                }
            }
        }
        return busy
    }

    /// Another relay serves these channels from now on: those on each go there when nobody talks on it. Those who wait for its floor are
    /// denied it, but for emergencies.
    mutating func move(_ channels: [ChannelID], to place: RelayPlace, at now: Instant) -> [Action] {
        guard !isDraining, !seededFault("members-are-not-sent-on") else { return [] }
        var actions: [Action] = []
        for number in channels.compactMap({ numbers[$0] }) where !moving.contains(number) {
            moving.insert(number)
            let early = shared.connections.welcomedEarly(to: number)
            if !early.isEmpty { actions.append(.send(.successor(place), to: early)) }
            actions += on(number, at: now) { channel, _ in channel.drain(to: place, Self.moves, at: now) }
        }
        return actions
    }

    // MARK: What it serves

    /// The channels served, in the order they came.
    var channelConfigurations: [RelayChannelConfiguration] { channels.filter(isServed).map(\.configuration) }
    /// The statistics of the channels.
    var channelStatistics: [RelayStatistics.Channel] { channels.filter(isServed).map { .init($0) } }

    /// The statistics of one channel; nil when it is not served.
    func statistics(of channel: ChannelID) -> RelayStatistics.Channel? { served(channel).map { .init($0) } }

    /// A channel as it is configured now; nil when it is not served.
    func configuration(of channel: ChannelID) -> RelayChannelConfiguration? { served(channel)?.configuration }

    /// The number of members of a channel.
    public func memberCount(of channel: ChannelID) -> Int { served(channel)?.members.count ?? 0 }

    /// The members that are connected to a channel, by the names that they have now; nil when it is not served.
    public func connectedMembers(of channel: ChannelID) -> [MemberID: DisplayName]? {
        served(channel)?.members.names
    }

    private func served(_ channel: ChannelID) -> RelayChannel? { numbers[channel].map { channels[$0] } }
}

extension RelayCore {
    /// Whether this shard has the registry of push tokens.
    var hasRegistry: Bool { shared.shard.number == 0 }

    /// A client does something about its tokens: the registry hears of it, here or on another shard.
    mutating func tell(_ event: PushEvent, at now: Instant) -> [Action] {
        guard !hasRegistry else { return take(event, at: now) }
        if case .register(_, _, let id) = event { shared.connections.noteToken(of: id) }
        return [.pushes(event)]
    }

    /// The registry takes an event of its own shard or of another one.
    mutating func take(_ event: PushEvent, at now: Instant) -> [Action] {
        switch event {
        case .register(let registration, let member, let id):
            return pushes.register(registration, by: member, on: id, at: now)
        case .unregister(let token, let member): return pushes.unregister(token, by: member, at: now)
        case .receipt(let receipt, let id): return pushes.receive(receipt, from: id, at: now)
        case .disconnected(let id, let member):
            pushes.disconnected(id, of: member, at: now)
            return []
        }
    }

    /// A push came from outside. For the shard that has the registry.
    public mutating func push(_ request: PushRequest, at now: Instant) -> (PushVerdict, [Action]) {
        guard !isShuttingDown, !isDraining else { return (.shutDown, []) }
        shared.counters.pushesIn += 1
        let (verdict, actions) = pushes.push(request, id: shared.secrets.pushID(), at: now)
        if case .accepted = verdict { shared.counters.pushesAccepted += 1 }
        return (verdict, actions)
    }
}
