// Who came to a channel and who went: told at once while few do, and together while many do. Pure.
import MonotonicTime
import RelayProtocol

/// What the members of one channel are still to be told of each other.
///
/// When thousands come back at once, telling each of them of each other one costs as many writes as the square of their number. So
/// beyond a few in `window`, they are kept until its end, and told together. No more is told than a client may have waiting for it that
/// has just been told of everybody (`RelayLimits.rosterUpdateBytes`): the rest comes as fast as a slow one takes it.
struct RosterUpdates: Sendable, Equatable {
    /// Somebody has come or gone.
    struct Change: Sendable, Equatable {
        let member: MemberID
        /// Its message as it goes on the control stream.
        let frame: [UInt8]
    }

    /// So long news are kept at most.
    static let window: Duration = .milliseconds(200)
    /// News of one window that are told at once.
    static let calmChanges = 16

    /// The last one of each member, in the order they came.
    private var kept: [Change] = []
    /// Of whom there is something that is not told yet.
    private(set) var waiting: Set<MemberID> = []
    private var windowEnds = Instant.zero
    private var toldInWindow = 0
    private var isBusy = false
    /// Bytes that may be told.
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

    /// Something is new; whether everybody is to be told at once. Otherwise it is kept.
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

    /// Whether there is something that is not told yet of `member`.
    func concerns(_ member: MemberID) -> Bool { waiting.contains(member) }

    /// What is to be told now, in order; the rest waits for the end of the window that begins.
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

    /// Nobody is there to be told.
    mutating func forget() {
        kept = []
        waiting = []
    }

    /// What is not told yet of `member`, to be told before the rest.
    mutating func take(of member: MemberID) -> Change? {
        guard waiting.remove(member) != nil else { return nil }
        return kept.firstIndex { $0.member == member }.map { kept.remove(at: $0) }
    }
}

/// Control messages as they go on a stream, one behind the other: encoded once, whoever gets them.
public struct MessageSeries: Sendable, Equatable {
    /// Who gets a series, and how many of its first messages it knows already.
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

    /// A piece has at most so many bytes, or one message.
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

    /// Tells what was kept. Who came in the meantime was told of all before it when it was welcomed.
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

    /// Whether a newcomer may be told of everybody now and, if all of them change until its handshake is complete, once more then.
    func isToldTwice(channel number: Int) -> Bool {
        let bytes = channels[number].members.values.reduce(0) { $0 + $1.announcement.count }
        // Of a small crowd there is never too much.
        let room = max(limits.controlBacklog - RelayLimits.otherControlBytes, 2 * RelayLimits.otherControlBytes)
        return 2 * bytes <= room
    }
}
