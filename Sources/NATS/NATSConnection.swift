// A connection to NATS servers with JetStream, by libnats.
import CNats
import Glibc
import Synchronization

/// How to connect.
public struct NATSOptions: Equatable, Sendable {
    /// Where the servers are, as `nats://host:4222` or `tls://host:4222`, with `user:password@` or a `token@` where they want that.
    public var servers: [String]
    /// What the servers call this client in their lists.
    public var name: String
    /// A file with a JWT and the seed of its key ("credentials file"); nil: none.
    public var credentials: String?
    /// A file with certificates in PEM by which the servers are known; nil: those of the system.
    public var authorities: String?
    /// Whether the connection has TLS. That of `tls://` has.
    public var hasTLS: Bool
    /// How long connecting to one of them may take.
    public var timeout: Duration = .seconds(2)

    /// Such a connection.
    public init(servers: [String], name: String, credentials: String? = nil, authorities: String? = nil) {
        self.servers = servers
        self.name = name
        self.credentials = credentials
        self.authorities = authorities
        hasTLS = authorities != nil || servers.contains { $0.hasPrefix("tls://") }
    }
}

/// A stream of JetStream with one subject, or with one for each of several things.
public struct NATSStream: Equatable, Sendable {
    /// Its name.
    public var name: String
    /// Its subject; `>` at the end stands for any.
    public var subject: String
    /// On how many servers it is kept: 1, 3 or 5.
    public var replicas: Int
    /// The most bytes that it takes.
    public var bytesMaximum: Int
    /// Whether only the last messages of each subject are kept. Otherwise all are, and nobody can delete one.
    public var keepsLastOnly: Bool
    /// How many those are.
    public var messagesKept = 1

    /// Such a stream.
    public init(name: String, subject: String, replicas: Int, bytesMaximum: Int, keepsLastOnly: Bool) {
        self.name = name
        self.subject = subject
        self.replicas = replicas
        self.bytesMaximum = bytesMaximum
        self.keepsLastOnly = keepsLastOnly
    }
}

/// A message of a stream.
public struct NATSMessage: Equatable, Sendable {
    /// Its place in the stream, from 1.
    public var sequence: UInt64
    /// What it says.
    public var bytes: [UInt8]
}

/// A connection to one of several servers. When it is lost, it is made again by itself. Every call blocks, for `wait` at most, and may
/// be made from any thread.
public final class NATSConnection: Sendable {
    /// Only libnats looks into it, which locks it.
    struct Handle: @unchecked Sendable {
        let pointer: OpaquePointer
    }

    let handle: Handle
    /// How many messages in a row had no answer, by their stream.
    private let unanswered = Mutex<[String: Int]>([:])

    /// Connects.
    ///
    /// - Throws: `NATSError`.
    public init(_ options: NATSOptions) throws(NATSError) {
        if let library = ptt_nats_missing() { throw NATSError(.noLibrary, String(cString: library)) }
        var failure = ptt_nats_failure()
        // libnats makes copies of its own.
        let texts = ([options.name, options.credentials, options.authorities] + options.servers)
            .map { text in text.map { UnsafePointer<CChar>(strdup($0)) } ?? nil }
        defer { for text in texts { free(UnsafeMutablePointer(mutating: text)) } }
        let pointer = texts[3...].withUnsafeBufferPointer { servers in
            var given = ptt_nats_options(
                servers: servers.baseAddress, count: Int32(clamping: servers.count), name: texts[0],
                credentials: texts[1], authorities: texts[2], encrypts: options.hasTLS,
                timeout: options.timeout.wholeMilliseconds)
            return ptt_nats_connect(&given, &failure)
        }
        guard let pointer else { throw NATSError(failure) }
        handle = Handle(pointer: pointer)
    }

    deinit { ptt_nats_close(handle.pointer) }

    /// Bytes of the longest message that the servers take.
    public var payloadMaximum: Int { Int(ptt_nats_payload_maximum(handle.pointer)) }

    /// Makes the stream; one of the same settings may be there.
    public func add(_ stream: NATSStream, wait: Duration) throws(NATSError) {
        try call { failure in
            stream.name.withCString { name in
                stream.subject.withCString { subject in
                    var settings = ptt_nats_stream(
                        name: name, subject: subject, replicas: Int64(stream.replicas),
                        bytes_maximum: Int64(stream.bytesMaximum),
                        per_subject: stream.keepsLastOnly ? Int64(stream.messagesKept) : 0)
                    return ptt_nats_add_stream(handle.pointer, &settings, wait.wholeMilliseconds, &failure)
                }
            }
        }
    }

    /// What a stream has.
    public struct StreamState: Equatable, Sendable {
        /// The sequence numbers of its first and last message. The last one is 0 when there has been none.
        public var first: UInt64, last: UInt64
        /// How many messages it has.
        public var messages: UInt64
        /// The bytes that it takes, and may take.
        public var bytes: Int, bytesMaximum: Int
        /// On how many servers it is kept.
        public var replicas: Int
        /// Whether messages can be removed.
        public var permitsPurge: Bool
    }

    /// The state of a stream.
    public func state(of stream: String, wait: Duration) throws(NATSError) -> StreamState {
        var state = ptt_nats_stream_state()
        try call { failure in
            ptt_nats_stream_state(handle.pointer, stream, wait.wholeMilliseconds, &state, &failure)
        }
        return StreamState(
            first: state.first, last: state.last, messages: state.messages, bytes: Int(clamping: state.bytes),
            bytesMaximum: Int(clamping: state.bytes_maximum), replicas: Int(clamping: state.replicas),
            permitsPurge: !state.denies_purge)
    }

