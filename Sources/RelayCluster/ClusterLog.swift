// The log of a cluster in JetStream: appended to by the node that serves, and applied by all. Calls block.
import Cryptography
import Glibc
import MonotonicTime
import NATS
import RelayStore
import Synchronization

/// The log, for the node that serves.
///
/// Each message names the one before it (JetStream's expected last sequence of the stream). So a node that another one has followed, though it
/// does not know yet, can write nothing: the first message of an epoch is the new holder's.
final class ClusterLog: RecordLog {
    private struct State {
        /// Nil: this node does not serve.
        var epoch: UInt64?
        /// Behind the parts of records that were given up.
        var end: UInt64 = 0
        var failedAt: Instant?
    }

    private let connection: NATSConnection
    private let stream: NATSStream
    private let relay: ClusterIdentity
    private let state = Mutex(State())
    private let onLoss: @Sendable (_ why: String?) -> Void

    /// How long a transaction waits for JetStream…
    private static let waitLimit: Duration = .seconds(3)
    /// …and how long after another one has waited in vain.
    private static let shortWaitLimit: Duration = .milliseconds(300)
    private static let pause: UInt32 = 100_000
    /// How long a beginning waits, which has many messages.
    private static let beginningWaitLimit: Duration = .seconds(10)
    /// The longest message, whatever the servers take.
    static let messageMaximum = 512 * 1_024

    /// - Parameter onLoss: Called when another node has written (nil), or the log has what this node has not.
    init(
        _ connection: NATSConnection, _ stream: NATSStream, of relay: ClusterIdentity,
        onLoss: @escaping @Sendable (_ why: String?) -> Void
    ) {
        self.connection = connection
        self.stream = stream
        self.relay = relay
        self.onLoss = onLoss
    }

    var messageMaximum: Int { min(Self.messageMaximum, max(2_048, connection.payloadMaximum) - 1_024) }

    /// This node serves, and has written the first message of `epoch` at `position`.
    func begin(_ epoch: UInt64, at position: UInt64) {
        state.withLock { $0 = State(epoch: epoch, end: position) }
    }

    func append(_ changes: [UInt8], behind place: LogPlace) throws -> UInt64 {
        try append(.changes(changes), behind: place, within: Self.waitLimit).upperBound
    }

    /// Appends all records as they are.
    ///
    /// - Returns: The positions of the messages.
    func append(_ beginning: ClusterRecord.Beginning, behind place: LogPlace) throws -> ClosedRange<UInt64> {
        try append(.beginning(beginning), behind: place, within: Self.beginningWaitLimit)
    }

    private func append(
        _ record: ClusterRecord, behind place: LogPlace, within limit: Duration
    ) throws -> ClosedRange<UInt64> {
        let (epoch, end, failedAt) = state.withLock { ($0.epoch, $0.end, $0.failedAt) }
        guard let epoch else { throw ClusterError.fenced }
        guard let messages = record.messages(epoch: epoch, byteCountMaximum: messageMaximum) else {
            throw ClusterError.tooMuch
        }
        let isShort = failedAt.map { .now - $0 < Self.waitLimit } ?? false
        let deadline = Instant.now + (isShort ? Self.shortWaitLimit : limit)
        let first = max(place.position, end) + 1
        var last = first - 1
        do {
            for message in messages {
                last = try append(message, behind: last, of: place.cluster, until: deadline)
                state.withLock { ($0.end, $0.failedAt) = (last, nil) }
            }
        } catch let error as NATSError {
            state.withLock { $0.failedAt = .now }
            throw error
        }
        return first...last
    }

    private func append(
        _ plain: [UInt8], behind last: UInt64, of cluster: String, until deadline: Instant
    ) throws -> UInt64 {
        let message = relay.seal(plain, at: last + 1, of: cluster)
        var isRepeated = false
        while true {
            do throws(NATSError) {
                let wait = min(.seconds(1), max(deadline - .now, .milliseconds(50)))
                return try connection.publish(
                    message, to: stream.subject, of: stream.name, after: .ofStream(last), wait: wait)
            } catch {
                switch error.kind {
                case .otherLast:
                    // Its own, whose acknowledgement was lost.
                    if isRepeated, let there = try connection.message(last + 1, of: stream.name, wait: .seconds(1)),
                        there.bytes == message
                    {
                        return there.sequence
                    }
                    lose(nil)
                    throw ClusterError.fenced
                case .noAnswer, .unavailable, .unreachable:
                    guard .now < deadline else { throw error }
                    isRepeated = true
                    usleep(Self.pause)
                default: throw error
                }
            }
        }
    }

    /// This node writes no more.
    ///
    /// - Parameter epoch: The one that is over; a later one may have begun meanwhile. Nil: whatever it is.
    func end(_ epoch: UInt64? = nil) {
        state.withLock { if epoch == nil || $0.epoch == epoch { $0.epoch = nil } }
    }

    func isAhead(because error: any Error) { lose("\(error)") }

    private func lose(_ why: String?) {
        state.withLock { $0.epoch = nil }
        onLoss(why)
    }
}

/// The log, for a node that follows.
struct ClusterFollower {
    let connection: NATSConnection
    let configuration: ClusterConfiguration
    let description: ClusterDescription
    let store: RelayStore
    let relay: ClusterIdentity

