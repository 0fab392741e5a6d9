// What handlers were called with, for tests that wait for it.
import MonotonicTime
import Synchronization

/// Collects values from handlers, in order.
public final class Recorder<Value: Sendable>: Sendable {
    private let values = Mutex<[Value]>([])

    /// An empty recorder.
    public init() {}

    /// Adds a value.
    public func record(_ value: Value) { values.withLock { $0.append(value) } }

    /// All so far.
    public var all: [Value] { values.withLock { $0 } }

    /// Forgets all.
    public func clear() { values.withLock { $0 = [] } }

    /// Waits until `condition` holds for what was recorded and returns that; after `timeout` what there is.
    @discardableResult
    public func wait(
        _ timeout: Duration = .seconds(10), until condition: @Sendable ([Value]) -> Bool
    ) async throws -> [Value] {
        let deadline = Instant.now + timeout
        while Instant.now < deadline {
            let now = all
            if condition(now) { return now }
            try await Task.sleep(for: .milliseconds(2))
        }
        return all
    }

    /// Waits for `count` values.
    @discardableResult
    public func wait(for count: Int, _ timeout: Duration = .seconds(10)) async throws -> [Value] {
        try await wait(timeout) { $0.count >= count }
    }
}

/// Waits until `condition` holds; false after `timeout`.
public func eventually(
    _ timeout: Duration = .seconds(10), _ condition: @Sendable () async throws -> Bool
) async throws -> Bool {
    let deadline = Instant.now + timeout
    while Instant.now < deadline {
        if try await condition() { return true }
        try await Task.sleep(for: .milliseconds(2))
    }
    return false
}

/// Random numbers from a seed (SplitMix64), so that a failure can be repeated.
public struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64
    /// A generator that always gives the same numbers for the same seed.
    public init(seed: UInt64) { state = seed }
    /// The next number.
    public mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xbf58_476d_1ce4_e5b9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94d0_49bb_1331_11eb
        return mixed ^ (mixed >> 31)
    }
}
