// The tones that a push-to-talk user works by, synthesised once.
import Glibc

/// A signal to the user.
public enum Tone: UInt8, CaseIterable, Sendable, BitwiseCopyable {
    /// Go ahead: the microphone is open.
    case micOn
    /// The microphone is closed, or the other party is done.
    case micOff
    /// Somebody else speaks: the floor is waited for.
    case wait
    /// The floor was refused.
    case deny
    /// Something needs attention: the talk time is nearly over, or the link is gone.
    case warning
    /// One more: counts to four.
    case count
    /// Five more.
    case countFive
    /// Something of this machine's own is broken: nobody was heard, and pressing again seldom helps.
    case fault

    /// The notes, in hertz (0 is a rest) and milliseconds.
    private var notes: [(hertz: Double, milliseconds: Int)] {
        switch self {
        case .micOn: [(880, 45), (1_320, 65)]
        case .micOff: [(880, 45), (587, 65)]
        case .wait: [(587, 90), (0, 60), (587, 90)]
        case .deny: [(311, 90), (0, 40), (311, 90), (0, 40), (311, 140)]
        case .warning: [(1_047, 80), (0, 60), (1_047, 80)]
        case .count: [(740, 60), (0, 90)]
        case .countFive: [(740, 220), (0, 90)]
        case .fault: [(1_175, 90), (784, 90), (523, 90), (349, 220)]
        }
    }

    /// The tone at 48 kHz, ±`volume`, with ramps of 5 ms at both ends of every note, so that nothing clicks.
    func samples(volume: Float) -> [Float] {
        var samples: [Float] = []
        let ramp = audioClockRate * 5 / 1000
        for note in notes {
            let count = note.milliseconds * audioClockRate / 1000
            for index in 0..<count {
                let edge = min(1, Double(min(index, count - 1 - index)) / Double(ramp))
                let gain = Double(volume) * 0.5 * (1 - cos(.pi * edge))
                let phase = 2 * Double.pi * note.hertz * Double(index) / Double(audioClockRate)
                // A little of the octave makes it heard on small speakers.
                let wave = note.hertz == 0 ? 0 : 0.85 * sin(phase) + 0.15 * sin(2 * phase)
                samples.append(Float(gain * wave))
            }
        }
        return samples
    }
}
