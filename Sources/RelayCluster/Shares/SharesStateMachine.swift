// Which shares of the channels a relay of a cluster serves, and when it gives them to others. Pure.
import MonotonicTime
import RelayProtocol

/// One relay's part in a cluster.
///
/// A share's owner is the relay that `ShareTable` names, as long as that relay renews its entry: it ends `Timers.margin` before others may remove
/// it. They do when the entry was not renewed for `Timers.lease` (counted from when they saw the last renewal); or for `Timers.early`, where
/// a majority consents (`ShareVotes`); or when the relay's port is closed, so that its process has ended. Every write names what the writer has
/// read (`ShareTableChain`); so a relay is removed before its next renewal or after it, and notices the former by its refusal.
///
/// A share moves so that nobody is granted a floor by two relays: its owner stops granting floors where nobody talks (`Action.pause`), writes
/// the new owner and the channels on which somebody talks, and only then sends the members there. The new owner grants no floor of the
/// channels that are listed, until the earlier one has taken them from the list, or is gone.
public struct SharesStateMachine: Sendable {
    /// Shares that are about to be given to others.
    private struct Handover {
        enum Progress { case pausing, paused(since: Instant), cancelled }
        var targets: [Int: String]
        var busy: [Int: Set<String>] = [:]
        var progress = Progress.pausing
    }

    private let own: ShareTable.Node
    private let shareCount: Int
    private let timers: Timers
    /// The table as it was read last.
    private(set) var table: ShareTable?
    private var revision: UInt64 = 0
    /// When the table was read or written last.
    private var readAt: Instant?
    /// What the relays' entries counted, and when that was first seen.
    private var renewals: [String: (count: UInt64, at: Instant)] = [:]
    private var closed: Set<String> = []
    /// The shares that this relay serves, with the channels of each whose floors another one still has.
    private var held: [Int: Set<String>] = [:]
    /// The channels of shares of others on which somebody still talks here.
    private var finishing: [Int: Set<String>] = [:]
    private var handover: Handover?
    private var mayBalanceAt = Instant.zero
    private var watched: [String: String] = [:]
    private var told: [Place] = []
    private var toldWriter: ShareTable.Writer?
    private var releasedBy: Instant?
    private var hasReleased = false
    private var hasStarted = false
    private var hasEnded = false
    private var isReady = false
    /// The last epoch in which a relay has written records, as far as is known: the table may have been lost since.
    private var recordEpoch: UInt64 = 0
    /// When its entry was written last, as far as is known, counted from when that was asked for; nil: it has none yet.
    private var heldAt: Instant?
    private var votes: ShareVotes
    /// The voters of what was written last, and of what may have been written since.
    private var voters: [Set<String>] = []
    private var voteAt = Instant.zero
    private var askedAt: Instant?
    private var asked: ShareTable?
    private var askAt = Instant.zero
    private var renewAt = Instant.zero
    private var mustRead = true

    /// A relay that begins.
    public init(_ own: ClusterMember, shares count: Int = ChannelID.shareCount, timers: Timers = Timers()) {
        shareCount = count
        votes = ShareVotes(timers)
        self.own = ShareTable.Node(own)
        self.timers = timers
    }

    /// The shares that this relay serves.
    public var shares: Set<Int> { Set(held.keys) }

    /// When `.deadline` is due; nil: never.
    public var nextDeadline: Instant? {
        if hasEnded || !hasStarted { return nil }
        return [askedAt == nil ? askAt : nil, expiry, doubtAt, hasReleased ? nil : releasedBy].compactMap(\.self).min()
    }

    /// When this relay ends, unless it renews its entry or gets promises.
    private var expiry: Instant? {
        guard let heldAt, !seededFault("a-relay-serves-on-without-its-entry") else { return nil }
        let last = heldAt + timers.lease - timers.margin
        // Whichever of these the others have read: a majority of it has to have promised.
        return voters.filter { $0.count >= Self.votersMinimum }.reduce(last) { last, voters in
            let early = heldAt + timers.early - timers.margin
            return min(last, max(early, votes.promisedUntil(by: voters, own: own.incarnation) ?? early))
        }
    }

    /// When promises are asked for the next time.
    private var doubtAt: Instant? {
        guard let heldAt, voters.contains(where: { $0.count >= Self.votersMinimum }) else { return nil }
        return max(heldAt + timers.doubt, voteAt)
    }

    /// Of two, none is a majority.
    private static let votersMinimum = 3

