// Draining: current bursts are completed, then the members are sent to another relay or asked to reconnect later.
import MonotonicTime
import RelayProtocol

extension RelayCore {
    /// So long after the last word to a channel its members stay connected, so that it reaches them.
    static let closingTime: Duration = .milliseconds(500)
    /// The close reason for everybody.
    static let goingDown = "the relay is going down"

    /// Whether it takes nobody any more, and all have gone.
    public var isDrained: Bool {
        isDraining && channels.allSatisfy { $0.members.isEmpty && $0.pushConnectionOfMember.isEmpty }
    }

    /// Starts draining: it accepts no joins, and grants the floor only to emergencies. Members of idle channels are
    /// sent away at once, or as soon as they know the successor. A joining client gets the reason of the refusal.
    mutating func drain(to successor: RelayPlace?, at now: Instant) -> [Action] {
        guard !isDraining else { return [] }
        isDraining = true
        var actions: [Action] = []
        for number in channels.indices {
            channels[number].closesAt = successor == nil ? now : now + Self.closingTime
            let everyone = channels[number].everyone + channels[number].pushConnectionOfMember.values.sorted()
            if let successor, !everyone.isEmpty { actions.append(.send(.successor(successor), to: everyone)) }
            // From behind, so that nobody moves up only to be turned away.
            for request in channels[number].floor.waiting.reversed() where !request.isEmergency {
                actions += apply(.withdrawn(ssrc: request.ssrc), channel: number, at: now)
                actions += deny(request, .noResources, Self.goingDown, channel: number)
            }
        }
        return actions
    }

    /// Changes the channel's rules as soon as nobody talks, and informs its members.
    mutating func setRules(_ rules: FloorRules, of channel: ChannelID, at now: Instant) -> [Action] {
        guard let number = channelNumbers[channel], !isDraining else { return [] }
        return apply(.rules(rules), channel: number, at: now)
    }

    /// Sends away those on channels where nobody talks any more, once the last word has reached them.
    mutating func closeQuietChannels(at now: Instant) -> [Action] {
        if seededFault("a-relay-that-drains-keeps-its-members") { return [] }
        var actions: [Action] = []
        for number in channels.indices {
            guard let due = channels[number].closesAt, due <= now, channels[number].floor.holder == nil else {
                continue
            }
            for id in channels[number].everyone {
                if let member = connections[id]?.member { pushes.disconnected(id, of: member, at: now) }
                connections[id] = nil
                // Nobody is told that the others leave: they leave themselves.
                actions += [.stopMedia(id, channel: number), .close(id, .goingDown, Self.goingDown)]
            }
            for id in channels[number].pushConnectionOfMember.values.sorted() {
                actions += [.close(id, .goingDown, Self.goingDown)] + remove(id, at: now)
            }
            for member in channels[number].members.values { sources.remove(member.ssrc) }
            changeStore(number) { $0.removeAll() }
            channels[number].clear()
        }
        return actions
    }

    /// When the members of a channel may go.
    var nextClosing: Instant? {
        channels.lazy.compactMap { $0.floor.holder == nil ? $0.closesAt : nil }.min()
    }
}
