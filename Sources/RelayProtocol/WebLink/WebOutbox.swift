// What an end of a link over TLS has yet to send, and in which order. Pure.
import MonotonicTime

/// The queue of one connection (docs/relay-protocol.md, section 21.4): control messages go before media, and media before
/// parts of answers. Media that have waited for too long are dropped, so that old speech never delays new speech.
public struct WebOutbox: Sendable {
    /// What is to be written next.
    public enum Item: Sendable, Equatable {
        /// To be sealed.
        case sealed(WebSealedMessage)
        /// A media packet, as it is.
        case media([UInt8])
    }

    /// How much may wait.
    public struct Limits: Sendable {
        /// Bytes of control messages.
        public var controlBytes: Int
        /// Answers at one time.
        public var answers: Int
        /// Bytes of answers; one that is longer is taken while no other one waits.
        public var answerBytes: Int
        /// Bytes of media.
        public var mediaBytes = WebLinkLimits.mediaQueueBytes

        /// Limits for a connection.
        public init(controlBytes: Int, answers: Int = 0, answerBytes: Int = 0) {
            (self.controlBytes, self.answers, self.answerBytes) = (controlBytes, answers, answerBytes)
        }
    }

    private struct Answer {
        let number: UInt32
        let bytes: [UInt8]
        var written = 0
    }

    /// Media packets that were dropped because they had waited for too long, or were too many.
    public private(set) var mediaDropped = 0
    private let limits: Limits
    private var control = Queue<WebSealedMessage>()
    private var controlBytes = 0
    private var media = Queue<(packet: [UInt8], since: Instant)>()
    private var mediaBytes = 0
    private var answers = Queue<Answer>()
    private var answerBytes = 0
    private var lastAnswer: UInt32 = 0
    private var acknowledgement: UInt32?
    private var pong: UInt64?

    /// An empty queue.
    public init(_ limits: Limits) { self.limits = limits }

    /// Whether nothing waits.
    public var isEmpty: Bool {
        control.isEmpty && media.isEmpty && answers.isEmpty && acknowledgement == nil && pong == nil
    }

    /// Bytes of control messages that can be added.
    public var controlCapacity: Int { max(0, limits.controlBytes - controlBytes) }

    /// Adds a control message; false when too much waits already.
    public mutating func add(control message: [UInt8]) -> Bool {
        guard control.isEmpty || controlBytes + message.count <= limits.controlBytes else { return false }
        control.append(.control(message))
        controlBytes += message.count
        return true
    }

    /// Adds a question whether the other end is there.
    public mutating func add(ping number: UInt64) { control.append(.ping(number)) }

    /// Adds the answer to a ping. Only the newest one is given: who asks faster than it reads gets no queue for it.
    public mutating func add(pong number: UInt64) { pong = number }

    /// The newest acknowledgement; an older one that still waits is replaced.
    public mutating func set(acknowledgement count: UInt32) { acknowledgement = count }

    /// Adds a media packet. The oldest ones give way when they are too many.
    public mutating func add(media packet: [UInt8], at now: Instant) {
        media.append((packet, now))
        mediaBytes += packet.count
        while mediaBytes > limits.mediaBytes, let oldest = media.popFirst() {
            mediaBytes -= oldest.packet.count
            mediaDropped += 1
        }
    }

    /// Adds an answer; false when too many, or too many bytes of them, wait already.
    public mutating func add(answer bytes: [UInt8]) -> Bool {
        guard answers.count < limits.answers, answerBytes == 0 || answerBytes + bytes.count <= limits.answerBytes,
            lastAnswer < .max
        else { return false }
        lastAnswer += 1
        answers.append(Answer(number: lastAnswer, bytes: bytes))
        answerBytes += bytes.count
        return true
    }

    /// The next thing to write; nil when nothing waits.
    public mutating func next(at now: Instant) -> Item? {
        if let message = control.popFirst() {
            if case .control(let bytes) = message { controlBytes -= bytes.count }
            return .sealed(message)
        }
        if let pong {
            self.pong = nil
            return .sealed(.pong(pong))
        }
        if let acknowledgement {
            self.acknowledgement = nil
            return .sealed(.acknowledgement(acknowledgement))
        }
        while let (packet, since) = media.popFirst() {
            mediaBytes -= packet.count
            if now - since < WebLinkLimits.mediaWait { return .media(packet) }
            mediaDropped += 1
        }
        guard var answer = answers.first else { return nil }
        let part = answer.bytes[answer.written...].prefix(WebLinkLimits.answerPartBytes)
        answer.written += part.count
        answerBytes -= part.count
        let isEnd = answer.written == answer.bytes.count
        if isEnd { _ = answers.popFirst() } else { answers.first = answer }
        return .sealed(.answer(number: answer.number, isEnd: isEnd, bytes: Array(part)))
    }
}

/// First in, first out, without moving everything at each step.
private struct Queue<Element> {
    private var items: [Element] = []
    private var head = 0

    var isEmpty: Bool { head == items.count }
    var count: Int { items.count - head }
    var first: Element? {
        get { isEmpty ? nil : items[head] }
        set { if let newValue, !isEmpty { items[head] = newValue } }
    }

    mutating func append(_ element: Element) { items.append(element) }

    mutating func popFirst() -> Element? {
        guard !isEmpty else { return nil }
        defer {
            head += 1
            if head == items.count {
                items.removeAll(keepingCapacity: items.count <= 64)
                head = 0
            } else if head > 64, head > items.count / 2 {
                items.removeFirst(head)
                head = 0
            }
        }
        return items[head]
    }
}

extension Queue: Sendable where Element: Sendable {}
