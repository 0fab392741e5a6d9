// On which adapters the media player is registered, and when to try again: pure.
import MonotonicTime

/// What is registered where, against what is wanted.
struct MediaPlayerRegistration: Sendable {
    enum Step: Hashable {
        case register(AdapterIdentifier)
        case unregister(AdapterIdentifier)
    }

    static let firstRetry = Duration.seconds(1)
    static let longestRetry = Duration.seconds(60)

    /// Whether a player is wanted at all.
    var isWanted: Bool
    private var powered: Set<AdapterIdentifier> = []
    private(set) var registered: Set<AdapterIdentifier> = []
    private var failures: [AdapterIdentifier: Int] = [:]
    private var blockedUntil: [AdapterIdentifier: Instant] = [:]

    init(isWanted: Bool = false) { self.isWanted = isWanted }

    /// An adapter that accepts media players was switched on or off, or was reported for the first time.
    mutating func setPowered(_ isPowered: Bool, _ adapter: AdapterIdentifier) {
        if isPowered { powered.insert(adapter) } else { powered.remove(adapter) }
        failures[adapter] = nil
        blockedUntil[adapter] = nil
    }

    /// An adapter is gone, and what was registered with it.
    mutating func remove(_ adapter: AdapterIdentifier) {
        powered.remove(adapter)
        registered.remove(adapter)
        failures[adapter] = nil
        blockedUntil[adapter] = nil
    }

    /// bluetoothd is gone.
    mutating func removeAll() { self = Self(isWanted: isWanted) }

    /// The next thing to do, if any is due. What is registered with an adapter that is switched off stays: BlueZ keeps it.
    func next(at now: Instant) -> Step? {
        guard isWanted else { return registered.min().map { .unregister($0) } }
        let adapter = powered.subtracting(registered).filter { blockedUntil[$0].map { $0 <= now } ?? true }.min()
        return adapter.map { .register($0) }
    }

    /// When the next failed registration is due again.
    var nextDeadline: Instant? { isWanted ? blockedUntil.values.min() : nil }

    mutating func didRegister(_ adapter: AdapterIdentifier) {
        registered.insert(adapter)
        failures[adapter] = nil
        blockedUntil[adapter] = nil
    }

    mutating func didUnregister(_ adapter: AdapterIdentifier) { registered.remove(adapter) }

    mutating func didFail(_ adapter: AdapterIdentifier, at now: Instant) {
        let count = failures[adapter, default: 0]
        failures[adapter] = min(count + 1, 16)
        blockedUntil[adapter] = now + min(Self.firstRetry * (1 << min(count, 16)), Self.longestRetry)
    }
}
