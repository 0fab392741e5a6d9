// Brings speech to a standard level, without delay and without clipping. Pure.
import Glibc
import Vocabulary

/// A slow gain towards a loudness of speech, and a limiter that looks over the block it is given.
///
/// It takes whole blocks and gives them back at once: no sample is delayed. Only speech moves the gain, so that pauses
/// are not turned up; it moves by decibels a second, and no sample comes out above `ceiling`.
struct GainControl {
    /// The loudness of speech that is aimed at, in dBFS (mean power while somebody speaks).
    static let target: Float = -20
    /// How far speech is turned up and down at most, in dB.
    static let gainMax: Float = 15
    static let gainMin: Float = -12
    /// What no sample exceeds: -1 dBFS.
    static let ceiling: Float = 0.891
    /// Speech is above this level, in dBFS, and `speechAboveFloor` dB above the noise.
    private static let speechMin: Float = -55
    private static let speechAboveFloor: Float = 9
    /// Decibels a second.
    private static let rise: Float = 6
    private static let fall: Float = 24
    /// How fast the estimate of the noise floor rises and falls, in dB per second.
    private static let floorRise: Float = 3
    private static let floorFall: Float = 60
    /// The limiter's resolution: 1 ms.
    private static let step = 48

    /// Nil: towards `target`; otherwise this gain in dB, limited all the same.
    private let fixed: Float?
    private var gain: Float
    private var floor: Float = -70
    private var speech: Float = Self.target
    /// The gain, as a factor, that the last block ended with.
    private var last: Float

    init(fixed: Float? = nil) {
        self.fixed = fixed
        gain = fixed ?? 0
        last = powf(10, gain / 20)
    }

    /// The gain aimed at, in dB.
    var decibels: Float { gain }

    /// Changes the loudness of `count` samples where they are. Allocates nothing.
    mutating func process(_ samples: UnsafeMutablePointer<Float>, count: Int) {
        guard count > 0 else { return }
        if fixed == nil { follow(SpeechFramer.level(samples, count: count), seconds: Float(count) / 48_000) }
        apply(powf(10, gain / 20), samples, count: count)
    }

    private mutating func follow(_ level: Float, seconds: Float) {
        let noise = max(level, OutgoingFrame.levelMin)
        floor += min(max(noise - floor, -Self.floorFall * seconds), Self.floorRise * seconds)
        guard level > Self.speechMin, level > floor + Self.speechAboveFloor else { return }
        // Loud parts count more than the ends of words: quick up, slow down.
        speech += (level - speech) * min(1, seconds / (level > speech ? 0.1 : 1))
        let wanted = min(Self.gainMax, max(Self.gainMin, Self.target - speech))
        gain += min(max(wanted - gain, -Self.fall * seconds), Self.rise * seconds)
    }

    /// Between two steps the gain goes in a straight line; at each it is what both sides bear.
    private mutating func apply(_ wanted: Float, _ samples: UnsafeMutablePointer<Float>, count: Int) {
        var bound = bound(samples, from: 0, count: count)
        var from = min(last, bound)
        var place = 0
        while place < count {
            let end = min(count, place + Self.step)
            let next = end < count ? self.bound(samples, from: end, count: count) : bound
            let goal = last + (wanted - last) * Float(end) / Float(count)
            let to = min(goal, bound, next)
            let slope = (to - from) / Float(end - place)
            for index in place..<end { samples[index] *= from + slope * Float(index - place) }
            from = to
            bound = next
            place = end
        }
        last = from
    }

    /// The gain that the step from `from` on bears.
    private func bound(_ samples: UnsafeMutablePointer<Float>, from: Int, count: Int) -> Float {
        var peak: Float = 0
        for index in from..<min(count, from + Self.step) { peak = max(peak, abs(samples[index])) }
        return peak > 0 ? Self.ceiling / peak : .greatestFiniteMagnitude
    }
}
