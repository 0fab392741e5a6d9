// When a burst begins.

/// How recording starts.
public enum CaptureStart: Hashable, Sendable {
    /// With the microphone's first sample, because somebody speaks already. The go-ahead tone follows. A microphone
    /// that takes time until it hears is started as by `afterGoAhead`.
    case atOnce
    /// When the microphone hears and the user has heard the go-ahead tone. Earlier sound is erased.
    case afterGoAhead
}
