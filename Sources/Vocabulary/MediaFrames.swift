// One Opus frame, on its way out of the microphone and on its way to the speaker.
import MonotonicTime

/// One Opus frame from the microphone.
public struct OutgoingFrame: Equatable, Sendable {
    /// The Opus packet (RFC 6716), 1…1275 bytes.
    public var payload: [UInt8]
    /// Its length in samples of 48 kHz, the RTP clock of Opus (RFC 7587, section 4.1): 480 for 10 ms.
    public var samples: UInt32
    /// When its first sample was at the microphone.
    public var capturedAt: Instant
    /// Its position in its burst, in samples of 48 kHz: 0 for the first frame. It jumps where samples were lost.
    public var position: UInt32
    /// The burst that it belongs to: the number that `CaptureEngine.start()` returned.
    public var burst: UInt32
    /// Whether it is the burst's first frame (the RTP marker).
    public var isFirst: Bool
    /// Whether it is the burst's last frame.
    public var isLast: Bool
    /// How loud it is, as it is sent: the mean power in decibels below full scale (dBFS), `levelMin`…0.
    public var level: Float

    /// The longest payload that fits into one datagram of every path, in bytes. A longer one is not sent.
    public static let payloadMax = 1000
    /// The level of silence: 16 bits end here.
    public static let levelMin: Float = -96

    /// A frame of `samples` at 48 kHz.
    public init(
        payload: [UInt8], samples: UInt32, capturedAt: Instant, position: UInt32 = 0, burst: UInt32 = 0,
        isFirst: Bool = false, isLast: Bool = false, level: Float = OutgoingFrame.levelMin
    ) {
        self.payload = payload
        self.samples = samples
        self.capturedAt = capturedAt
        self.position = position
        self.burst = burst
        self.isFirst = isFirst
        self.isLast = isLast
        self.level = level
    }
}

/// One Opus frame of a member who talks, decrypted, with the fields of its RTP header (RFC 3550, section 5.1).
public struct ReceivedFrame: Equatable, Sendable {
    /// The RTP sequence number; consecutive within a burst.
    public var sequence: UInt16
    /// The RTP time stamp of the first sample, at 48 kHz.
    public var timestamp: UInt32
    /// The RTP marker: the first frame of a burst.
    public var marker: Bool
    /// The Opus packet, at most 1275 bytes.
    public var payload: [UInt8]
    /// When its packet was read from the socket.
    public var receivedAt: Instant
    /// Whether it was asked for again: when it came says nothing about the network's delay.
    public var isRepaired: Bool
    /// Whether it was said before this end came, and fetched: more of it follows than can be heard at once.
    public var isLate: Bool
    /// The talker, since others may talk at the same time. Nil where only one member can talk.
    public var talker: RelayMember?

    /// A frame of these parts.
    public init(
        sequence: UInt16, timestamp: UInt32, marker: Bool = false, payload: [UInt8], receivedAt: Instant,
        isRepaired: Bool = false, isLate: Bool = false, talker: RelayMember? = nil
    ) {
        self.sequence = sequence
        self.timestamp = timestamp
        self.marker = marker
        self.payload = payload
        self.receivedAt = receivedAt
        self.isRepaired = isRepaired
        self.isLate = isLate
        self.talker = talker
    }
}

/// Another participant of the channel, or this one.
public struct RelayMember: Hashable, Sendable {
    /// The identifier of a member on its channel. It is opaque; our relay keeps it across reconnects.
    public var id: String
    /// The name it joined with, as given: not unique, not verified.
    public var name: String

    /// A member.
    public init(id: String, name: String) {
        self.id = id
        self.name = name
    }
}
