// Mixes the current tones, each at its position, over the other sound.
import Glibc

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
    private var playing: [(tone: Tone, position: Int)] = []

    /// - Parameter volume: The loudness, 0…1.
    init(volume: Float) {
        let volume = min(1, max(0, volume))
        samples = Tone.allCases.map { $0.samples(volume: volume) }
        playing.reserveCapacity(Self.tonesMax)
    }

    var isIdle: Bool { playing.isEmpty }

    /// Begins a tone with the next block; false when too many sound already.
    mutating func play(_ tone: Tone) -> Bool {
        guard playing.count < Self.tonesMax else { return false }
        playing.append((tone, 0))
        return true
    }

    /// Adds the next `count` samples of every tone to `block`.
    mutating func mix(into block: UnsafeMutablePointer<Float>, count: Int, _ tell: (Event) -> Void) {
        var index = 0
        while index < playing.count {
            let (tone, position) = playing[index]
            let isOver = samples[Int(tone.rawValue)].withUnsafeBufferPointer { samples in
                let part = min(count, samples.count - position)
                for offset in 0..<part { block[offset] += samples[position + offset] }
                return position + count >= samples.count
            }
            if position == 0 { tell(.began(tone)) }
            playing[index].position += count
            if isOver {
                playing.remove(at: index)
                tell(.ended(tone))
            } else {
                index += 1
            }
        }
    }

    /// Ends all of them; returns how many those were.
    mutating func drop() -> Int {
        defer { playing.removeAll(keepingCapacity: true) }
        return playing.count
    }
}
