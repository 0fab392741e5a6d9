// Chooses between the microphone that is meant to be used and the one that stands in for it. Pure.
import MonotonicTime

/// Which of two microphones a transmission uses.
///
/// One that was silent or failed is doubted: the next transmission begins with the fallback, and the doubted one runs beside it, on
/// trial. It is trusted again when it has given sound for long enough. Nothing runs outside of a transmission (I1).
struct MicrophoneChoice: Equatable {
    /// One of the two.
    enum Microphone: Hashable, Sendable { case main, fallback }

    /// How long a doubted microphone has to give sound before it is trusted. Longer than a silence needs to be noticed.
    static let trial = Duration.milliseconds(500)

    /// Whether there is a microphone that can stand in.
    let hasFallback: Bool
    /// The microphone whose sound is sent; nil: there is no transmission.
    private(set) var used: Microphone?
    /// Whether the main microphone was of no use when it was used last.
    private(set) var isDoubted = false
    /// Since when the main microphone, on trial, has given nothing but sound.
    private var soundSince: Instant?

    init(hasFallback: Bool) { self.hasFallback = hasFallback }

    /// Whether the main microphone runs only to show whether it works.
    var isOnTrial: Bool { used == .fallback && soundSince != nil }

    /// A transmission begins. Returns the microphone that it uses; `isOnTrial` says whether the other one runs too.
    mutating func begin(at now: Instant) -> Microphone {
        let choice: Microphone = hasFallback && isDoubted ? .fallback : .main
        used = choice
        soundSince = choice == .fallback ? now : nil
        return choice
    }

    /// A microphone is of no use: it does not open, has failed, or gives no sound. Returns the one that takes over, which is nil
    /// when nothing changes, or when there is none.
    mutating func isUseless(_ microphone: Microphone) -> Microphone? {
        switch microphone {
        case .main:
            isDoubted = hasFallback
            soundSince = nil
            guard used == .main, hasFallback else { return nil }
            used = .fallback
        case .fallback:
            guard used == .fallback, soundSince != nil else { return nil }
            used = .main
            soundSince = nil
        }
        return used
    }

    /// The main microphone gives sound again while the fallback is used.
    mutating func heardAgain(at now: Instant) {
        if used == .fallback { soundSince = now }
    }

    /// The main microphone has gone: what was known of it is void, and a trial is over.
    mutating func forget() {
        isDoubted = false
        soundSince = nil
    }

    /// The transmission is over.
    mutating func end(at now: Instant) {
        if used == .fallback, let soundSince, now - soundSince >= Self.trial { isDoubted = false }
        used = nil
        soundSince = nil
    }
}
