// The sent frames of a burst that may not have arrived. Pure.
import RelayProtocol
import Vocabulary

/// The frames of a burst that the relay has not acknowledged, in the order of sending. After the loss of a connection
/// the next one begins with them.
struct UnacknowledgedFrames: Sendable {
    private var frames: [(frame: OutgoingFrame, sequence: UInt16, timestamp: UInt32, datagram: UInt64?)] = []

    /// The first of them, with its RTP time stamp; nil: all were heard.
    var first: (frame: OutgoingFrame, timestamp: UInt32)? { frames.first.map { ($0.frame, $0.timestamp) } }

    /// A frame is about to be sent with that RTP sequence number and time stamp. Beyond the limit of what is held, the oldest is forgotten.
    mutating func add(_ frame: OutgoingFrame, sequence: UInt16, timestamp: UInt32) {
        if frames.count >= UplinkStateMachine.heldFramesMaximum { frames.removeFirst() }
        frames.append((frame, sequence, timestamp, nil))
    }

    /// The transport took the packet of that sequence number under this number; later packets have greater ones.
    mutating func sent(_ datagram: UInt64, sequence: UInt16) {
        guard let index = frames.lastIndex(where: { $0.sequence == sequence }) else { return }
        frames[index].datagram = datagram
    }

    /// The relay has that datagram: what was sent before it was heard as well, or is repaired.
    mutating func acknowledged(_ datagram: UInt64) {
        guard let index = frames.lastIndex(where: { ($0.datagram ?? .max) <= datagram }) else { return }
        frames.removeFirst(index + 1)
    }

    /// All of them, which are then forgotten.
    mutating func take() -> [OutgoingFrame] {
        defer { frames = [] }
        return frames.map(\.frame)
    }
}
