// Shortens or lengthens decoded speech without changing its pitch.
import Glibc

/// A queue of samples whose beginning can be shortened or lengthened by whole periods of the voice (waveform similarity,
/// overlap and add), and by anything where it is quiet. It keeps what was played last, so that lengthening needs no more
/// than the samples of one short frame. Allocates in `init` only. (libsonic does the same, but holds back up to 40 ms of
/// speech before it gives the first of it, where this needs 25 ms to shorten and 10 ms to lengthen; it allocates as it goes.)
final class TimeScaler {
    /// The number of samples that shortening needs: two periods of a deep voice.
    static let wanted = 1_200
    /// Periods looked at: 2.5…12.5 ms, that is voices of 80…400 Hz.
    private static let lagMin = 120
    private static let lagMax = 600
    /// Periods are compared over at most this many samples.
    private static let spanMax = 600
    /// The length of a cross-fade.
    static let fadeMax = 240
    /// How alike two periods must be, 0…1, for a change to be inaudible; when far behind, less will do.
    private static let likenessMin: Float = 0.8
    private static let likenessWhenFar: Float = 0.55
    /// Being behind by so much is far.
    private static let far = 4_800
    /// How many more samples than requested may be removed or inserted, because only whole periods are possible.
    private static let tolerance = 96
    /// Speech is played at most 1.2 times as fast (a sixth is taken out), and as much slower…
    private static let shareMax: Float = 0.2
    /// …and 1.25 times while it is more than 3 s behind, as after a late entry.
    private static let shareWhenVeryFar: Float = 0.25
    private static let veryFar = 144_000
    private static let budgetMax: Float = 1_200
    /// So much of each pause is kept: 120 ms, which is heard as one.
    static let pauseMin = 5_760
    /// Mean squares below which it is quiet in any case (-50 dB), and above which it never is (-36 dB).
    private static let quietMin: Float = 1e-5
    private static let quietMax: Float = 2.5e-4

    private static let history = 1_440
    private static let capacity = history + wanted + 2 * OpusDecoder.samplesMax + lagMax
    private let samples: UnsafeMutablePointer<Float>
    private let copy: UnsafeMutablePointer<Float>
    /// The first sample that was not played, and the end of those that are there.
    private var position = 0
    private var end = 0
    /// The background's mean square: falls at once, rises slowly.
    private var floor: Float = 1e-6
    /// Samples of the present pause that were played.
    private var quietPlayed = 0
    /// Samples that may be taken out of speech, or put in.
    private var budget: Float = 0
    /// So many of those are earned with each sample that is played.
    private var share = TimeScaler.shareMax

    init() {
        samples = .allocate(capacity: Self.capacity)
        samples.initialize(repeating: 0, count: Self.capacity)
        copy = .allocate(capacity: Self.lagMax)
        copy.initialize(repeating: 0, count: Self.lagMax)
        reset()
    }

    deinit {
        samples.deallocate()
        copy.deallocate()
    }

    /// Another voice: forgets all samples.
    func reset() {
        memset(samples, 0, Self.history * MemoryLayout<Float>.stride)
        position = Self.history
        end = position
        quietPlayed = 0
        budget = 0
        share = Self.shareMax
    }

    /// Samples that were not played yet.
    var count: Int { end - position }

    /// Drops what was not played.
    func drop() { end = position }

    /// Memory for `OpusDecoder.samplesMax` samples; `commit` then gives their number. Only while `count` is below
    /// `wanted`.
    func room() -> UnsafeMutablePointer<Float> {
        if end + OpusDecoder.samplesMax + Self.lagMax > Self.capacity {
            let start = position - Self.history
            memmove(samples, samples + start, (end - start) * MemoryLayout<Float>.stride)
            position -= start
            end -= start
        }
        return samples + end
    }

    func commit(_ count: Int) { end += count }

    /// The samples that were played last, oldest first (at most `history`).
    func lastPlayed(_ count: Int) -> UnsafePointer<Float> { UnsafePointer(samples + position - count) }

    /// The samples that come next.
    var next: UnsafePointer<Float> { UnsafePointer(samples + position) }

    /// So many of `next` have been played.
    func played(_ count: Int) {
        guard count > 0 else { return }
        let energy = Self.energy(samples + position, count)
        floor = min(max(energy, 1e-9), floor * (1 + 1e-5 * Float(count)))
        quietPlayed = energy < quietLimit ? quietPlayed + count : 0
        budget = min(Self.budgetMax, budget + share * Float(count))
        position += count
    }

    private var quietLimit: Float { min(Self.quietMax, max(Self.quietMin, 4 * floor)) }

    // MARK: Changes