    private var stream: NATSStream { configuration.log }
    private static let wait: Duration = .seconds(2)
    private static let looks = 5
    private static let lookPause: UInt32 = 200_000
    /// Changes that are one transaction of the file: at most so many, and so many bytes.
    private static let changesEach = 256
    private static let bytesEach = 4 << 20

    /// Applies what is new, up to `messagesMaximum` messages.
    ///
    /// - Returns: Where the file is now, whether that is the end of the log, and what has changed.
    func follow(messagesMaximum: Int = 2_000) throws -> (place: LogPlace, isEnd: Bool, changes: RecordChanges) {
        let known = try store.logPlace()
        if let known, known.cluster != description.cluster { throw ClusterError.hasRecords(configuration.name) }
        do {
            guard let known else { return try begin(description, messagesMaximum) }
            return try follow(from: known, known.position + 1, messagesMaximum)
        } catch let error as ClusterError {
            let now = try ClusterAdministration.description(
                configuration, connection, of: relay.pin, wait: Self.wait)
            guard let now else { throw ClusterError.noRecords(configuration.name) }
            guard now.cluster == description.cluster else { throw ClusterError.hasRecords(configuration.name) }
            // The log was shortened while this node did not follow: it takes all records as they are now.
            guard case .incomplete = error, now.first > known?.position ?? description.first else { throw error }
            return try begin(now, messagesMaximum)
        }
    }

    private func begin(
        _ description: ClusterDescription, _ messagesMaximum: Int
    ) throws -> (LogPlace, Bool, RecordChanges) {
        try follow(
            from: LogPlace(cluster: description.cluster, epoch: 0, position: 0), description.first, messagesMaximum)
    }

    private func follow(
        from known: LogPlace, _ first: UInt64, _ messagesMaximum: Int
    ) throws -> (LogPlace, Bool, RecordChanges) {
        var (place, next) = (known, first)
        var all = RecordChanges()
        var reader = ClusterRecordReader()
        var changes: [[UInt8]] = []
        var taken = 0
        // A record is taken whole, however many messages it has.
        while taken < messagesMaximum || !reader.isBetweenRecords {
            guard let message = try connection.message(next, of: stream.name, wait: Self.wait) else {
                guard try place.position > 0 && isNext(next) else { throw ClusterError.incomplete(position: next) }
                try keep(&changes, at: place, &all)
                return (place, true, all)
            }
            guard let plain = relay.open(message.bytes, at: next, of: place.cluster) else {
                throw ClusterError.forged(position: next)
            }
            switch reader.take(plain) {
            case .part: break
            case .unreadable: throw ClusterError.unreadable(position: next)
            case .record(let record, let epoch):
                switch record {
                case .beginning(let beginning):
                    guard Hexadecimal.encode(beginning.cluster) == place.cluster else {
                        throw ClusterError.unreadable(position: next)
                    }
                    // A node that has followed so far has these records.
                    let isFirst = place.position == 0
                    (place.epoch, place.position) = (epoch, next)
                    if isFirst {
                        all.formUnion(try store.apply(beginning.changes, upTo: place, isBeginning: true))
                    }
                case .epoch: (place.epoch, place.position) = (epoch, next)
                case .changes(let bytes):
                    changes.append(bytes)
                    place.position = next
                }
                if changes.count >= Self.changesEach || changes.reduce(0, { $0 + $1.count }) >= Self.bytesEach {
                    try keep(&changes, at: place, &all)
                }
            }
            next += 1
            taken += 1
        }
        try keep(&changes, at: place, &all)
        return (place, false, all)
    }

    /// Whether the next message of the log has that position: the log begins before it, and does not end before what the file has.
    private func isNext(_ position: UInt64) throws -> Bool {
        for _ in 0..<Self.looks {
            let state = try connection.state(of: stream.name, wait: Self.wait)
            guard state.first <= position else { return false }
            if state.last >= position - 1 { return true }
            // A server that has just become the one that leads may not have all of it yet.
            usleep(Self.lookPause)
        }
        return false
    }

    private func keep(_ changes: inout [[UInt8]], at place: LogPlace, _ all: inout RecordChanges) throws {
        guard try store.logPlace() != place else { return }
        all.formUnion(try store.apply(changes, upTo: place))
        changes = []
    }

    /// Applies all there is, and writes the first message of `epoch` behind it.
    ///
    /// - Returns: Its position, and what has changed.
    func take(epoch: UInt64) throws -> (position: UInt64, changes: RecordChanges) {
        var all = RecordChanges()
        while true {
            var (place, isEnd, changes) = try follow()
            all.formUnion(changes)
            guard isEnd else { continue }
            // A later one has begun: this is a catch-up that took too long.
            if place.epoch > epoch { throw ClusterError.fenced }
            guard let message = ClusterRecord.epoch(epoch).messages(epoch: epoch, byteCountMaximum: 1_024)?.first else {
                throw ClusterError.tooMuch
            }
            // Behind the parts that its predecessor may have left.
            var last = place.position
            while try connection.message(last + 1, of: stream.name, wait: Self.wait) != nil { last += 1 }
            do throws(NATSError) {
                place.position = try connection.publish(
                    relay.seal(message, at: last + 1, of: place.cluster), to: stream.subject, of: stream.name,
                    after: .ofStream(last), wait: Self.wait)
            } catch {
                guard error.kind == .otherLast else { throw error }
                continue
            }
            place.epoch = epoch
            try store.apply([], upTo: place)
            return (place.position, all)
        }
    }
}
