// The bounds and times of the jitter buffer.

/// How long received packets wait for later ones. All times are of the talker's audio.
public struct JitterBufferSettings: Sendable, Equatable {
    /// The wait before anything is known of the network.
    public var targetInitial = Duration.milliseconds(40)
    /// The shortest wait.
    public var targetMin = Duration.milliseconds(20)
    /// The longest wait.
    public var targetMax = Duration.milliseconds(200)
    /// A burst without an announced end is over when nothing came for so long.
    public var silenceEnd = Duration.milliseconds(500)
    /// A burst whose end was announced is over when what is missing did not come for so long.
    public var missingEnd = Duration.milliseconds(100)

    /// 40 ms at first, then 20…200 ms.
    public init() {}
}