    /// Takes up to about `most` samples out of those that come next; returns how many.
    func shorten(by most: Int) -> Int {
        let start = samples + position
        let isQuiet = count > 0 && Self.energy(start, count) < quietLimit
        share = most > Self.veryFar ? Self.shareWhenVeryFar : Self.shareMax
        if isQuiet, quietPlayed >= Self.pauseMin {
            let lag = min(most, count - Self.lagMin)
            guard lag > 0 else { return 0 }
            cut(lag, fade: min(Self.lagMin, count - lag))
            return lag
        }
        // In pairs, for with more arguments an array of them is made.
        let longest = min(min(Self.lagMax, most + Self.tolerance), min(count / 2, Int(budget)))
        guard longest >= Self.lagMin else { return 0 }
        let span = min(Self.spanMax, count - longest)
        guard let lag = bestLag(start, start, longest, span, isFar: most > Self.far) else { return 0 }
        cut(lag, fade: min(Self.fadeMax, lag))
        budget -= Float(lag)
        return lag
    }

    /// Puts up to about `most` samples in before those that come next, by playing the last period again; returns how many.
    func lengthen(by most: Int) -> Int {
        let longest = min(Self.lagMax, min(most + Self.tolerance, Int(budget)))
        let span = min(Self.spanMax, count)
        guard longest >= Self.lagMin, span >= Self.lagMin, end + longest <= Self.capacity else { return 0 }
        let start = samples + position
        let isQuiet = Self.energy(start, count) < quietLimit
        guard let lag = isQuiet ? longest : bestLag(start, start, -longest, span, isFar: false) else { return 0 }
        // The fade reads what it overwrites: the new beginning is made aside.
        let fade = min(Self.fadeMax, min(lag, count))
        for index in 0..<lag {
            let share = min(1, (Float(index) + 0.5) / Float(fade))
            let old = start[index - lag]
            copy[index] = index < fade ? start[index] * (1 - share) + old * share : old
        }
        memmove(start + lag, start, count * MemoryLayout<Float>.stride)
        memcpy(start, copy, lag * MemoryLayout<Float>.stride)
        end += lag
        budget -= Float(lag)
        return lag
    }

    /// Goes over from invented sound to the speech that it stands for, which comes behind it.
    ///
    /// - Parameters:
    ///   - invented: Samples of the sound that comes next and was invented.
    ///   - skipped: Samples at the beginning of the speech that are not played, because their time has passed.
    func join(invented: Int, skipped: Int) {
        let lag = min(invented + skipped, count)
        cut(lag, fade: min(Self.fadeMax, min(invented, count - lag)))
    }

    /// Fades from the beginning over to what is `lag` later.
    private func cut(_ lag: Int, fade: Int) {
        let start = samples + position
        for index in 0..<fade {
            let share = (Float(index) + 0.5) / Float(fade)
            start[index] = start[index] * (1 - share) + start[index + lag] * share
        }
        memmove(start + fade, start + fade + lag, (count - fade - lag) * MemoryLayout<Float>.stride)
        end -= lag
    }

    /// The lag up to `longest` (below zero: backwards) at which the voice repeats itself best; nil when it does not.
    private func bestLag(
        _ a: UnsafePointer<Float>, _ b: UnsafePointer<Float>, _ longest: Int, _ span: Int, isFar: Bool
    ) -> Int? {
        let sign = longest < 0 ? -1 : 1
        var (best, bestLikeness): (Int, Float) = (0, 0)
        // Plain loops, for `stride` allocates when not optimised. First roughly, then around the best.
        var lag = Self.lagMin
        while lag <= abs(longest) {
            let likeness = Self.likeness(a, b + sign * lag, span, step: 4)
            if likeness > bestLikeness { (best, bestLikeness) = (lag, likeness) }
            lag += 4
        }
        guard best > 0 else { return nil }
        lag = max(Self.lagMin, best - 3)
        let last = min(abs(longest), best + 3)
        bestLikeness = 0
        while lag <= last {
            let likeness = Self.likeness(a, b + sign * lag, span, step: 1)
            if likeness > bestLikeness { (best, bestLikeness) = (lag, likeness) }
            lag += 1
        }
        return bestLikeness >= (isFar ? Self.likenessWhenFar : Self.likenessMin) ? best : nil
    }

    private static func likeness(_ a: UnsafePointer<Float>, _ b: UnsafePointer<Float>, _ count: Int, step: Int) -> Float
    {
        var (product, left, right): (Float, Float, Float) = (0, 1e-9, 1e-9)
        var index = 0
        while index < count {
            let (x, y) = (a[index], b[index])
            product += x * y
            left += x * x
            right += y * y
            index += step
        }
        return product / (left * right).squareRoot()
    }

    private static func energy(_ samples: UnsafePointer<Float>, _ count: Int) -> Float {
        var sum: Float = 0
        for index in 0..<count { sum += samples[index] * samples[index] }
        return sum / Float(max(1, count))
    }
}
