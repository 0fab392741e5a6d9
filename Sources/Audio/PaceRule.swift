// When speech is shortened or lengthened, and by how much. Pure.
import MonotonicTime

/// Keeps the playing near its target: small deviations are left alone, larger ones corrected until they are gone.
struct PaceRule {
    /// A deviation from which on it is corrected: a period of a deep voice.
    static let correctFrom = Duration.milliseconds(6)
    /// A deviation at which correcting stops.
    static let correctTo = Duration.milliseconds(1)

    private enum State { case steady, shortening, lengthening }
    private var state = State.steady

    /// How to play a packet that is `excess` later than it should be (below zero: earlier), and whether the one behind it
    /// is there already.
    mutating func pace(excess: Duration, nextIsThere: Bool) -> JitterBufferStateMachine.Pace {
        switch state {
        case .steady:
            if excess > Self.correctFrom { state = .shortening }
            if excess < .zero - Self.correctFrom { state = .lengthening }
        case .shortening: if excess < Self.correctTo { state = .steady }
        case .lengthening: if excess > .zero - Self.correctTo { state = .steady }
        }
        let samples = Int(CaptureStateMachine.samples(excess))
        switch state {
        case .steady: return .steady
        // Nothing is gained by hurrying toward what is not there yet.
        case .shortening: return nextIsThere ? .shorten(by: samples) : .steady
        case .lengthening: return .lengthen(by: -samples)
        }
    }
}
