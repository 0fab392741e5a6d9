// Pending requests to join a channel nearby that is not open to everybody: proofs of its code, and questions to its
// creator.
import MonotonicTime
import RelayProtocol

/// The pending join requests of one channel.
struct PendingJoins: Sendable {
    /// A request that waits for the creator's answer.
    struct Question: Sendable {
        let member: MemberID
        /// The requesting connections. A client asks at several addresses of one relay, and uses the first answer.
        var connections: [ConnectionID]
    }

    /// The most connections of one question.
    static let connectionsPerQuestion = 8

    /// The expected proof of each client that was challenged, and the relay's own proof for the answer.
    var proofs: [ConnectionID: (client: [UInt8], relay: [UInt8])] = [:]
    /// The rate limit on wrong codes.
    var wrongCodes: TokenBucket
    /// In the order of the requests.
    var questions: [Question] = []
    /// The rate limit on questions to the creator.
    var bucket: TokenBucket
    /// Admitted members, which need not ask again, the oldest first.
    var admitted: [MemberID] = []

    init(_ limits: RelayLimits, at now: Instant) {
        wrongCodes = TokenBucket(depth: limits.wrongCodes, every: limits.wrongCodeInterval, at: now)
        bucket = TokenBucket(depth: limits.pendingJoinsMaximum, every: limits.pendingJoinInterval, at: now)
    }
}

extension RelayCore {
    /// Asks the channel's creator whether a newcomer may join.
    mutating func ask(
        _ name: DisplayName?, _ member: MemberID, _ id: ConnectionID, channel number: Int, at now: Instant
    ) -> [Action] {
        guard let name else {
            return refuseInvitation(.nameNeeded, "the creator is asked about each newcomer: give a name", to: id)
        }
        var known = pendingJoins[number] ?? PendingJoins(limits, at: now)
        if known.admitted.contains(member) { return invite(id, to: number) }
        let pending = Action.send(.invitationPending(.init(time: limits.pendingJoinTime)), to: [id])
        let index = known.questions.firstIndex { $0.member == member }
        if let index, known.questions[index].connections.count < PendingJoins.connectionsPerQuestion {
            pendingJoins[number]?.questions[index].connections.append(id)
            beginAsking(id, channel: number, at: now)
            return [pending]
        }
        guard index == nil, known.questions.count < limits.pendingJoinsMaximum, known.bucket.take(at: now) else {
            return refuseInvitation(
                .tooMany, "too many members wait for the creator's answer", to: id,
                retryAfter: limits.pendingJoinInterval)
        }
        known.questions.append(.init(member: member, connections: [id]))
        pendingJoins[number] = known
        beginAsking(id, channel: number, at: now)
        return [pending, .note(.joinPending(channel: channels[number].name, member: member, name: name))]
    }

    private mutating func beginAsking(_ id: ConnectionID, channel number: Int, at now: Instant) {
        connections[id]?.state = .asking(channel: number)
        wait(for: id, until: now + limits.pendingJoinTime)
    }

    /// The creator has answered. It has no effect if that newcomer is no longer waiting.
    mutating func decide(
        _ isAdmitted: Bool, about member: MemberID, _ channel: ChannelID, at now: Instant
    ) -> [Action] {
        guard let number = channelNumbers[channel],
            pendingJoins[number]?.questions.contains(where: { $0.member == member }) == true
        else { return [] }
        guard isAdmitted else { return settle(member, channel: number, .refused, at: now) }
        let kept = Array(((pendingJoins[number]?.admitted ?? []) + [member]).suffix(limits.admittedMembersKept))
        pendingJoins[number]?.admitted = kept
        return settle(member, channel: number, .admitted, at: now)
    }

    /// The creator has not answered in time.
    mutating func unanswered(_ id: ConnectionID, channel number: Int, at now: Instant) -> [Action] {
        connections[id].map { settle($0.member, channel: number, .unanswered, at: now) } ?? []
    }

    /// The channel has ended: all pending requests end.
    mutating func endQuestions(channel number: Int, at now: Instant) -> [Action] {
        let waiting = pendingJoins[number]?.questions.map(\.member) ?? []
        let actions = waiting.flatMap { settle($0, channel: number, .gone, at: now) }
        for id in pendingJoins[number].map({ Array($0.proofs.keys) }) ?? [] { connections[id]?.state = .joining }
        pendingJoins[number] = nil
        return actions
    }

    /// Reports the outcome of its request to a newcomer.
    private mutating func settle(
        _ member: MemberID, channel number: Int, _ fate: PendingJoinOutcome, at now: Instant
    ) -> [Action] {
        guard let index = pendingJoins[number]?.questions.firstIndex(where: { $0.member == member }),
            let question = pendingJoins[number]?.questions.remove(at: index)
        else { return [] }
        var actions = [Action.note(.joinSettled(channel: channels[number].name, member: member, fate))]
        for id in question.connections {
            connections[id]?.state = .joining
            wait(for: id, until: now + limits.joinTime)
            switch fate {
            case .admitted: actions += invite(id, to: number)
            case .refused: actions += refuseInvitation(.notAdmitted, "the creator refused", to: id)
            case .unanswered: actions += refuseInvitation(.notAdmitted, "the creator did not answer", to: id)
            case .gone: actions += refuseInvitation(.notOpen, "the channel has ended", to: id)
            }
        }
        return actions
    }

    /// A connection with a pending request has closed.
    mutating func stopAsking(_ id: ConnectionID, _ member: MemberID, channel number: Int) -> [Action] {
        guard let index = pendingJoins[number]?.questions.firstIndex(where: { $0.member == member }) else { return [] }
        pendingJoins[number]?.questions[index].connections.removeAll { $0 == id }
        guard pendingJoins[number]?.questions[index].connections.isEmpty == true else { return [] }
        pendingJoins[number]?.questions.remove(at: index)
        return [.note(.joinSettled(channel: channels[number].name, member: member, .gone))]
    }
}
