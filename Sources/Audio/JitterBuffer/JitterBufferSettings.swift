// The limits and times of the jitter buffer.

/// How long received packets wait for later ones. All times are of the talker's audio.
public struct JitterBufferSettings: Sendable, Equatable {
    /// The wait before anything is known of the network; afterwards what was learned is kept from burst to burst.
    public var targetInitial = Duration.milliseconds(20)
    /// The shortest wait.
    public var targetMin = Duration.milliseconds(5)
    /// The longest wait, of networks whose delay varies by that much. Most need a tenth of it.
    public var targetMax = Duration.milliseconds(400)
    /// The longest wait for the sake of packets that are sent again, which is worth it while packets are being lost: as long as
    /// many are.
    public var repairTargetMax = Duration.milliseconds(400)
    /// How long a gap of more than 60 ms with later packets waits for repair. Each repaired packet restarts this time.
    public var repairWait = Duration.seconds(1)
    /// A burst whose end was not announced ends after this time without packets, which is longer than a change of the
    /// network takes.
    public var silenceEnd = Duration.seconds(3)
    /// A burst whose end was announced ends when missing packets have not arrived for this time.
    public var missingEnd = Duration.milliseconds(100)

    /// 20 ms at first, then 5…400 ms.
    public init() {}
}
