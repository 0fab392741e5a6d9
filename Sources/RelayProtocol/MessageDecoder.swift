// Splits the control stream into messages.

/// Cuts a byte stream into messages: 4 bytes of length, most significant first, then that many bytes.
///
/// It is fed whatever chunks the transport has, and keeps at most one unfinished message.
public struct MessageDecoder: Sendable {
    /// Why the stream cannot be cut any further. It has lost its place, so the connection must be closed.
    public enum Failure: Error, Hashable, Sendable, CustomStringConvertible {
        /// A message of length 0, which no message has.
        case empty
        /// A length above `RelayProtocolLimits.messageByteCountMaximum`.
        case tooLong(UInt32)

        /// One line for a log.
        public var description: String {
            switch self {
            case .empty: "a control message of length 0"
            case .tooLong(let length):
                "a control message of \(length) bytes, more than \(RelayProtocolLimits.messageByteCountMaximum)"
            }
        }
    }

    private var lengthBytes = 0
    private var length: UInt32 = 0
    private var body: [UInt8] = []
    private var failure: Failure?

    /// A decoder at the beginning of a stream.
    public init() {}

    /// Takes the next bytes of the stream and hands every message they complete to `receive`, in order.
    ///
    /// Throws at a length that no message has, after the messages before it; and again at every later call.
    public mutating func feed(_ bytes: some Sequence<UInt8>, _ receive: ([UInt8]) -> Void) throws(Failure) {
        if let failure { throw failure }
        for byte in bytes {
            if lengthBytes < 4 {
                length = length << 8 | UInt32(byte)
                lengthBytes += 1
                if lengthBytes == 4 { try checkLength() }
            } else {
                body.append(byte)
                if body.count == Int(length) {
                    let message = body
                    body = []
                    length = 0
                    lengthBytes = 0
                    receive(message)
                }
            }
        }
    }

    /// Whether the stream ended, or would end, in the middle of a message.
    public var isInsideMessage: Bool { lengthBytes > 0 }

    private mutating func checkLength() throws(Failure) {
        if (1...UInt32(RelayProtocolLimits.messageByteCountMaximum)).contains(length) { return }
        let problem: Failure = length == 0 ? .empty : .tooLong(length)
        failure = problem
        throw problem
    }
}
