// Messages that no stream keeps: requests with their answers.
import CNats
import Synchronization

extension NATSConnection {
    /// Bytes of the longest message that is taken, as a request or as an answer.
    public static let requestByteCountMaximum = 1 << 20
    /// Bytes of all requests that wait for a handler, whatever their number.
    private static let waitingByteCountMaximum = 16 << 20
    /// How long a server may take to know a subscription.
    private static let subscriptionWait: Duration = .seconds(1)

    /// Sends a request to whoever answers for `subject`, and waits for the first answer.
    ///
    /// - Throws: `NATSError`; of the kind `.noResponder`, at once, when nobody is there to answer; `.noAnswer` when none came in time.
    public func request(_ bytes: [UInt8], to subject: String, wait: Duration) throws(NATSError) -> [UInt8] {
        try Self.check(subject)
        let answers: [NATSMessage]
        do throws(NATSError) {
            answers = try messages { failure, reader, context in
                ptt_nats_request(
                    handle.pointer, subject, bytes, Int32(clamping: bytes.count), wait.wholeMilliseconds, reader,
                    context, &failure)
            }
        } catch {
            // Of JetStream, it means that there is no JetStream now.
            guard error.kind == .unavailable else { throw error }
            throw NATSError(.noResponder, error.why)
        }
        guard let answer = answers.first, answer.bytes.count <= Self.requestByteCountMaximum else {
            throw NATSError(.other, "an answer is too long")
        }
        return answer.bytes
    }

    /// Sends a message to whoever listens to `subject`, without waiting for anybody; for the server only, 5 s at most, where it stands still.
    ///
    /// - Throws: `NATSError` when it cannot be sent. Nobody says whether it has arrived.
    public func publish(_ bytes: [UInt8], to subject: String) throws(NATSError) {
        try Self.check(subject)
        try call { failure in
            ptt_nats_send(handle.pointer, subject, bytes, Int32(clamping: bytes.count), &failure)
        }
    }

    /// Hands over what is sent to `subject`, until the subscription is cancelled or dropped, also after the connection was lost and made again.
    ///
    /// Once this returns, the server knows of it; if it is not connected, or takes more than a second, it learns it later.
    ///
    /// - Parameters:
    ///   - waitingMaximum: How many messages may wait for the handler, which gets one after the other; further ones are dropped. So are
    ///     those of more than `requestByteCountMaximum` bytes.
    ///   - handler: Called on a thread of libnats, of this subscription alone; is to return soon.
    /// - Throws: `NATSError`.
    public func answer(
        _ subject: String, waitingMaximum: Int, _ handler: @escaping @Sendable (NATSRequest) -> Void
    ) throws(NATSError) -> NATSSubscription {
        try Self.check(subject)
        let receiver = NATSReceiver(self, handler)
        var pointer: OpaquePointer?
        try call { failure in
            pointer = ptt_nats_subscribe(
                handle.pointer, subject, Int32(clamping: max(1, waitingMaximum)), Int32(Self.waitingByteCountMaximum),
                Self.subscriptionWait.wholeMilliseconds,
                { context, bytes, count, reply in
                    guard let context else { return }
                    Unmanaged<NATSReceiver>.fromOpaque(context).takeUnretainedValue().take(
                        UnsafeRawBufferPointer(start: bytes, count: Int(count)),
                        to: reply.map { String(cString: $0) })
                },
                { context in
                    if let context { Unmanaged<NATSReceiver>.fromOpaque(context).release() }
                },
                Unmanaged.passRetained(receiver).toOpaque(), &failure)
            return pointer != nil
        }
        return NATSSubscription(self, pointer.map { Handle(pointer: $0) }, receiver)
    }

    /// libnats sends subjects as they are: a space or a line break would begin something else of the protocol.
    private static func check(_ subject: String) throws(NATSError) {
        guard !subject.isEmpty, subject.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x7F }) else {
            throw NATSError(.other, "'\(subject)' is no subject")
        }
    }
}

/// A connection that is not kept open for this.
private struct Weak: Sendable {
    weak var connection: NATSConnection?
}

/// A message that has come for a subject.
public struct NATSRequest: Sendable {
    /// What it says.
    public let bytes: [UInt8]
    private let answer: Answer

    fileprivate init(bytes: [UInt8], to subject: String?, by connection: Weak) {
        self.bytes = bytes
        answer = Answer(subject, connection)
    }

    /// Answers, now or later, from any thread. Only the first answer is sent, and none where nobody waits for one or the connection is
    /// closed. One that cannot be sent is lost; who has asked finds that no answer comes. It is sent as by `publish`.
    public func reply(_ bytes: [UInt8]) { answer.send(bytes) }

    private final class Answer: Sendable {
        private let subject: Mutex<String?>
        private let weak: Weak

        init(_ subject: String?, _ weak: Weak) {
            self.subject = Mutex(subject)
            self.weak = weak
        }

        func send(_ bytes: [UInt8]) {
            guard let subject = subject.withLock({ $0.take() }), let connection = weak.connection else { return }
            try? connection.publish(bytes, to: subject)
        }
    }
}

/// What libnats holds of a subscription until it has handed over the last message.
private final class NATSReceiver: Sendable {
    private let state: Mutex<(connection: Weak, handler: (@Sendable (NATSRequest) -> Void)?)>

    init(_ connection: NATSConnection, _ handler: @escaping @Sendable (NATSRequest) -> Void) {
        state = Mutex((Weak(connection: connection), handler))
    }

    func take(_ bytes: UnsafeRawBufferPointer, to reply: String?) {
        guard bytes.count <= NATSConnection.requestByteCountMaximum else { return }
        // The handler may cancel the subscription.
        let (connection, handler) = state.withLock { $0 }
        handler?(NATSRequest(bytes: Array(bytes), to: reply, by: connection))
    }

    /// Hands over nothing more, and lets go of what the handler holds.
    func stop() {
        let handler = state.withLock { $0.handler.take() }
        // Dropped without the lock: it may hold anything.
        _ = handler
    }
}

/// A subscription, which ends when this is dropped. It keeps its connection open.
public final class NATSSubscription: Sendable {
    private let connection: NATSConnection
    private let handle: Mutex<NATSConnection.Handle?>
    private let receiver: NATSReceiver

    fileprivate init(_ connection: NATSConnection, _ handle: NATSConnection.Handle?, _ receiver: NATSReceiver) {
        self.connection = connection
        self.handle = Mutex(handle)
        self.receiver = receiver
    }

    /// Ends it. The handler is not called any more; on another thread it may still be at work. This may wait a second for the server.
    public func cancel() {
        receiver.stop()
        guard let handle = handle.withLock({ $0.take() }) else { return }
        ptt_nats_unsubscribe(connection.handle.pointer, handle.pointer)
    }

    deinit { cancel() }
}
