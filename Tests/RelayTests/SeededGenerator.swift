// Random numbers that a seed repeats (SplitMix64), for model tests and the simulated network.

struct SeededGenerator: RandomNumberGenerator, Sendable {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }

    mutating func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &self) < percent }
}

/// The seed of a random test: `PTT_TEST_SEED` repeats a run, else it is a new one.
func testSeed() -> UInt64 {
    guard let text = ProcessInfoEnvironment.value("PTT_TEST_SEED"), let seed = UInt64(text) else {
        return UInt64.random(in: 0...UInt64.max)
    }
    return seed
}
