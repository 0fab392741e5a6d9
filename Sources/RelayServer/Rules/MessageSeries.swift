// A series of control messages, encoded once for all who get it. Pure.

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

    /// These messages, framed.
    public init(_ frames: [[UInt8]] = []) {
        for frame in frames { append(frame) }
    }

    /// How many there are.
    public var count: Int { ends.count }

    /// Adds one, framed.
    mutating func append(_ frame: [UInt8]) {
        bytes += frame
        ends.append(bytes.count)
    }

    /// Each message by itself, without its length.
    var messages: [[UInt8]] {
        var start = 0
        return ends.map { end in
            defer { start = end }
            return Array(bytes[start + 4..<end])
        }
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
