// What is registered with which adapter, against what is wanted, and when to try again. Pure.
import DBus
import MonotonicTime

extension Backoff {
    /// The delays before attempts to register something with bluetoothd.
    static let registration = Backoff(first: .seconds(1), longest: .seconds(60))
}

/// Something of this client that is to be registered with every adapter.
struct AdapterRegistrations<Content: Equatable & Sendable>: Sendable {
    /// What to do for an adapter.
    enum Step: Hashable {
        case register(AdapterIdentifier)
        case unregister(AdapterIdentifier)
    }

    /// Nil: nothing is to be registered.
    private(set) var wanted: Content?
    private(set) var registered: [AdapterIdentifier: Content] = [:]
    /// Where it failed, and when it is due again.
    private var failed: [AdapterIdentifier: (backoff: Backoff, until: Instant)] = [:]

    mutating func want(_ content: Content?) {
        wanted = content
        failed = [:]
    }

    /// bluetoothd is gone.
    mutating func forgetAll() { (registered, failed) = ([:], [:]) }

    /// An adapter is gone, and what was registered with it.
    mutating func forget(_ adapter: AdapterIdentifier) { (registered[adapter], failed[adapter]) = (nil, nil) }

    /// An adapter was switched on or off: whatever failed there is due again.
    mutating func retry(_ adapter: AdapterIdentifier) { failed[adapter] = nil }

    /// The next thing to do, if any is due, for the adapters that are there.
    func next(adapters: [AdapterIdentifier], at now: Instant) -> Step? {
        guard let wanted else { return registered.keys.min().map { .unregister($0) } }
        for adapter in adapters where failed[adapter].map({ $0.until <= now }) ?? true {
            guard let current = registered[adapter] else { return .register(adapter) }
            // BlueZ reads what it is when it is registered: something else means registering again.
            if current != wanted { return .unregister(adapter) }
        }
        return nil
    }

    /// When the next failed registration is due again.
    var nextDeadline: Instant? { failed.values.lazy.map(\.until).min() }

    mutating func didRegister(_ adapter: AdapterIdentifier, _ content: Content) {
        registered[adapter] = content
        failed[adapter] = nil
    }

    mutating func didUnregister(_ adapter: AdapterIdentifier) { registered[adapter] = nil }

    mutating func didFail(_ adapter: AdapterIdentifier, at now: Instant) {
        guard wanted != nil else { return }
        var backoff = failed[adapter]?.backoff ?? .registration
        let until = now + backoff.delay()
        failed[adapter] = (backoff, until)
    }
}
