// Mixes the current tones, each at its position, over the other sound.
import Vocabulary

/// Mixes tones into blocks. Allocates in `init` only.
struct TonePlayer {
    /// What a block begins or ends.
    enum Event {
        case began(Tone)
        case ended(Tone)
    }

    /// So many sound at once; a user hears no more apart.
    static let tonesMax = 4

    private let samples: [[Float]]
    /// What sounds: the tone, which of its sounds, how many it has, and the next sample of that sound.
    private var playing: [(tone: Tone, sound: Int, sounds: Int, position: Int)] = []

    /// - Parameter volume: The loudness, 0…1.
    init(volume: Float) {
        let volume = min(1, max(0, volume))
        samples = ToneSound.allCases.map { $0.samples(volume: volume) }
        playing.reserveCapacity(Self.tonesMax)
    }

    var isIdle: Bool { playing.isEmpty }

    /// Begins a tone with the next block; false when too many sound already. Of two that count the newer is right: the
    /// older one ends with its current sound.
    mutating func play(_ tone: Tone) -> Bool {
        guard playing.count < Self.tonesMax else { return false }
        if tone.isCounting {
            for index in playing.indices where playing[index].tone.isCounting {
                playing[index].sounds = playing[index].sound + 1
            }
        }
        playing.append((tone, sound: 0, sounds: tone.soundCount, position: 0))
        return true
    }

    /// Adds the next `count` samples of every tone to `block`.
    mutating func mix(into block: UnsafeMutablePointer<Float>, count: Int, _ tell: (Event) -> Void) {
        var index = 0
        while index < playing.count {
            let (tone, sound, sounds, position) = playing[index]
            let isOver = samples[Int(tone.sound(at: sound).rawValue)].withUnsafeBufferPointer { samples in
                let part = min(count, samples.count - position)
                for offset in 0..<part { block[offset] += samples[position + offset] }
                return position + count >= samples.count
            }
            if sound == 0, position == 0 { tell(.began(tone)) }
            if !isOver {
                playing[index].position += count
                index += 1
            } else if sound + 1 < sounds {
                (playing[index].sound, playing[index].position) = (sound + 1, 0)
                index += 1
            } else {
                playing.remove(at: index)
                tell(.ended(tone))
            }
        }
    }

    /// Ends all of them; returns how many those were.
    mutating func drop() -> Int {
        defer { playing.removeAll(keepingCapacity: true) }
        return playing.count
    }
}
