// When speech is shortened or lengthened, and by how much. Pure.
import MonotonicTime

/// Keeps the playing near its target: small deviations are left alone, larger ones corrected until they are gone. To be
/// early costs packets, to be late only time; so early is corrected sooner.
struct PaceRule {
    /// A delay beyond the target from which on it is corrected: a period of a deep voice.
    static let shortenFrom = Duration.milliseconds(6)
    /// A delay short of the target from which on it is corrected.
    static let lengthenFrom = Duration.milliseconds(1)
    /// A delay beyond the target at which shortening stops; lengthening stops at the target.
    static let shortenUntil = Duration.milliseconds(1)

    private enum State { case steady, shortening, lengthening }
    private var state = State.steady

    /// How to play a packet that is `excess` later than it should be (below zero: earlier) and `waited` in the buffer, and
    /// whether the one behind it is there already.
    mutating func pace(excess: Duration, waited: Duration, nextIsThere: Bool) -> JitterBufferStateMachine.Pace {
        switch state {
        case .steady:
            if excess > Self.shortenFrom { state = .shortening }
            if excess < .zero - Self.lengthenFrom { state = .lengthening }
        case .shortening: if excess < Self.shortenUntil { state = .steady }
        case .lengthening: if excess >= .zero { state = .steady }
        }
        switch state {
        case .steady: return .steady
        case .shortening:
            // Nothing is gained by hurrying toward what is not there, and will not be in time.
            let most = nextIsThere ? excess : min(excess, waited - Self.shortenFrom)
            return most > .zero ? .shorten(by: Int(CaptureStateMachine.samples(most))) : .steady
        case .lengthening: return .lengthen(by: Int(CaptureStateMachine.samples(.zero - excess)))
        }
    }
}
