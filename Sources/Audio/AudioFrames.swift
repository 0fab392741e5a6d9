// What enters and leaves this module: encoded frames out of the microphone, received packets into the speaker.
import MonotonicTime

/// The audio clock of everything encoded: RTP units of Opus (RFC 7587, section 4.1), in hertz.
public let audioClockRate = 48_000

/// The longest Opus frame (RFC 6716, section 3.4), in bytes.
public let opusPayloadMax = 1275

/// One Opus frame from the microphone.
public struct EncodedFrame: Equatable, Sendable {
    /// The Opus packet, 1…1275 bytes.
    public var payload: [UInt8]
    /// Samples in the frame, in RTP units (48 kHz): 480 for 10 ms.
    public var samplesPerFrame: Int
    /// The frame's position in its burst, in RTP units: 0 for the first; it jumps where samples were lost.
    public var position: UInt32
    /// When the frame's first sample was at the microphone.
    public var captureTime: Instant
    /// Which burst it belongs to: the number that `CaptureEngine.start()` returned.
    public var burst: UInt32
    /// Whether it is the burst's first frame (the RTP marker).
    public var isFirst: Bool
    /// Whether it is the burst's last frame.
    public var isLast: Bool
    /// How loud it is, as it is sent: the mean power in decibels below full scale (dBFS), `levelMin`…0.
    public var level: Float

    /// The level of silence: 16 bits end here.
    public static let levelMin: Float = -96

    /// A frame of these parts.
    public init(
        payload: [UInt8], samplesPerFrame: Int, position: UInt32, captureTime: Instant, burst: UInt32, isFirst: Bool,
        isLast: Bool, level: Float = EncodedFrame.levelMin
    ) {
        self.level = level
        self.payload = payload
        self.samplesPerFrame = samplesPerFrame
        self.position = position
        self.captureTime = captureTime
        self.burst = burst
        self.isFirst = isFirst
        self.isLast = isLast
    }
}

/// One Opus frame from the network, already opened, with the fields of its RTP header (RFC 3550, section 5.1).
public struct ReceivedPacket: Equatable, Sendable {
    /// The RTP sequence number.
    public var sequence: UInt16
    /// The RTP timestamp, in 48 kHz units.
    public var timestamp: UInt32
    /// The RTP marker: the first packet of a burst.
    public var marker: Bool
    /// The Opus packet, at most 1275 bytes.
    public var payload: [UInt8]
    /// When the packet was read from the socket.
    public var receivedAt: Instant
    /// Whether it was asked for again: when it came says nothing about the network's delay.
    public var isRepaired: Bool
    /// Whether it was said before this end came, and fetched: more of it follows than the speaker takes at once.
    public var isLate: Bool

    /// A packet of these parts.
    public init(
        sequence: UInt16, timestamp: UInt32, marker: Bool, payload: [UInt8], receivedAt: Instant,
        isRepaired: Bool = false, isLate: Bool = false
    ) {
        self.isRepaired = isRepaired
        self.isLate = isLate
        self.sequence = sequence
        self.timestamp = timestamp
        self.marker = marker
        self.payload = payload
        self.receivedAt = receivedAt
    }
}