    /// Removes what is before the message of that sequence number. Where that is not one of the stream's, all messages may be removed.
    public func purge(_ stream: String, before first: UInt64, wait: Duration) throws(NATSError) {
        try call { failure in ptt_nats_purge(handle.pointer, stream, first, wait.wholeMilliseconds, &failure) }
    }

    /// Which message is to be the last one, so that another one follows it.
    public enum Predecessor: Equatable, Sendable {
        /// Whatever it is.
        case any
        /// None of the subject.
        case none
        /// This one of the whole stream; 0: there has been none. Of several writers that name the same one, one succeeds.
        case ofStream(UInt64)
        /// This one of the subject. Of several writers at the same time, more than one may succeed (measured with a cluster of NATS 2.9.10:
        /// 697 of 1,000 times both of two).
        case ofSubject(UInt64)
    }

    /// Appends a message behind another one.
    ///
    /// - Returns: Its sequence number.
    /// - Throws: `NATSError`; of the kind `.noAnswer` when it may have been appended.
    public func publish(
        _ bytes: [UInt8], to subject: String, of stream: String, after last: Predecessor, wait: Duration
    ) throws(NATSError) -> UInt64 {
        var sequence: UInt64 = 0
        let (expected, isOfSubject): (UInt64, Bool) =
            switch last {
            case .any: (.max, false)
            case .none: (0, false)
            case .ofStream(let sequence): (sequence, false)
            case .ofSubject(let sequence): (sequence, true)
            }
        do throws(NATSError) {
            try call { failure in
                ptt_nats_publish(
                    handle.pointer, stream, subject, bytes, Int32(clamping: bytes.count), expected, isOfSubject,
                    wait.wholeMilliseconds, &sequence, &failure)
            }
        } catch {
            note(isAnswered: error.kind != .noAnswer, by: stream)
            throw error
        }
        note(isAnswered: true, by: stream)
        return sequence
    }

    /// How many messages in a row may have no answer until another server is to lead the stream.
    private static let unansweredMaximum = 2
    private static let stepDownWait: Duration = .milliseconds(500)

    /// A server of NATS 2.9.10 that leads a stream again, and had refused messages when it led it before, drops as many messages as others have
    /// stored meanwhile, without an answer (measured; 2.10.27 does not). Another one takes them.
    private func note(isAnswered: Bool, by stream: String) {
        let isStuck = unanswered.withLock { unanswered in
            unanswered[stream] = isAnswered ? nil : (unanswered[stream] ?? 0) + 1
            return unanswered[stream].map { $0 % Self.unansweredMaximum == 0 } ?? false
        }
        if isStuck { stepDown(stream, wait: Self.stepDownWait) }
    }

    /// Asks the server that leads a stream to let another one lead; where there is none, it stays.
    ///
    /// - Returns: Whether it has answered.
    @discardableResult
    func stepDown(_ stream: String, wait: Duration) -> Bool {
        ptt_nats_step_down(handle.pointer, stream, wait.wholeMilliseconds)
    }

    /// The message of that sequence number; nil: there is none, or not yet.
    public func message(_ sequence: UInt64, of stream: String, wait: Duration) throws(NATSError) -> NATSMessage? {
        try read { failure, reader, context in
            ptt_nats_read(
                handle.pointer, stream, sequence, wait.wholeMilliseconds, reader, context, &failure)
        }
    }

    /// The last message of a subject; nil: there is none.
    public func last(of subject: String, in stream: String, wait: Duration) throws(NATSError) -> NATSMessage? {
        try read { failure, reader, context in
            ptt_nats_read_last(handle.pointer, stream, subject, wait.wholeMilliseconds, reader, context, &failure)
        }
    }

    /// The subjects of a stream that match `filter`.
    public func subjects(_ filter: String, of stream: String, wait: Duration) throws(NATSError) -> [String] {
        try messages { failure, reader, context in
            ptt_nats_subjects(handle.pointer, stream, filter, wait.wholeMilliseconds, reader, context, &failure)
        }.map { String(decoding: $0.bytes, as: UTF8.self) }
    }

    // MARK: Calls

    func call(_ body: (inout ptt_nats_failure) -> Bool) throws(NATSError) {
        var failure = ptt_nats_failure()
        guard body(&failure) else { throw NATSError(failure) }
    }

    typealias Reading = (inout ptt_nats_failure, @escaping ptt_nats_reader, UnsafeMutableRawPointer) -> Bool

    func messages(_ body: Reading) throws(NATSError) -> [NATSMessage] {
        var found: [NATSMessage] = []
        try call { failure in
            withUnsafeMutablePointer(to: &found) { found in
                body(
                    &failure,
                    { context, sequence, bytes, count in
                        let bytes = UnsafeRawBufferPointer(start: bytes, count: Int(count))
                        context?.assumingMemoryBound(to: [NATSMessage].self).pointee
                            .append(NATSMessage(sequence: sequence, bytes: Array(bytes)))
                    }, found)
            }
        }
        return found
    }

    private func read(_ body: Reading) throws(NATSError) -> NATSMessage? {
        do throws(NATSError) {
            return try messages(body).first
        } catch {
            guard error.kind == .noMessage else { throw error }
            return nil
        }
    }
}

extension Duration {
    var wholeMilliseconds: Int64 {
        let (seconds, attoseconds) = components
        return max(1, seconds * 1_000 + attoseconds / 1_000_000_000_000_000)
    }
}
