// Mixes several voices: their sum, with peaks above full scale reduced.
import Glibc

/// Adds the voices of one block after the other. Confined to the playback thread; allocates in `init` only.
///
/// One voice alone passes as it is.
final class VoiceMixer {
    private let scratch: UnsafeMutablePointer<Float>
    private let capacity: Int
    private var limiter = MixLimiter()

    /// - Parameter capacity: The longest block, in samples.
    init(capacity: Int) {
        self.capacity = capacity
        scratch = .allocate(capacity: capacity)
        scratch.initialize(repeating: 0, count: capacity)
        LockedMemory.lock(scratch, capacity * MemoryLayout<Float>.stride)
    }

    deinit { scratch.deallocate() }

    /// Fills `block` with the sum of the voices that sound; silence when none does.
    ///
    /// - Parameters:
    ///   - count: Samples of the block; no more than the mixer's capacity.
    ///   - render: Fills the memory with the next `count` samples of a voice; false: it is silent, and nothing was filled.
    func mix(
        _ voices: Int, into block: UnsafeMutablePointer<Float>, count: Int,
        _ render: (_ voice: Int, _ output: UnsafeMutablePointer<Float>) -> Bool
    ) {
        precondition(count <= capacity)
        var sounding = 0
        for voice in 0..<voices {
            guard render(voice, sounding == 0 ? block : scratch) else { continue }
            sounding += 1
            guard sounding > 1 else { continue }
            for index in 0..<count { block[index] += scratch[index] }
        }
        if sounding == 0 { memset(block, 0, count * MemoryLayout<Float>.stride) }
        limiter.apply(to: block, count: count, isMix: sounding > 1)
    }
}

/// Keeps a sum of voices below full scale: it is turned down within a block and up again slowly, and what is too loud until then is
/// bent, not cut.
struct MixLimiter {
    /// What is louder is turned down: 1 dB below full scale.
    static let ceiling: Float = 0.89
    /// The part of the way back to full loudness that is gone with each block: in blocks of 2.5 ms, a time constant of 200 ms.
    static let release: Float = 1 / 80
    /// From here on the loudness is full.
    private static let full: Float = 0.999

    /// How loud the sum is at present, 0…1.
    private(set) var gain: Float = 1

    /// Limits a block in its place.
    ///
    /// - Parameter isMix: Whether it is the sum of several voices; one alone is only brought back to its loudness.
    mutating func apply(to block: UnsafeMutablePointer<Float>, count: Int, isMix: Bool) {
        guard isMix || gain < 1, count > 0 else { return }
        var peak: Float = 0
        for index in 0..<count { peak = max(peak, abs(block[index])) }
        let wanted = isMix && peak > Self.ceiling ? Self.ceiling / peak : 1
        var next = min(wanted, gain + (1 - gain) * Self.release)
        if next > Self.full { next = 1 }
        let step = (next - gain) / Float(count)
        for index in 0..<count {
            gain += step
            block[index] = Self.bent(block[index] * gain)
        }
        gain = next
    }

    /// Returns a sample below the ceiling unchanged. Above it the result approaches full scale and never reaches it.
    static func bent(_ sample: Float) -> Float {
        let size = abs(sample)
        guard size > ceiling else { return sample }
        let room = 1 - ceiling
        let over = (size - ceiling) / room
        let bent = ceiling + room * over / (1 + over)
        return sample < 0 ? -bent : bent
    }
}
