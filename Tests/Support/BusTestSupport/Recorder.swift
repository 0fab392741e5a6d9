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

/// Waits until `condition` holds; false when it does not after `timeout`.
public func eventually(
    _ timeout: Duration = .seconds(10), _ condition: @Sendable () async throws -> Bool
) async throws -> Bool {
    let deadline = Instant.now + timeout
    while Instant.now < deadline {
        if try await condition() { return true }
        try await Task.sleep(for: .milliseconds(2))
    }
    // The thread may have stood still all the time.
    return try await condition()
}
