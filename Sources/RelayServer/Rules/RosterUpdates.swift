// Join and leave notices of a channel: sent at once while there are few, and in batches while there are many. Pure.
import MonotonicTime
import RelayProtocol

/// Pending join and leave notices for the members of one channel.
///
/// When thousands reconnect at once, announcing each of them to each other one costs a number of writes that grows with
/// the square of their number. So beyond a few changes within `window`, notices are collected until its end and sent
/// together. A batch fits the backlog of a client that has just got the list of all members
/// (`RelayLimits.rosterUpdateBytes`); the rest follows as fast as a slow client reads.
struct RosterUpdates: Sendable, Equatable {
    /// Somebody has come or gone.
    struct Change: Sendable, Equatable {
        let member: MemberID
        /// Its message, encoded for the control stream.
        let frame: [UInt8]
    }

    /// So long news are kept at most.
    static let window: Duration = .milliseconds(200)
    /// Maximum number of changes per window that are sent at once.
    static let calmChanges = 16

    /// The last one of each member, in the order they came.
    private var kept: [Change] = []
    /// Members with changes that were not sent yet.
    private(set) var waiting: Set<MemberID> = []
    private var windowEnds = Instant.zero
    private var toldInWindow = 0
    private var isBusy = false
    /// The rate limit in bytes.
    private var budget: TokenBucket
    /// More changes than this are not kept.
    private let changesMaximum: Int

    init(limits: RelayLimits = RelayLimits()) {
        budget = TokenBucket(depth: limits.rosterUpdateBytes, perSecond: limits.rosterNewsPerSecond, at: .zero)
        // Everybody who is there has come, everybody before has gone, and some come and go.
        changesMaximum = 4 * limits.membersPerChannel
    }

    /// When `take` must be called, at the latest.
    var nextDeadline: Instant? { kept.isEmpty ? nil : windowEnds }

    /// Notes a change. Returns whether it is to be sent at once; otherwise it is kept.
    mutating func note(_ change: Change, at now: Instant) -> Bool {
        if kept.isEmpty, now >= windowEnds {
            windowEnds = now + Self.window
            toldInWindow = 0
            isBusy = false
        }
        if !isBusy, toldInWindow < Self.calmChanges {
            toldInWindow += 1
            return true
        }
        isBusy = true
        if !waiting.insert(change.member).inserted { kept.removeAll { $0.member == change.member } }
        kept.append(change)
        return false
    }

    /// Whether there are unsent changes of `member`.
    func concerns(_ member: MemberID) -> Bool { waiting.contains(member) }

    /// The changes to send now, in order. The rest waits for the end of the window that begins now.
    mutating func take(at now: Instant) -> [Change] {
        windowEnds = now + Self.window
        toldInWindow = 0
        var count = 0
        while count < kept.count,
            kept.count - count > changesMaximum || budget.take(kept[count].frame.count, at: now)
        {
            count += 1
        }
        let told = Array(kept.prefix(count))
        kept.removeFirst(count)
        for change in told { waiting.remove(change.member) }
        return told
    }

    /// Drops all changes, because nobody is there to get them.
    mutating func forget() {
        kept = []
        waiting = []
    }

    /// The unsent change of `member`, which is to be sent before the rest.
    mutating func take(of member: MemberID) -> Change? {
        guard waiting.remove(member) != nil else { return nil }
        return kept.firstIndex { $0.member == member }.map { kept.remove(at: $0) }
    }
}

/// A series of control messages, encoded once for all recipients.
public struct MessageSeries: Sendable, Equatable {
    /// A recipient of a series, and the number of leading messages that it already knows.
    public struct Recipient: Sendable, Equatable {
        /// The connection that they are sent to.
        public var connection: ConnectionID
        /// Of the messages, the first that it gets.
        public var first: Int
        /// `connection` gets the messages from number `first` on.
        public init(_ connection: ConnectionID, from first: Int = 0) {
            self.connection = connection
            self.first = first
        }
    }

    /// Maximum bytes of a piece, unless it is a single message.
    static let pieceBytes = 16_384

    /// All of them, each with its length in front.
    public private(set) var bytes: [UInt8] = []
    /// Where each one ends.
    private(set) var ends: [Int] = []

    /// No messages.
    public init() {}

    /// How many there are.
    public var count: Int { ends.count }

    /// Adds one, framed.
    mutating func append(_ frame: [UInt8]) {
        bytes += frame
        ends.append(bytes.count)
    }

    /// The messages from number `first` on, cut between messages.
    func pieces(from first: Int = 0) -> [[UInt8]] {
        var pieces: [[UInt8]] = []
        var start = first == 0 ? 0 : ends[first - 1]
        var end = start
        for next in ends[first...] {
            if next - start > Self.pieceBytes, end > start {
                pieces.append(Array(bytes[start..<end]))
                start = end
            }
            end = next
        }
        if end > start { pieces.append(Array(bytes[start..<end])) }
        return pieces
    }
}

extension RelayCore {
    /// Tells the others of a channel that `member` has come or gone: now, or with what else is new.
    mutating func announce(
        _ message: ServerMessage, framed: [UInt8]? = nil, of member: MemberID, besides id: ConnectionID,
        channel number: Int, at now: Instant
    ) -> [Action] {
        guard channels[number].members.contains(where: { $0.key != id }) else {
            // What waits is of those who have gone: whoever comes now is welcomed without them.
            channels[number].news.forget()
            return []
        }
        let change = RosterUpdates.Change(member: member, frame: framed ?? message.framed())
        guard channels[number].news.note(change, at: now) else { return [] }
        return [.send(message, to: channels[number].everyone.filter { $0 != id })]
    }

    /// Sends the collected changes. Members that joined meanwhile got the earlier ones in their welcome.
    mutating func tellNews(channel number: Int, at now: Instant) -> [Action] {
        let news = channels[number].news.take(at: now)
        guard !news.isEmpty else { return [] }
        let waiting = channels[number].news.waiting
        var series = MessageSeries()
        var known: [MemberID: Int] = [:]
        for change in news {
            series.append(change.frame)
            known[change.member] = series.count
        }
        let recipients = channels[number].members.values.compactMap { member -> MessageSeries.Recipient? in
            // It came after all of these.
            guard !waiting.contains(member.id) else { return nil }
            let first = known[member.id] ?? 0
            return first < series.count ? .init(member.connection, from: first) : nil
        }
        guard !recipients.isEmpty else { return [] }
        return [.sendSeries(series, to: recipients.sorted { $0.connection < $1.connection })]
    }

    /// A member is about to be heard: its name comes before its voice, whatever else is new.
    mutating func introduce(_ member: RelayChannel.Member, channel number: Int, at now: Instant) -> [Action] {
        guard channels[number].news.concerns(member.id) else { return [] }
        let actions = tellNews(channel: number, at: now)
        guard let change = channels[number].news.take(of: member.id) else { return actions }
        var series = MessageSeries()
        series.append(change.frame)
        let others = channels[number].everyone.filter { $0 != member.connection }
        return actions + [.sendSeries(series, to: others.map { .init($0) })]
    }

    /// Whether a new member's backlog allows the list of all members twice: now, and again if all of them change before
    /// its handshake is complete.
    func isToldTwice(channel number: Int) -> Bool {
        let bytes = channels[number].members.values.reduce(0) { $0 + $1.announcement.count }
        // Of a small crowd there is never too much.
        let room = max(limits.controlBacklog - RelayLimits.otherControlBytes, 2 * RelayLimits.otherControlBytes)
        return 2 * bytes <= room
    }
}
