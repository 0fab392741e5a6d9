// What waits to be sent on a link over TLS. Pure.
import MonotonicTime
import RelayProtocol

/// Messages in the order of sending: control messages overtake media, and media that are too old are dropped
/// (docs/relay-protocol.md, section 21.4).
struct WebSendQueue: Sendable {
    /// A message to hand over.
    enum Item: Sendable, Equatable {
        /// A sealed message.
        case sealed([UInt8])
        /// A media packet, under the number that it was given.
        case media([UInt8], number: UInt64)
    }

    /// The most bytes of sealed messages that wait.
    static let sealedBytesMaximum = 256 * 1_024

    private var sealed: [[UInt8]] = []
    private var media: [(packet: [UInt8], number: UInt64, at: Instant)] = []
    private(set) var sealedBytes = 0
    private(set) var mediaBytes = 0
    /// Media packets that were too old, or too many.
    private(set) var dropped = 0

    /// Whether nothing waits.
    var isEmpty: Bool { sealed.isEmpty && media.isEmpty }

    /// Adds a sealed message; false: too much waits, and it was not added.
    mutating func add(sealed message: [UInt8]) -> Bool {
        guard sealedBytes + message.count <= Self.sealedBytesMaximum else { return false }
        sealed.append(message)
        sealedBytes += message.count
        return true
    }

    /// Adds a media packet. Beyond the limit, the oldest ones are dropped.
    mutating func add(media packet: [UInt8], number: UInt64, at now: Instant) {
        media.append((packet, number, now))
        mediaBytes += packet.count
        while mediaBytes > WebLinkLimits.mediaQueueBytes { drop() }
    }

    /// The next message to send; nil: none.
    mutating func next(at now: Instant) -> Item? {
        while let first = media.first, now - first.at >= WebLinkLimits.mediaWait { drop() }
        if !sealed.isEmpty {
            let message = sealed.removeFirst()
            sealedBytes -= message.count
            return .sealed(message)
        }
        guard !media.isEmpty else { return nil }
        let first = media.removeFirst()
        mediaBytes -= first.packet.count
        return .media(first.packet, number: first.number)
    }

    private mutating func drop() {
        mediaBytes -= media.removeFirst().packet.count
        dropped += 1
    }
}
