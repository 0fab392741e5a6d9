// Limits how often a relay's tickets are saved. Pure.
import MonotonicTime
import QUIC

/// A relay may send tickets and tokens with every packet; each change is a file written. So the newest is kept a moment after it
/// came, and only a few times a connection: an honest relay gives one ticket and one token, right after the handshake.
struct ResumptionPacer {
    /// So long after something came it is kept.
    static let pause: Duration = .seconds(1)
    /// How often on one connection.
    static let savesMaximum = 4

    private var unsaved: ResumptionState?
    private var saves = 0

    /// Something came. Returns whether `take` is to be called after `pause`.
    mutating func came(_ state: ResumptionState) -> Bool {
        guard saves < Self.savesMaximum else { return false }
        defer { unsaved = state }
        return unsaved == nil
    }

    /// What is to be kept now; nil: it is known already.
    mutating func take() -> ResumptionState? {
        guard let state = unsaved else { return nil }
        unsaved = nil
        saves += 1
        return state
    }
}
