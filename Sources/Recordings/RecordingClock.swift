// Computes the age of a recording by a clock that may have jumped.

/// The times that the clock has shown while recordings were made, in stretches without a jump between them.
///
/// A recording's age is the time that has passed since, not the difference of two readings of the clock: what the clock has jumped by
/// does not count. So a clock that starts ten years ahead makes no recording old; and one that is set right afterwards makes none young.
/// A machine that was switched off for longer than `Tolerance.forward` keeps recordings for as much longer.
struct RecordingClock: Equatable, Sendable {
    /// A stretch of time in which the clock went on as time does.
    struct Stretch: Equatable, Sendable {
        /// What the clock showed first, in seconds since 1970.
        var first: Int
        /// What it showed last.
        var last: Int
        /// By how many seconds all jumps before have put the clock ahead. Less each time that the clock came back to the stretch
        /// and time had passed that it did not count: its earlier times are taken for the latest ones then.
        var ahead: Int
    }

    /// How far the clock may be from where it was expected, in seconds, without that being a jump.
    struct Tolerance: Equatable, Sendable {
        /// Ahead: the machine was switched off, or asleep.
        var forward: Int
        /// Behind: the clock was set.
        static let backward = 3_600

        /// For recordings that are kept so many seconds: a quarter of that, an hour to a week.
        init(age: Int) { forward = min(max(age / 4, 3_600), 7 * 86_400) }
    }

    /// A clock that shows an earlier time than this (2020) was never set. It tells no age.
    static let isSetAfter = 1_577_836_800
    /// The most stretches that are kept; the oldest go first.
    static let stretchesMax = 16

    /// The stretches in the order of time; the last is the present one. Never empty.
    private(set) var stretches: [Stretch]

    /// The clock of a folder of which nothing else is known.
    ///
    /// - Parameter newest: When its newest recording was made, by its name; nil: there is none.
    init(now: Int, newest: Int?, tolerance: Tolerance) {
        stretches = [Stretch(first: 0, last: min(newest ?? now, now), ahead: 0)]
        advance(to: now, elapsed: 0, tolerance: tolerance)
    }

    /// The clock shows `now`.
    ///
    /// - Parameter elapsed: The seconds that have passed since the last time for certain: by the monotonic clock; at a start 0.
    mutating func advance(to now: Int, elapsed: Int, tolerance: Tolerance) {
        let current = stretches[stretches.count - 1]
        let jump = now - current.last - elapsed
        let ahead = current.ahead + jump
        func isNear(_ difference: Int) -> Bool { (-Tolerance.backward...tolerance.forward).contains(difference) }
        if isNear(jump) {
            stretches[stretches.count - 1].last = now
        } else if let index = stretches.lastIndex(where: { isNear(now - $0.last - elapsed) }) {
            // The clock is back where it was before it jumped. Time has passed meanwhile all the same.
            var earlier = stretches.remove(at: index)
            earlier.last = now
            earlier.ahead = min(earlier.ahead, ahead)
            stretches.append(earlier)
        } else {
            stretches.append(Stretch(first: now, last: now, ahead: ahead))
            if stretches.count > Self.stretchesMax { stretches.removeFirst() }
        }
    }

    /// Seconds since the clock showed `time`, without its jumps; negative for a time that it has not shown yet.
    func age(of time: Int) -> Int {
        let current = stretches[stretches.count - 1]
        // A time that the clock has shown more than once is taken for the latest: nothing is made older than it may be.
        let shown = stretches.filter {
            ($0.first - Tolerance.backward...$0.last + Tolerance.backward).contains(time)
        }
        let made = shown.min { $0.ahead < $1.ahead } ?? stretches.last { $0.first <= time } ?? stretches[0]
        return (current.last - current.ahead) - (time - made.ahead)
    }
}

// MARK: - As a file

extension RecordingClock {
    /// The name in the folder of the recordings.
    static let fileName = ".clock"
    /// A larger file is not read.
    static let byteCountMax = 4_096
    private static let head = "pttd recordings clock 1"
    /// Years have four digits.
    private static let range = -253_402_300_800...253_402_300_800

    /// Reads what `text` has written; nil for anything else.
    init?(text: String) {
        var lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        guard lines.first == Self.head[...], lines.last == "end", lines.count <= Self.stretchesMax + 2 else {
            return nil
        }
        lines = Array(lines.dropFirst().dropLast())
        stretches = []
        for line in lines {
            let numbers = line.split(separator: " ", omittingEmptySubsequences: false).map { Int($0) }
            guard numbers.count == 3, let first = numbers[0], let last = numbers[1], let ahead = numbers[2],
                [first, last, ahead].allSatisfy(Self.range.contains), first >= 0, first <= last + Tolerance.backward
            else { return nil }
            stretches.append(Stretch(first: min(first, last), last: last, ahead: ahead))
        }
        guard !stretches.isEmpty else { return nil }
    }

    /// As it is written.
    var text: String {
        let lines = stretches.map { "\($0.first) \($0.last) \($0.ahead)" }
        return ([Self.head] + lines + ["end"]).joined(separator: "\n")
    }
}
