// The table of shares in its stream: which of the messages there count.
import Cryptography
import FoundationEssentials
import MonotonicTime
import NATS
import Synchronization

/// A message of the stream of the table: the table as a relay would have it, and the message that the relay has read.
///
/// A message counts if it names the last one that counts, so of several relays that write at the same time the first one succeeds. The servers
/// are not asked to refuse the others: a server of NATS 2.9.10 that leads a stream, and has refused messages when it led it before,
/// drops as many messages as others have stored since then, and with several writers some are refused all the time.
struct ShareTableMessage: Equatable, Sendable {
    private struct Body: Codable {
        var over: UInt64
        var parent: String?
        var table: ShareTable
    }

    /// The sequence number of the message that its writer has read; 0: there was none.
    let over: UInt64
    /// The digest of that message; nil: there was none, or an earlier version has written this one.
    let parent: String?
    let table: ShareTable
    /// The message as it is in the stream.
    let message: [UInt8]
    /// Tells it from another one that has its sequence number where servers have lost some.
    let digest: String

    /// The longest one that is read.
    private static let bytesMaximum = 1 << 20
    private static let digestByteCount = 8

    init(over: UInt64, parent: String? = nil, table: ShareTable) {
        (self.over, self.parent, self.table) = (over, parent, table)
        message = (try? JSONEncoder().encode(Body(over: over, parent: parent, table: table))).map { Array($0) } ?? []
        digest = Self.digest(message)
    }

    /// What a message says; nil: something else, or what a later version has written.
    init?(message: [UInt8]) {
        guard message.count <= Self.bytesMaximum,
            let body = try? JSONDecoder().decode(Body.self, from: Data(message)), body.table.isPossible
        else { return nil }
        (over, parent, table) = (body.over, body.parent, body.table)
        self.message = message
        digest = Self.digest(message)
    }

    private static func digest(_ bytes: [UInt8]) -> String {
        Hexadecimal.encode(Array(sha256(bytes).prefix(digestByteCount)))
    }

    static func == (one: Self, other: Self) -> Bool {
        (one.over, one.parent) == (other.over, other.parent) && one.table == other.table
    }
}

/// The messages of the stream, in their order. Pure.
///
/// All who read the same messages agree on those that count. Servers that lose messages, or say that they have, make relays disagree: each
/// goes on with what it has read, and takes the others' messages for those of relays that were too late. So a relay that finds a
/// message over one that does not count for it knows that it disagrees (`isForked`). Then it has to begin anew, like the others.
struct ShareTableChain: Sendable {
    /// How many messages the stream keeps. A relay that begins finds among them one that counts: those that a later one names do.
    static let messagesKept = 256

    private struct Link: Equatable, Sendable {
        var sequence: UInt64
        var digest: String
    }

    /// The messages that count, the last ones.
    private var links: [Link] = []
    /// The sequence number of the last message that counts; 0: there is none.
    var accepted: UInt64 { links.last?.sequence ?? 0 }
    /// Its digest.
    var digest: String? { links.last?.digest }
    /// What that one says.
    private(set) var table: ShareTable?
    /// The last message that was looked at.
    private(set) var seen: UInt64 = 0
    /// Whether another relay has read something else.
    private(set) var isForked = false

    /// The next message; nil: it is no table, and does not count.
    mutating func take(_ message: ShareTableMessage?, at sequence: UInt64) {
        guard sequence > seen else { return }
        seen = sequence
        guard let message else { return }
        if follows(message) {
            links.append(Link(sequence: sequence, digest: message.digest))
            if links.count > Self.messagesKept { links.removeFirst() }
            table = message.table
        } else {
            isForked = isForked || isForeign(message)
        }
    }

    private func follows(_ message: ShareTableMessage) -> Bool {
        message.over == accepted && (message.parent == nil || digest == nil || message.parent == digest)
    }

    /// Whether its writer took one for the last that counts which never did.
    private func isForeign(_ message: ShareTableMessage) -> Bool {
        // What was before those that are kept nobody knows any more.
        guard let oldest = links.first, message.over >= oldest.sequence else { return false }
        guard let link = links.last(where: { $0.sequence == message.over }) else { return true }
        return message.parent != nil && message.parent != link.digest
    }

    /// Looks at all messages after the last one that counts again.
    mutating func rewind() { seen = accepted }

    /// Begins anew with all messages that the stream has: with those that count for whoever wrote last.
    ///
    /// - Returns: Whether one of them counts for certain.
    mutating func begin(_ messages: [(sequence: UInt64, message: ShareTableMessage?)]) -> Bool {
        var chains: [ShareTableChain] = []
        // Nobody but its writer takes one for the last that counts if it came too late. So of two that follow each other both count.
        var beginnings: Set<UInt64> = []
        for (sequence, message) in messages {
            guard let message else { continue }
            if let index = chains.firstIndex(where: { $0.links.contains { $0.sequence == message.over } }),
                !chains[index].isForeign(message)
            {
                chains[index].take(message, at: sequence)
            } else if beginnings.insert(message.over).inserted {
                var chain = ShareTableChain()
                chain.links = [Link(sequence: sequence, digest: message.digest)]
                (chain.table, chain.seen) = (message.table, sequence)
                chains.append(chain)
            }
        }
        let isWhole = messages.first.map { $0.sequence == 1 } ?? true
        let known = chains.filter { $0.links.count > 1 || isWhole && $0.links.first?.sequence == 1 }
        guard var newest = known.max(by: { $0.accepted < $1.accepted }) ?? (messages.isEmpty ? ShareTableChain() : nil)
        else { return false }
        newest.seen = messages.last?.sequence ?? 0
        // The same as before, if it was read before.
        if let last = links.last, let oldest = newest.links.first, last.sequence >= oldest.sequence {
            newest.isForked = !newest.links.contains(last)
        }
        self = newest
        return true
    }
}

