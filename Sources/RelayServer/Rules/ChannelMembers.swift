// The members of one channel: who is there, who hears, what each knows of the others, and who hosts the channel when this relay goes.
// Pure.
import MonotonicTime
import RelayProtocol

/// The members of a channel on their connections. It tells them who comes and goes, and starts and stops their media.
struct ChannelMembers: Sendable {
    /// How often listeners are looked through for silent ones.
    static let reportCheckInterval: Duration = .seconds(1)

    private let channel: Int
    private var known: [ConnectionID: ChannelMember] = [:]
    /// The connection of each member.
    private(set) var connections: [MemberID: ConnectionID] = [:]
    /// Joins and leaves that were not announced yet.
    private var news: RosterUpdates
    /// When `stopSilent` has something to look at again.
    private(set) var nextReportCheck = Instant.zero

    init(channel: Int, limits: RelayLimits) {
        self.channel = channel
        news = RosterUpdates(limits: limits)
    }

    var count: Int { known.count }
    var isEmpty: Bool { known.isEmpty }
    /// The members, in no order.
    var all: [ConnectionID: ChannelMember].Values { known.values }
    /// What each member calls itself.
    var names: [MemberID: DisplayName] { connections.compactMapValues { known[$0]?.name } }
    /// Every member's connection, oldest first.
    var everyone: [ConnectionID] { known.keys.sorted() }
    /// The same without one.
    func everyone(but id: ConnectionID) -> [ConnectionID] { everyone.filter { $0 != id } }

    /// The member on a connection. It can be changed, but neither added nor removed.
    subscript(id: ConnectionID) -> ChannelMember? {
        get { known[id] }
        set { if let newValue, known[id] != nil { known[id] = newValue } }
    }

    /// The member with that source. Looked up in a walk over the members: floor messages are rare.
    func of(_ ssrc: SSRC) -> ChannelMember? { known.values.first { $0.ssrc == ssrc } }

    /// Why a packet from a connection is dropped; nil: it is looked at. Allocates and copies nothing.
    mutating func refuse(_ source: SSRC, from id: ConnectionID, at now: Instant) -> MediaDrop? {
        guard let place = known.index(forKey: id) else { return .notJoined }
        return known.values[place].refuse(source, at: now)
    }

    /// A member comes: it gets the channel's media, and the others hear of it.
    mutating func insert(_ member: ChannelMember, _ notices: inout TokenBucket, at now: Instant) -> [RelayAction] {
        let id = member.connection
        known[id] = member
        // An early join may be seconds old.
        known[id]?.reportedAt = now
        connections[member.id] = id
        return [
            .startMedia(id, channel: channel, key: member.downlinkKey, ssrc: member.ssrc),
            .takeMedia(id, key: member.uplinkKey, ssrc: member.ssrc),
        ]
            + announce(
                .memberJoined(member.asMessage), framed: member.announcement, of: member.id, but: id, &notices, at: now)
    }

    /// A member goes: its media stop. The others hear of it by `announceLeave`.
    mutating func remove(_ id: ConnectionID) -> [RelayAction] {
        if let member = known.removeValue(forKey: id) { connections[member.id] = nil }
        return [.stopMedia(id, channel: channel)]
    }

    /// All are gone.
    mutating func removeAll() {
        known = [:]
        connections = [:]
        news.forget()
    }

    // MARK: What each knows of the others

    /// When `tellNews` has something to tell.
    var nextDeadline: Instant? { news.nextDeadline }

    /// Tells the others that a member has gone: now, or with what else is new.
    mutating func announceLeave(
        of member: MemberID, from id: ConnectionID, _ notices: inout TokenBucket, at now: Instant
    ) -> [RelayAction] {
        let message = ServerMessage.memberLeft(member)
        return announce(message, framed: message.framed(), of: member, but: id, &notices, at: now)
    }

    private mutating func announce(
        _ message: ServerMessage, framed: [UInt8], of member: MemberID, but id: ConnectionID,
        _ notices: inout TokenBucket, at now: Instant
    ) -> [RelayAction] {
        let others = known.count - (known[id] == nil ? 0 : 1)
        guard others > 0 else {
            // What waits is of those who have gone: whoever comes now is welcomed without them.
            news.forget()
            return []
        }
        guard news.note(.init(member: member, frame: framed), to: others, &notices, at: now) else { return [] }
        return [.send(message, to: everyone(but: id))]
    }

    /// Sends the collected changes. Members that joined meanwhile got the earlier ones in their welcome.
    mutating func tellNews(at now: Instant) -> [RelayAction] {
        let told = news.take(at: now)
        guard !told.isEmpty else { return [] }
        var series = MessageSeries()
        var first: [MemberID: Int] = [:]
        for change in told {
            series.append(change.frame)
            first[change.member] = series.count
        }
        let recipients = known.values.compactMap { member -> MessageSeries.Recipient? in
            // It came after all of these.
            guard !news.concerns(member.id) else { return nil }
            let first = first[member.id] ?? 0
            return first < series.count ? .init(member.connection, from: first) : nil
        }
        return recipients.isEmpty ? [] : [.sendSeries(series, to: recipients.sorted { $0.connection < $1.connection })]
    }

