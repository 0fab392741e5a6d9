// Mixes a spoken prompt over the other sound, and fades it out when it is cut off.
import Glibc

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