/// Reads and writes the table. Its calls block, one at a time.
final class ShareTableStream: Sendable {
    private let connection: NATSConnection
    private let stream: NATSStream
    private let state = Mutex(State())

    private struct State {
        var chain = ShareTableChain()
        /// Since when the stream ends before what was read of it.
        var isShortSince: Instant?
        /// Since when a message in its middle is not there.
        var hasGapSince: Instant?
    }

    /// How long an answer of NATS may take.
    private static let wait: Duration = .seconds(1)
    /// More messages than these are read as if this relay had just begun.
    private static let gapMaximum: UInt64 = 100
    /// Around an election of the server that leads, NATS 2.9.10 says of messages that they are not there, which all servers have. After
    /// this time they are lost.
    private let patience: Duration

    init(_ connection: NATSConnection, _ stream: NATSStream, patience: Duration = .seconds(5)) {
        self.connection = connection
        self.stream = stream
        self.patience = patience
    }

    /// The table as it is, and the message that says so; nil and 0: there is none.
    ///
    /// - Throws: `NATSError`, `ClusterError.unreadableShares`, `.incompleteShares`, `.sharesForked`.
    func read() throws -> (table: ShareTable?, revision: UInt64) {
        try state.withLock { state in
            if let last = try connection.last(of: stream.subject, in: stream.name, wait: Self.wait) {
                try follow(&state, to: last.sequence)
            }
            return (state.chain.table, state.chain.accepted)
        }
    }

    /// Writes the table over the message that was read.
    ///
    /// - Returns: The message; nil: another relay has written before.
    /// - Throws: `NATSError`, `ClusterError.unreadableShares`, `.sharesForked`. It may have been written then.
    func write(_ table: ShareTable, over revision: UInt64) throws -> UInt64? {
        try state.withLock { state in
            guard state.chain.accepted == revision else { return nil }
            let message = ShareTableMessage(over: revision, parent: state.chain.digest, table: table)
            let sequence = try connection.publish(
                message.message, to: stream.subject, of: stream.name, after: .any, wait: Self.wait)
            try follow(&state, to: sequence)
            return state.chain.accepted == sequence && state.chain.digest == message.digest ? sequence : nil
        }
    }

    /// Takes all messages up to that one, which is the last.
    private func follow(_ state: inout State, to last: UInt64) throws {
        if last < state.chain.seen {
            let since = state.isShortSince ?? .now
            state.isShortSince = since
            throw .now - since >= patience ? ClusterError.sharesForked : ClusterError.incompleteShares
        }
        if state.isShortSince != nil {
            // Others may have written where some were lost.
            let message = try connection.message(state.chain.accepted, of: stream.name, wait: Self.wait)
            guard let message, ShareTableMessage(message: message.bytes)?.digest == state.chain.digest else {
                throw ClusterError.sharesForked
            }
            state.chain.rewind()
            state.isShortSince = nil
        }
        try readOn(&state, to: last)
        guard !state.chain.isForked else { throw ClusterError.sharesForked }
    }

    /// Takes all messages up to that one.
    private func readOn(_ state: inout State, to last: UInt64) throws {
        guard last > state.chain.seen else { return }
        guard state.chain.seen > 0, last - state.chain.seen <= Self.gapMaximum else { return try begin(&state) }
        for sequence in state.chain.seen + 1...last {
            // One that is gone was followed by more than are kept.
            guard let message = try connection.message(sequence, of: stream.name, wait: Self.wait) else {
                return try begin(&state)
            }
            state.chain.take(ShareTableMessage(message: message.bytes), at: sequence)
        }
    }

    private func begin(_ state: inout State) throws {
        let stored = try connection.state(of: stream.name, wait: Self.wait)
        var messages: [(sequence: UInt64, message: ShareTableMessage?)] = []
        var hasGap = false
        // Of a stream that was emptied, the first message is to be the next one.
        if stored.last > 0, stored.first <= stored.last {
            for sequence in max(1, stored.first)...stored.last {
                guard let message = try connection.message(sequence, of: stream.name, wait: Self.wait) else {
                    // The first ones may be removed meanwhile.
                    hasGap = hasGap || !messages.isEmpty
                    continue
                }
                messages.append((sequence, ShareTableMessage(message: message.bytes)))
            }
        }
        let since = hasGap ? state.hasGapSince ?? .now : nil
        state.hasGapSince = since
        if let since, .now - since < patience { throw ClusterError.incompleteShares }
        var begun = state.chain
        guard begun.begin(messages) else { throw ClusterError.unreadableShares }
        state.chain = begun
    }
}
