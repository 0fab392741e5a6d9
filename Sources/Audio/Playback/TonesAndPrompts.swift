// Mixes tones and a spoken prompt over the other sound.
import Glibc
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

/// Mixes one prompt into blocks. Confined to the playback thread; allocates nothing.
struct PromptPlayer {
    /// A prompt that is cut off fades out within this many samples: 10 ms.
    static let fade = 480

    private var samples: UnsafePointer<Float>?
    private var count = 0
    private var position = 0
    private(set) var number: UInt32 = 0
    /// Samples until the end of the fade; nil: it is not cut off.
    private var fading: Int?

    var isIdle: Bool { samples == nil }

    /// Begins a prompt with the next block.
    ///
    /// - Parameter samples: They stay where they are until the prompt's end is told.
    /// - Returns: The number of the prompt that it takes the place of.
    mutating func play(_ samples: UnsafePointer<Float>, count: Int, number: UInt32) -> UInt32? {
        let replaced = drop()
        (self.samples, self.count, position, self.number, fading) = (samples, count, 0, number, nil)
        return replaced
    }

    /// Cuts it off.
    mutating func stop() { if fading == nil { fading = Self.fade } }

    /// Adds the next `wanted` samples to `block`. Returns the number of the prompt when it has come to its end.
    mutating func mix(into block: UnsafeMutablePointer<Float>, count wanted: Int) -> UInt32? {
        guard let samples else { return nil }
        let part = min(wanted, count - position, fading ?? .max)
        if let fading {
            for offset in 0..<part {
                block[offset] += samples[position + offset] * Float(fading - offset) / Float(Self.fade)
            }
            self.fading = fading - part
        } else {
            for offset in 0..<part { block[offset] += samples[position + offset] }
        }
        position += part
        return position >= count || self.fading == 0 ? drop() : nil
    }

    /// Ends it at once. Returns its number.
    mutating func drop() -> UInt32? {
        guard samples != nil else { return nil }
        (samples, fading) = (nil, nil)
        return number
    }
}
