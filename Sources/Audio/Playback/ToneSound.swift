// How tones sound: synthesised once.
import Glibc
import Vocabulary

/// A sound that tones are made of.
enum ToneSound: UInt8, CaseIterable, BitwiseCopyable {
    case goAhead, end, wait, deny, warning, one, five, linkLost, linkBack, fallback, fault

    /// The notes, in hertz (0 is a rest) and milliseconds.
    private var notes: [(hertz: Double, milliseconds: Int)] {
        switch self {
        case .goAhead: [(880, 45), (1_320, 65)]
        case .end: [(880, 45), (587, 65)]
        case .wait: [(587, 90), (0, 60), (587, 90)]
        case .deny: [(311, 90), (0, 40), (311, 90), (0, 40), (311, 140)]
        case .warning: [(1_047, 80), (0, 60), (1_047, 80)]
        case .one: [(740, 60), (0, 90)]
        case .five: [(740, 220), (0, 90)]
        case .linkLost: [(523, 60), (0, 60), (523, 60), (0, 60), (392, 240)]
        case .linkBack: [(392, 70), (0, 40), (523, 200)]
        case .fallback: [(1_175, 60), (0, 30), (784, 60), (0, 30), (1_175, 60)]
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

extension Tone {
    /// The highest position that is counted; what is beyond sounds like it.
    static let positionMax = 19

    /// How many sounds it has, one after the other.
    var soundCount: Int {
        isCounting ? countedPosition / 5 + countedPosition % 5 : 1
    }

    /// Its sound at `index`, from 0. A position is told by a long sound for each five, and a short one for each of the
    /// rest.
    func sound(at index: Int) -> ToneSound {
        switch self {
        case .microphoneOn: .goAhead
        case .microphoneOff: .end
        case .waiting: .wait
        case .denied: .deny
        case .talkTimeWarning: .warning
        case .linkLost: .linkLost
        case .linkBack: .linkBack
        case .fallbackMicrophone: .fallback
        case .deviceFailed: .fault
        case .channel: index < countedPosition / 5 ? .five : .one
        }
    }

    /// Whether it counts.
    var isCounting: Bool { if case .channel = self { true } else { false } }

    private var countedPosition: Int {
        guard case .channel(let position) = self else { return 0 }
        return min(max(1, position), Self.positionMax)
    }
}
