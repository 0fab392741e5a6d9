// The sound of a device that somebody wears: what the next transmission and received speech use in place of the
// configured devices.

/// What a worn device offers at present.
public struct WornSound: Hashable, Sendable {
    /// Where own speech comes from.
    public enum Microphone: Hashable, Sendable {
        /// The configured microphone. Who pressed the talk key wears no other.
        case configured
        /// The worn microphone. Its Bluetooth link comes up when it is opened.
        case device(AudioDevice)
        /// The worn microphone, which is not there yet: the device is being switched to its hands-free profile.
        case awaited
        /// The worn microphone cannot be used, for this reason. The configured one is used in its place.
        case missing(String)
    }

    /// Which microphone the next transmission uses.
    public var microphone: Microphone
    /// The worn speaker; nil: the configured speaker is used.
    public var speaker: AudioDevice?
    /// The link is to stay up between transmissions: the speaker plays silence meanwhile.
    public var keepsLink: Bool
    /// How long the microphone gives its chipset's own noise after its link is up, as far as that was learned.
    public var settling: Duration?

    /// Nobody wears anything.
    public static let none = WornSound()

    /// Nobody wears anything, unless the arguments say otherwise.
    public init(
        microphone: Microphone = .configured, speaker: AudioDevice? = nil, keepsLink: Bool = false,
        settling: Duration? = nil
    ) {
        self.microphone = microphone
        self.speaker = speaker
        self.keepsLink = keepsLink
        self.settling = settling
    }
}
