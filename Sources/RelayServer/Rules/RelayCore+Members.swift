// Members come and go while the relay runs: enrolments, removals, channels that are added.
import MonotonicTime
import RelayProtocol

extension RelayCore {
    /// Asks for a membership, which has to be on disk before the client hears of it.
    mutating func enrol(
        _ join: ClientMessage.Join, _ id: ConnectionID, _ member: MemberID, at now: Instant
    ) -> [Action] {
        guard enrolling < limits.enrolments else {
            return refuse(id, .relayBusy, "too many members are joining for the first time", at: now)
        }
        enrolling += 1
        connections[id]?.state = .enrolling(join)
        let enrolment = RelayEnrolment(
            channel: join.channel, token: join.token, member: member, name: join.displayName)
        return [.enrol(id, enrolment)]
    }

    /// The answer to `enrol`. It holds also for a client that has gone in the meantime.
    mutating func enrolled(
        _ id: ConnectionID, _ enrolment: RelayEnrolment, _ verdict: RelayEnrolmentVerdict, at now: Instant
    ) -> [Action] {
        enrolling = max(0, enrolling - 1)
        var actions: [Action] = []
        if case .admitted(let membership) = verdict {
            roster.admit(enrolment.member, to: enrolment.channel, as: membership)
            if let number = channelNumbers[enrolment.channel] {
                actions.append(
                    .note(
                        .memberEnrolled(
                            channel: channels[number].name, member: enrolment.member, name: enrolment.name)))
            }
        }
        guard let connection = connections[id], case .enrolling(let join) = connection.state else { return actions }
        connections[id]?.state = .joining
        switch verdict {
        case .admitted: return actions + self.join(join, id, connection.member, at: now)
        case .refused(let cause, let phrase): return actions + refuse(id, cause, phrase, at: now)
        }
    }

    /// Removes members. Their connections are closed, pending handshakes included, and a new media key is used from now
    /// on, unless the channel is end-to-end encrypted.
    mutating func revoke(_ members: [MemberID], from channel: ChannelID, at now: Instant) -> [Action] {
        for member in members { roster.revoke(member, from: channel) }
        guard let number = channelNumbers[channel], !members.isEmpty else { return [] }
        let removed = Set(members)
        let theirs = connections.filter { removed.contains($0.value.member) && isFor($0.value, channel, number) }
        let ids = Dictionary(grouping: theirs.keys) { theirs[$0]?.member }
        var actions: [Action] = []
        for member in members {
            let its = (ids[member] ?? []).sorted()
            for id in its {
                actions += [.close(id, .revoked, "the member was removed from the channel")] + remove(id, at: now)
            }
            counters.membersRevoked += 1
            // Of thousands at once, the log tells those that it told the coming of.
            guard !its.isEmpty || members.count == 1 else { continue }
            actions.append(
                .note(.memberRevoked(channel: channels[number].name, member: member, connections: its.count)))
        }
        return actions + renewMediaKey(of: channel, at: now)
    }

    /// Lets a member that was removed come again, or changes what a member may do.
    mutating func readmit(
        _ member: MemberID, to channel: ChannelID, as membership: RelayMembership, at now: Instant
    ) -> [Action] {
        roster.readmit(member, to: channel, as: membership)
        guard let number = channelNumbers[channel], let id = channels[number].connectionOfMember[member],
            var new = channels[number].members[id]
        else { return [] }
        let told = channels[number].rules(for: new)
        new.priority = membership.priority
        new.isListenOnly = membership.isListenOnly
        channels[number].members[id] = new
        let actions = channels[number].onlyListens(new) ? silence(id, channel: number, at: now) : []
        let rules = channels[number].rules(for: new)
        return rules == told ? actions : actions + [.send(.floorRules(rules), to: [id])]
    }

    private func isFor(_ connection: Connection, _ channel: ChannelID, _ number: Int) -> Bool {
        switch connection.state {
        case .member(number), .pushOnly(number): true
        case .greeted(.deferred(let join)), .enrolling(let join): join.channel == channel
        case .greeted(.welcomed(let welcome)): welcome.channel == number
        case .member, .pushOnly, .greeting, .joining, .refused, .proving, .asking: false
        }
    }

    /// Serves another channel, or serves one that nobody has joined yet with another configuration.
    ///
    /// - Returns: Whether it is served that way now.
    public mutating func serve(_ configuration: RelayChannelConfiguration) -> Bool {
        if let number = channelNumbers[configuration.id] {
            if channels[number].configuration == configuration { return true }
            guard channels[number].members.isEmpty else { return false }
            channels[number].configuration = configuration
            channels[number].floor = FloorControlStateMachine(
                timers: channels[number].floor.timers, rules: configuration.rules)
            channels[number].adopt(configuration.rules, store: limits.burstStore)
            return true
        }
        guard channels.count < limits.channels else { return false }
        add(configuration)
        return true
    }

    /// The channels served, in the order they came.
    var channelConfigurations: [RelayChannelConfiguration] { channels.map(\.configuration) }

    /// The number of channels served.
    public var channelCount: Int { channels.count }

    /// The members that are connected to a channel, by the names that they have now; nil when it is not served.
    public func connectedMembers(of channel: ChannelID) -> [MemberID: DisplayName]? {
        channelNumbers[channel].map { number in
            let members = channels[number].members
            return channels[number].connectionOfMember.compactMapValues { members[$0]?.name }
        }
    }
}
