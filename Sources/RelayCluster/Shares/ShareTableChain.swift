// The table of shares in its stream: which of the messages there count.
import FoundationEssentials
import NATS
import Synchronization

/// A message of the stream of the table: the table as a relay would have it, and the message that the relay has read.
///
/// A message counts if it names the last one that counts, so of several relays that write at the same time the first one succeeds. The servers
/// are not asked to refuse the others: a server of NATS 2.9.10 that leads a stream, and has refused messages when it led it before,
/// drops as many messages as others have stored since then, and with several writers some are refused all the time.
struct ShareTableMessage: Codable, Equatable, Sendable {
    var over: UInt64
    var table: ShareTable

    /// The longest one that is read.
    private static let bytesMaximum = 1 << 20

    init(over: UInt64, table: ShareTable) {
        self.over = over
        self.table = table
    }

    /// What a message says; nil: something else, or what a later version has written.
    init?(message: [UInt8]) {
        guard message.count <= Self.bytesMaximum,
            let read = try? JSONDecoder().decode(Self.self, from: Data(message)), read.table.isPossible
        else { return nil }
        self = read
    }
}

/// The messages of the stream, in their order. Pure.
struct ShareTableChain: Sendable {
    /// How many messages the stream keeps. A relay that begins finds among them one that counts: those that a later one names do.
    static let messagesKept = 256

    /// The sequence number of the last message that counts; 0: there is none.
    private(set) var accepted: UInt64 = 0
    /// What that one says.
    private(set) var table: ShareTable?
    /// The last message that was looked at.
    private(set) var seen: UInt64 = 0

    /// The next message; nil: it is no table, and does not count.
    mutating func take(_ message: ShareTableMessage?, at sequence: UInt64) {
        guard sequence > seen else { return }
        seen = sequence
        guard let message, message.over == accepted else { return }
        (accepted, table) = (sequence, message.table)
    }

    /// Begins anew with all messages that the stream has.
    ///
    /// - Returns: Whether one of them counts for certain.
    mutating func begin(_ messages: [(sequence: UInt64, message: ShareTableMessage?)]) -> Bool {
        self = ShareTableChain()
        let isWhole = messages.first.map { $0.sequence == 1 } ?? true
        // Whoever writes has read one that counts.
        let named = Set(messages.compactMap { $0.message?.over })
        guard let first = isWhole ? messages.startIndex : messages.firstIndex(where: { named.contains($0.sequence) })
        else { return false }
        if !isWhole, let message = messages[first].message {
            (accepted, table, seen) = (messages[first].sequence, message.table, messages[first].sequence)
        }
        for (sequence, message) in messages[first...] { take(message, at: sequence) }
        return true
    }
}

/// Reads and writes the table. Its calls block, one at a time.
final class ShareTableStream: Sendable {
    private let connection: NATSConnection
    private let stream: NATSStream
    private let chain = Mutex(ShareTableChain())

    /// How long an answer of NATS may take.
    private static let wait: Duration = .seconds(1)
    /// More messages than these are read as if this relay had just begun.
    private static let gapMaximum: UInt64 = 100

    init(_ connection: NATSConnection, _ stream: NATSStream) {
        self.connection = connection
        self.stream = stream
    }

    /// The table as it is, and the message that says so; nil and 0: there is none.
    ///
    /// - Throws: `NATSError`, `ClusterError.unreadableShares`.
    func read() throws -> (table: ShareTable?, revision: UInt64) {
        try chain.withLock { chain in
            if let last = try connection.last(of: stream.subject, in: stream.name, wait: Self.wait) {
                try follow(&chain, to: last.sequence)
            }
            return (chain.table, chain.accepted)
        }
    }

    /// Writes the table over the message that was read.
    ///
    /// - Returns: The message; nil: another relay has written before.
    /// - Throws: `NATSError`, `ClusterError.unreadableShares`. It may have been written then.
    func write(_ table: ShareTable, over revision: UInt64) throws -> UInt64? {
        try chain.withLock { chain in
            guard chain.accepted == revision else { return nil }
            let message = ShareTableMessage(over: revision, table: table)
            let sequence = try connection.publish(
                message.message, to: stream.subject, of: stream.name, after: .any, wait: Self.wait)
            try follow(&chain, to: sequence)
            return chain.accepted == sequence ? sequence : nil
        }
    }

    /// Takes all messages up to that one.
    private func follow(_ chain: inout ShareTableChain, to last: UInt64) throws {
        guard last > chain.seen else { return }
        if chain.seen > 0, last - chain.seen <= Self.gapMaximum {
            for sequence in chain.seen + 1...last {
                // One that is gone was followed by more than are kept.
                guard let message = try connection.message(sequence, of: stream.name, wait: Self.wait) else {
                    return try begin(&chain)
                }
                chain.take(ShareTableMessage(message: message.bytes), at: sequence)
            }
        } else {
            try begin(&chain)
        }
    }

    private func begin(_ chain: inout ShareTableChain) throws {
        let state = try connection.state(of: stream.name, wait: Self.wait)
        var messages: [(sequence: UInt64, message: ShareTableMessage?)] = []
        if state.last > 0 {
            for sequence in max(1, state.first)...state.last {
                guard let message = try connection.message(sequence, of: stream.name, wait: Self.wait) else { continue }
                messages.append((sequence, ShareTableMessage(message: message.bytes)))
            }
        }
        var begun = chain
        guard begun.begin(messages) else { throw ClusterError.unreadableShares }
        chain = begun
    }
}
