// Random numbers from a printed seed, so that a failure can be repeated.
import Glibc

/// SplitMix64 (Steele, Lea, Flood 2014): small, and the same on every machine.
public struct SeededGenerator: RandomNumberGenerator, Sendable {
    private var state: UInt64

    /// A generator that always gives the same numbers for the same seed.
    public init(seed: UInt64) { state = seed }

    /// A generator for a test, with the seed of `seed(for:)`.
    public init(_ test: String = #function) { self.init(seed: Self.seed(for: test)) }

    /// The seed of a random test: the environment's PTTD_TEST_SEED repeats a run (`Tests/swift-tests` sets it, so that CI judges a
    /// change and not a seed), else it is a new one (`Tests/search-seeds`). It is printed.
    public static func seed(for test: String = #function) -> UInt64 {
        let given = getenv("PTTD_TEST_SEED").flatMap { UInt64(String(cString: $0)) }
        let seed = given ?? UInt64.random(in: 0...UInt64.max)
        print("\(test): PTTD_TEST_SEED=\(seed)")
        return seed
    }

    /// The next number.
    public mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }

    /// `count` bytes.
    public mutating func bytes(_ count: Int) -> [UInt8] {
        (0..<count).map { _ in UInt8.random(in: 0...255, using: &self) }
    }

    /// True in that many of a hundred calls.
    public mutating func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &self) < percent }
}
