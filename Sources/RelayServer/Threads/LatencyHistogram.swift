// A histogram of times with a few fixed classes, cheap enough to count every packet.

import MonotonicTime

/// How often something took how long.
public struct LatencyHistogram: Sendable, Equatable {
    /// The upper ends of the classes, in microseconds; one class beyond the last takes the rest.
    public static let bounds: [Int64] = [
        25, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000,
    ]

    /// How many fell in each class, in the order of `bounds`, and how many beyond them.
    public private(set) var counts = [Int](repeating: 0, count: bounds.count + 1)
    /// All times together, in nanoseconds.
    public private(set) var sum: Int64 = 0

    /// Nothing counted.
    public init() {}

    /// How many were counted.
    public var total: Int { counts.reduce(0, +) }

    /// Counts one time. Allocates nothing.
    public mutating func count(_ time: Duration) {
        let nanoseconds = max(0, time.nanoseconds)
        sum &+= nanoseconds
        var index = 0
        while index < Self.bounds.count, nanoseconds > Self.bounds[index] * 1_000 { index += 1 }
        counts[index] += 1
    }

    /// Adds what another one counted.
    mutating func add(_ other: LatencyHistogram) {
        for index in counts.indices { counts[index] += other.counts[index] }
        sum &+= other.sum
    }
}