    /// Answers what another relay asks.
    mutating func answer(_ question: ShareVotes.Question, of asker: String, at now: Instant) -> Bool {
        guard !hasEnded, table?.node(asker) != nil else { return false }
        switch question {
        case .promise: return votes.promise(asker, at: now)
        case .consent(let relay):
            guard relay != own.incarnation, isOld(relay, for: timers.doubt, at: now) else { return false }
            return votes.consent(to: relay, at: now)
        }
    }

    /// Whether that relay's entry was not renewed for so long, as far as was seen here.
    private func isOld(_ relay: String, for time: Duration, at now: Instant) -> Bool {
        renewals[relay].map { now - $0.at >= time } ?? true
    }

    /// What is to be done about an event.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        if hasEnded { return [] }
        if let expiry, now >= expiry { return end(.leaseLost) }
        switch event {
        case .start:
            hasStarted = true
            return ask(at: now)
        case .deadline:
            cancelOverdue(at: now)
            return vote(at: now) + ask(at: now) + releaseWhenDone(at: now)
        case .read(let table, let revision):
            askedAt = nil
            mustRead = false
            return adopt(table, revision, at: now)
        case .written(let revision):
            guard let sent = askedAt, let asked else { return [] }
            askedAt = nil
            heldAt = sent
            voters = [asked.node(own.incarnation)?.voters ?? []]
            renewAt = sent + timers.renewal
            return adopt(asked, revision, isOwn: true, at: now)
        case .refused:
            askedAt = nil
            mustRead = true
            return askNow(at: now)
        case .readFailed, .writeFailed:
            askedAt = nil
            // Of a write nobody knows whether it was made.
            mustRead = true
            askAt = now + timers.retry
            cancelOverdue(at: now)
            return []
        case .forked: return end(.forked)
        case .portClosed(let incarnation):
            closed.insert(incarnation)
            return askNow(at: now)
        case .follows(let follows, let epoch):
            recordEpoch = max(recordEpoch, epoch)
            guard isReady != follows else { return [] }
            isReady = follows
            return askNow(at: now)
        case .paused(let busy): return paused(busy, at: now)
        case .left(let channel):
            guard let share = finishing.first(where: { $0.value.contains(channel) })?.key else { return [] }
            finishing[share]?.remove(channel)
            return askNow(at: now)
        case .promised(let relay, let sent):
            votes.note(promiseOf: relay, askedAt: sent)
            return []
        case .consented(let relay, let gone):
            votes.note(consentOf: relay, to: gone)
            return isGone(gone) ? askNow(at: now) : []
        case .release:
            guard releasedBy == nil else { return [] }
            releasedBy = now + timers.release
            return beginHandover(at: now) + askNow(at: now) + releaseWhenDone(at: now)
        }
    }

    // MARK: Asking

    private mutating func askNow(at now: Instant) -> [Action] {
        askAt = now
        return ask(at: now)
    }

    /// Reads the table, or writes it if this relay has something to say. What it says is of a table that was read just now: others write, too.
    private mutating func ask(at now: Instant) -> [Action] {
        guard hasStarted, askedAt == nil, now >= askAt else { return [] }
        asked = nil
        if !mustRead, readAt == now {
            guard let wanted = wanted(at: now) else { return end(.tooMany) }
            guard isDue(wanted, at: now) else {
                askAt = now + (hasHeld ? timers.heldPoll : timers.poll)
                return []
            }
            asked = wanted
        }
        askedAt = now
        guard let asked else { return [.read] }
        if heldAt != nil, let own = asked.node(own.incarnation), !voters.contains(own.voters) {
            voters.append(own.voters)
        }
        return [.write(asked, over: revision)]
    }

    private var hasHeld: Bool { held.values.contains { !$0.isEmpty } }

    private func isDue(_ wanted: ShareTable, at now: Instant) -> Bool {
        if heldAt == nil || now >= renewAt { return true }
        if case .cancelled? = handover?.progress { return true }
        return wanted.shares != table?.shares || wanted.writer != table?.writer
            || wanted.nodes.count != table?.nodes.count
            || wanted.node(own.incarnation)?.isReady != table?.node(own.incarnation)?.isReady
    }

    /// The table as this relay would have it; nil: it has no place in it.
    private func wanted(at now: Instant) -> ShareTable? {
        var wanted = table ?? ShareTable(shares: shareCount)
        for node in wanted.nodes where node.incarnation != own.incarnation && isGone(node, at: now) {
            wanted.remove(node.incarnation)
        }
        var entry = own
        entry.renewals = (wanted.node(own.incarnation)?.renewals ?? 0) &+ 1
        entry.isReady = isReady && releasedBy == nil
        guard wanted.enter(entry) else { return nil }
        entry.voters = Set(wanted.nodes.map(\.incarnation))
        guard wanted.enter(entry) else { return nil }
        for share in wanted.shares.indices
        where wanted.shares[share].owner == own.incarnation && wanted.shares[share].earlier == own.incarnation {
            (wanted.shares[share].earlier, wanted.shares[share].held) = (nil, [])
        }
        for (share, channels) in finishing where wanted.shares[share].earlier == own.incarnation {
            wanted.shares[share].held = channels.sorted()
            if channels.isEmpty { wanted.shares[share].earlier = nil }
        }
        if let handover, case .paused = handover.progress {
            for (share, target) in handover.targets where wanted.shares[share].owner == own.incarnation {
                guard wanted.node(target)?.isReady == true else { continue }
                let busy = handover.busy[share] ?? []
                wanted.give(share, to: target)
                wanted.shares[share].earlier = busy.isEmpty ? nil : own.incarnation
                wanted.shares[share].held = seededFault("channels-are-given-away-without-a-list") ? [] : busy.sorted()
            }
        }
        wanted.assignFree()
        wanted.assignWriter(
            insteadOf: releasedBy == nil ? nil : own.incarnation, preferring: own.incarnation, after: recordEpoch)
        return wanted
    }

    private func isGone(_ node: ShareTable.Node, at now: Instant) -> Bool {
        if closed.contains(node.incarnation) { return true }
        guard let seen = renewals[node.incarnation], seen.count == node.renewals else { return false }
        return now - seen.at >= timers.lease || now - seen.at >= timers.early && isGone(node.incarnation)
    }

    /// Whether a majority of a relay's voters consents to the removal of its entry.
    private func isGone(_ relay: String) -> Bool {
        guard let voters = table?.node(relay)?.voters, voters.count >= Self.votersMinimum else { return false }
        return votes.isConsented(to: relay, by: voters)
    }

    // MARK: Votes

    /// Asks for promises when the own entry cannot be renewed, and for consents when another one's is not, but the own one is.
    private mutating func vote(at now: Instant) -> [Action] {
        guard let heldAt, let table, now >= voteAt else { return [] }
        if now - heldAt >= timers.doubt {
            voteAt = now + timers.vote
            let others = voters.reduce(into: Set<String>()) { $0.formUnion($1) }.subtracting([own.incarnation])
            return others.isEmpty ? [] : [.askForPromises(others.sorted())]
        }
        var actions: [Action] = []
        for node in table.nodes where node.incarnation != own.incarnation && node.voters.count >= Self.votersMinimum {
            guard isOld(node.incarnation, for: timers.early, at: now), !isGone(node.incarnation) else { continue }
            voteAt = now + timers.vote
            if votes.consent(to: node.incarnation, at: now) {
                votes.note(consentOf: own.incarnation, to: node.incarnation)
            }
            let others = node.voters.subtracting([own.incarnation, node.incarnation])
            actions.append(.askForConsent(to: node.incarnation, others.sorted()))
        }
        return actions
    }

    // MARK: The table

    private mutating func adopt(
        _ new: ShareTable?, _ revision: UInt64, isOwn: Bool = false, at now: Instant
    ) -> [Action] {
        (table, self.revision, readAt) = (new, revision, now)
        let nodes = new?.nodes ?? []
        for node in nodes where renewals[node.incarnation]?.count != node.renewals {
            renewals[node.incarnation] = (node.renewals, now)
        }
        let known = Set(nodes.map(\.incarnation))
        votes.keep(known, renewed: Set(nodes.filter { renewals[$0.incarnation]?.at == now }.map(\.incarnation)))
        renewals = renewals.filter { known.contains($0.key) }
        closed.formIntersection(known)
        if heldAt != nil, !known.contains(own.incarnation) { return end(.removed) }
        var actions = settle(isOwn: isOwn)
        askAt = now
        actions += beginHandover(at: now)
        actions += ask(at: now)
        return actions + releaseWhenDone(at: now)
    }

    /// Does what the table says.
    private mutating func settle(isOwn: Bool) -> [Action] {
        guard let table, heldAt != nil else { return tellPlaces() }
        var actions: [Action] = []
        for (number, share) in table.shares.enumerated() {
            if share.owner == own.incarnation {
                let isShared = share.earlier != own.incarnation && table.node(share.earlier) != nil
                let others = isShared ? Set(share.held) : []
                if let before = held[number] {
                    let free = before.subtracting(others)
                    if !free.isEmpty { actions.append(.unhold(free)) }
                    held[number] = before.intersection(others)
                } else {
                    // What it was about to give away, and has got back.
                    finishing[number] = nil
                    held[number] = others
                    actions.append(.take(number, held: others))
                }
            } else if held.removeValue(forKey: number) != nil {
                let busy = handover?.busy[number] ?? []
                if !busy.isEmpty { finishing[number] = busy }
                handover?.targets[number] = nil
                actions += tellPlaces()
                actions.append(.move(number, to: table.node(share.owner)?.place ?? ""))
            }
        }
        finishing = finishing.filter { !$0.value.isEmpty || table.shares[$0.key].earlier == own.incarnation }
        if isOwn, case .cancelled? = handover?.progress, let handover {
            // No write that is on its way can give them away any more.
            actions.append(.resume(handover.targets.keys.sorted()))
            self.handover = nil
        }
        if handover?.targets.isEmpty ?? false { handover = nil }
        return actions + tellPlaces() + tellWriter() + watchOthers()
    }

    private mutating func tellPlaces() -> [Action] {
        guard let table else { return [] }
        let places = table.shares.enumerated().map { number, share -> Place in
            if held[number] != nil { return .here }
            guard let owner = table.node(share.owner), owner.incarnation != own.incarnation else { return .nowhere }
            return .elsewhere(owner.place, web: owner.web)
        }
        guard places != told else { return [] }
        told = places
        return [.places(places)]
    }

    private mutating func tellWriter() -> [Action] {
        let node = table?.node(table?.writer?.incarnation)
        let writer = node == nil ? nil : table?.writer
        guard writer != toldWriter else { return [] }
        toldWriter = writer
        return [.writer(node?.member, epoch: writer?.epoch ?? 0)]
    }

    private mutating func watchOthers() -> [Action] {
        let others = (table?.nodes ?? []).filter { $0.incarnation != own.incarnation }
        let places = Dictionary(others.map { ($0.incarnation, $0.place) }) { first, _ in first }
        guard places != watched else { return [] }
        watched = places
        return [.watch(places)]
    }

    // MARK: Giving shares away

    /// Begins to give shares to others: to those that have fewer, or all of them when this relay goes.
    private mutating func beginHandover(at now: Instant) -> [Action] {
        guard handover == nil, let table, !held.isEmpty else { return [] }
        var loads = table.readyLoads(except: own.incarnation)
        guard !loads.isEmpty else { return [] }
        let settled = held.filter { $0.value.isEmpty && table.shares[$0.key].owner == own.incarnation }.keys.sorted()
        let count: Int
        if releasedBy != nil {
            count = settled.count
        } else {
            guard isReady, now >= mayBalanceAt, finishing.count < timers.sharesAtOnce else { return [] }
            let fair = (table.shares.count + loads.count) / (loads.count + 1)
            let room = loads.values.reduce(0) { $0 + max(0, fair - $1) }
            count = min(timers.sharesAtOnce, held.count - fair, room)
        }
        guard count > 0 else { return [] }
        mayBalanceAt = now + timers.balance
        var targets: [Int: String] = [:]
        for share in settled.suffix(count) {
            guard let least = ShareTable.least(loads) else { break }
            targets[share] = least
            loads[least, default: 0] += 1
        }
        guard !targets.isEmpty else { return [] }
        handover = Handover(targets: targets)
        return [.pause(targets.keys.sorted())]
    }

    private mutating func paused(_ busy: [Int: Set<String>], at now: Instant) -> [Action] {
        guard var handover, case .pausing = handover.progress else { return [] }
        handover.busy = busy
        handover.progress = .paused(since: now)
        let crowded = handover.targets.keys.filter { (busy[$0]?.count ?? 0) > ShareTable.heldMaximum }.sorted()
        for share in crowded { handover.targets[share] = nil }
        self.handover = handover.targets.isEmpty ? nil : handover
        return (crowded.isEmpty ? [] : [.resume(crowded)]) + askNow(at: now)
    }

    /// Gives up what the table has not taken for too long. The floors wait until it is certain that it will not.
    private mutating func cancelOverdue(at now: Instant) {
        guard case .paused(let since)? = handover?.progress, now - since >= timers.pause else { return }
        handover?.progress = .cancelled
    }

    private mutating func releaseWhenDone(at now: Instant) -> [Action] {
        guard let releasedBy, !hasReleased else { return [] }
        let isWriter = table?.writer?.incarnation == own.incarnation
        // By a table that was read since. One that is there and not ready has just begun: it may take the shares in a moment.
        let isAlone =
            readAt.map { $0 >= releasedBy - timers.release } == true
            && table?.nodes.allSatisfy { $0.incarnation == own.incarnation } != false
        let isDone = held.isEmpty && !isWriter || isAlone || heldAt == nil
        guard isDone || now >= releasedBy else { return [] }
        hasReleased = true
        return [.released]
    }

    private mutating func end(_ reason: End) -> [Action] {
        hasEnded = true
        return [.end(reason)]
    }
}
