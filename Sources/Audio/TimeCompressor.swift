// Shortening speech without changing its pitch, to catch up. Pure.

/// Takes one period of the voice out of a frame and cross-fades over the place.
enum TimeCompressor {
    /// Lags looked at: 2.5…10 ms, that is voices of 100…400 Hz.
    private static let lagMin = 120
    private static let lagMax = 480
    /// How alike two periods must be, 0…1, for the cut to be inaudible.
    private static let likenessMin: Float = 0.5
    /// Mean square below which a frame counts as silence, where any cut is inaudible: -50 dB.
    private static let silence: Float = 1e-5

    /// Shortens the frame in place.
    ///
    /// - Returns: The samples that are left; `count` when there was no good place to cut.
    static func shorten(_ samples: UnsafeMutablePointer<Float>, count: Int) -> Int {
        let longest = min(lagMax, count / 2)
        guard longest >= lagMin else { return count }
        var energy: Float = 0
        for index in 0..<count { energy += samples[index] * samples[index] }
        var best = longest
        var bestLikeness: Float = energy / Float(count) < silence ? 1 : 0
        if bestLikeness == 0 {
            let span = count - longest
            // Plain loops, for `stride` allocates when not optimised.
            var lag = lagMin
            while lag <= longest {
                var (product, left, right): (Float, Float, Float) = (0, 1e-9, 1e-9)
                var index = 0
                while index < span {
                    let (a, b) = (samples[index], samples[index + lag])
                    product += a * b
                    left += a * a
                    right += b * b
                    index += 2
                }
                let likeness = product / (left * right).squareRoot()
                if likeness > bestLikeness { (best, bestLikeness) = (lag, likeness) }
                lag += 2
            }
        }
        guard bestLikeness >= likenessMin else { return count }
        for index in 0..<best {
            let share = (Float(index) + 0.5) / Float(best)
            samples[index] = samples[index] * (1 - share) + samples[index + best] * share
        }
        (samples + best).update(from: samples + 2 * best, count: count - 2 * best)
        return count - best
    }
}
