// Ends in good order: what is being said is said to its end, then the members are sent away to connect again.
import MonotonicTime
import RelayProtocol

extension RelayCore {
    /// So long after a channel's last burst its members stay connected, so that the end of it reaches them.
    static let farewellTime: Duration = .milliseconds(500)
    /// What everybody is told.
    static let goingDown = "the relay is going down"

    /// Whether it takes nobody any more, and all have gone.
    public var isDrained: Bool { isDraining && connections.isEmpty }

    /// Takes nobody any more, and grants no floor; who is on no channel where somebody talks goes at once.
    mutating func drain(at now: Instant) -> [Action] {
        guard !isDraining else { return [] }
        isDraining = true
        isClosingChannels = true
        var actions: [Action] = []
        for number in channels.indices {
            channels[number].closesAt = now
            for request in channels[number].floor.waiting {
                actions += apply(.withdrawn(ssrc: request.ssrc), channel: number, at: now)
                actions += deny(request, .noResources, Self.goingDown, channel: number)
            }
        }
        for (id, connection) in connections.sorted(by: { $0.key < $1.key }) {
            if case .member = connection.state { continue }
            actions += [.close(id, .goingDown, Self.goingDown)] + remove(id, at: now)
        }
        return actions
    }

    /// The channel gets other rules as soon as nobody talks. Members connect again then, since what they were told of it when they
    /// joined does not hold any more.
    mutating func setRules(_ rules: FloorRules, of channel: ChannelID, at now: Instant) {
        guard let number = channelNumbers[channel], !isDraining else { return }
        guard channels[number].configuration.rules != rules else {
            channels[number].newRules = nil
            channels[number].closesAt = nil
            return
        }
        isClosingChannels = true
        channels[number].newRules = rules
        channels[number].closesAt = now
    }

    /// Sends the members of channels away that are to be closed, and on which nobody talks any more.
    mutating func closeQuietChannels(at now: Instant) -> [Action] {
        var actions: [Action] = []
        for number in channels.indices {
            guard let due = channels[number].closesAt, due <= now, channels[number].floor.holder == nil else {
                continue
            }
            let phrase = isDraining ? Self.goingDown : "the channel's rules have changed"
            for id in greeted(on: number) {
                actions += [.close(id, .goingDown, phrase)] + remove(id, at: now)
            }
            for id in channels[number].everyone {
                if let member = connections[id]?.member { pushes.disconnected(id, of: member, at: now) }
                connections[id] = nil
                // Nobody is told that the others leave: they leave themselves.
                actions += [.stopMedia(id, channel: number), .close(id, .goingDown, phrase)]
            }
            for member in channels[number].members.values { sources.remove(member.ssrc) }
            changeStore(number) { $0.removeAll() }
            channels[number].close(timers: timers, store: limits.burstStore)
        }
        isClosingChannels = channels.contains { $0.closesAt != nil }
        return actions
    }

    /// Those who were told of the channel, and have not completed their handshake.
    private func greeted(on number: Int) -> [ConnectionID] {
        connections.filter {
            if case .greeted(.welcomed(let welcome)) = $0.value.state { welcome.channel == number } else { false }
        }.keys.sorted()
    }

    /// When a channel that is to be closed may be.
    var nextClosing: Instant? {
        channels.lazy.compactMap { $0.floor.holder == nil ? $0.closesAt : nil }.min()
    }
}

extension RelayChannel {
    /// Ends it for its members; it goes on with the rules that it is to have. Clients that get pushes only stay.
    mutating func close(timers: FloorControlStateMachine.Timers, store limits: BurstStore.Limits) {
        if let newRules { configuration.rules = newRules }
        newRules = nil
        closesAt = nil
        members = [:]
        connectionOfMember = [:]
        speakers = []
        floor = FloorControlStateMachine(timers: timers, rules: configuration.rules)
        store = Self.store(limits, configuration)
    }
}
