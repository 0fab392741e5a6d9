// Delta debugging: what of a failing schedule is needed to fail.

/// Makes a failing schedule as short as it gets.
public enum Shrinker {
    /// - Parameters:
    ///   - schedule: One that fails.
    ///   - runsMax: How many runs it may take.
    ///   - fails: Whether a schedule fails in the same way.
    public static func shrink(_ schedule: Schedule, runsMax: Int = 600, fails: (Schedule) -> Bool) -> Schedule {
        var best = schedule
        var runs = 0
        func attempt(_ candidate: Schedule) -> Bool {
            guard runs < runsMax, candidate != best else { return false }
            runs += 1
            guard fails(candidate) else { return false }
            best = candidate
            return true
        }
        var isShorter = true
        while isShorter, runs < runsMax {
            isShorter = false
            // Large pieces first.
            var size = max(1, best.actions.count / 2)
            while size >= 1 {
                var index = 0
                while index < best.actions.count {
                    var candidate = best
                    candidate.actions.removeSubrange(index..<min(index + size, best.actions.count))
                    if attempt(candidate) { isShorter = true } else { index += size }
                }
                size /= 2
            }
            if best.devices > 2, best.actions.allSatisfy({ $0.device < best.devices - 1 }) {
                var candidate = best
                candidate.devices -= 1
                if attempt(candidate) { isShorter = true }
            }
            for rules in 0..<best.rules {
                var candidate = best
                candidate.rules = rules
                if attempt(candidate) {
                    isShorter = true
                    break
                }
            }
            for index in best.actions.indices {
                // Rounder and shorter times.
                for step in [1_000, 100, 10] {
                    var candidate = best
                    candidate.actions[index].at = candidate.actions[index].at / step * step
                    if candidate.actions == candidate.actions.sorted(by: { $0.at < $1.at }), attempt(candidate) {
                        break
                    }
                }
                for step in [1_000, 100, 10] {
                    var candidate = best
                    candidate.actions[index].time = candidate.actions[index].time / step * step
                    if candidate.actions[index].time > 0, attempt(candidate) { break }
                }
                var candidate = best
                candidate.actions[index].value = 0
                _ = attempt(candidate)
            }
        }
        return best
    }
}