    /// A member is about to be heard: its name comes before its voice, whatever else is new.
    mutating func introduce(_ member: ChannelMember, at now: Instant) -> [RelayAction] {
        guard news.concerns(member.id) else { return [] }
        let actions = tellNews(at: now)
        guard let change = news.take(of: member.id) else { return actions }
        let series = MessageSeries([change.frame])
        return actions + [.sendSeries(series, to: everyone(but: member.connection).map { .init($0) })]
    }

    /// Whether a new member's backlog allows the list of all members twice: now, and again if all of them change before
    /// its handshake is complete.
    func areToldTwice(_ limits: RelayLimits) -> Bool {
        let bytes = known.values.reduce(0) { $0 + $1.announcement.count }
        // Of a small crowd there is never too much.
        let room = max(limits.controlBacklog - RelayLimits.otherControlBytes, 2 * RelayLimits.otherControlBytes)
        return 2 * bytes <= room
    }

    // MARK: Who hears

    /// A burst begins: everyone gets it, and has the whole time-out to report.
    mutating func beginListening(to talker: SSRC, at now: Instant) -> [RelayAction] {
        nextReportCheck = now + Self.reportCheckInterval
        return everyone.flatMap { id in
            known[id]?.reception.begin(talker)
            return hears(id, at: now)
        }
    }

    /// A member shows that it hears: media that had stopped start again.
    mutating func hears(_ id: ConnectionID, at now: Instant) -> [RelayAction] {
        known[id]?.reportedAt = now
        guard let member = known[id], member.isSilent else { return [] }
        known[id]?.isSilent = false
        return [.startMedia(id, channel: channel, key: member.downlinkKey, ssrc: member.ssrc)]
    }

    /// A member reports on its reception: what it reports for the first time.
    mutating func note(_ report: ClientMessage.ReceptionReport, of id: ConnectionID) -> (received: Int, lost: Int)? {
        known[id]?.reception.note(report)
    }

    /// At `nextReportCheck` during a burst: the media of members that have not reported for `timeout` stop, but for the talkers'.
    ///
    /// - Returns: Whose media stop now.
    mutating func stopSilent(after timeout: Duration, but floor: ChannelFloor, at now: Instant) -> [ChannelMember] {
        nextReportCheck = now + Self.reportCheckInterval
        let talkers = floor.talkers
        let silent = everyone.compactMap { known[$0] }.filter {
            !$0.isSilent && !talkers.contains($0.ssrc) && now - $0.reportedAt > timeout
        }
        for member in silent { known[member.connection]?.isSilent = true }
        return silent
    }

    /// How much the listener with the worst reception misses of what that source said last, 0…1.
    func worstLoss(of ssrc: SSRC) -> Double {
        known.values.lazy.filter { !$0.isSilent }.reduce(0) { max($0, $1.reception.loss(of: ssrc) ?? 0) }
    }
}

/// The members that offered to host one channel after this relay.
struct ChannelSuccession: Sendable {
    private var offers: [(connection: ConnectionID, member: MemberID)] = []

    /// Their connections, in the order of the offers.
    var connections: [ConnectionID] { offers.map(\.connection) }

    /// A member offers to host the channel. It gets what it needs for that, and the members whose turn comes before its
    /// own.
    mutating func offer(_ member: ChannelMember, _ channel: RelayChannelConfiguration) -> [RelayAction] {
        let id = member.connection
        guard channel.succession != nil, !connections.contains(id), member.id != channel.hostMember else { return [] }
        offers.append((id, member.id))
        // Behind the published order, it changes nothing for the others.
        return tell(offers.count <= ServerMessage.Succession.orderMaximum ? connections : [id], channel)
    }

    /// A member is there no more.
    mutating func withdraw(_ id: ConnectionID, _ channel: RelayChannelConfiguration) -> [RelayAction] {
        guard let index = connections.firstIndex(of: id) else { return [] }
        offers.remove(at: index)
        return index < ServerMessage.Succession.orderMaximum ? tell(connections, channel) : []
    }

    private func tell(_ ids: [ConnectionID], _ channel: RelayChannelConfiguration) -> [RelayAction] {
        guard let succession = channel.succession, !ids.isEmpty, !seededFault("nobody-is-told-how-to-host") else {
            return []
        }
        let order = offers.prefix(ServerMessage.Succession.orderMaximum).map(\.member)
        return [.send(.succession(succession.with(order: order)), to: ids)]
    }
}
