// When an LE link is asked to be quick, and when it may be slow again. (The kernel is asked by `BlueZHost`.)
import BlueZ
import MonotonicTime

/// The rules for one accessory's link: tight while a control is down, so that its loss is noticed within half a second;
/// relaxed otherwise, so that the battery lasts.
struct LinkTightening: Sendable {
    /// The link stays tight for so long after the last release: quick presses must not make it change to and fro.
    static let linger = Duration.seconds(2)

    enum Event: Sendable {
        /// The accessory is subscribed to, and works.
        case ready(idle: AccessoryProfile.IdleLink?)
        case lost
        /// A control went down, with none down before.
        case pressed
        /// The last control came up.
        case released
        /// Nobody listens to it any more, at least for now.
        case left
        case completed(BluetoothFailure?)
        case deadline
    }

    enum Action: Equatable, Sendable {
        case set(LEConnectionParameters)
        /// It does not work, and what to do; said once.
        case note(String)
    }

    private enum Wish { case tight, relaxed }

    /// A connection event at least every 15 ms, none skipped, and lost after 300 ms of silence: 20 events in a row.
    static let tight = try? LEConnectionParameters(
        interval: .microseconds(7500) ... .milliseconds(15), latency: 0, supervisionTimeout: .milliseconds(300))
    /// The interval is the kernel's own (a press waits 50 ms at most, for a device may send at every event), but the
    /// device may sleep through four of five while it has nothing to say. Only what is sent to it waits longer.
    static let usualIdle = try? LEConnectionParameters(
        interval: .milliseconds(30) ... .milliseconds(50), latency: 4, supervisionTimeout: .seconds(3))

    private var isReady = false
    private var isDown = false
    private var idle = usualIdle
    /// What the link was last asked for; nil: nothing since it came.
    private var asked: Wish?
    private var isAsking = false
    private var lingersUntil: Instant?
    /// It did not work on this link: not tried again before the next.
    private var isGivenUp = false
    private var hasTold = false

    init() {}

    var nextDeadline: Instant? { lingersUntil }

    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        var actions: [Action] = []
        switch event {
        case .ready(let idleLink):
            isReady = true
            isGivenUp = false
            asked = nil
            idle = idleLink.flatMap(Self.parameters) ?? Self.usualIdle
        case .lost:
            isReady = false
            asked = nil
            // The answer may come when the device is nobody's.
            isAsking = false
            lingersUntil = nil
        case .left:
            isDown = false
            lingersUntil = nil
        case .pressed:
            isDown = true
            lingersUntil = nil
        case .released:
            isDown = false
            if isReady, asked == .tight { lingersUntil = now + Self.linger }
        case .completed(let failure):
            guard isAsking else { break }
            isAsking = false
            if let failure { actions += failed(failure) }
        case .deadline:
            break
        }
        if let until = lingersUntil, until <= now { lingersUntil = nil }
        return actions + ask()
    }

    private mutating func ask() -> [Action] {
        guard isReady, !isAsking, !isGivenUp else { return [] }
        let wish: Wish = isDown || lingersUntil != nil ? .tight : .relaxed
        guard wish != asked, let parameters = wish == .tight ? Self.tight : idle else { return [] }
        asked = wish
        isAsking = true
        return [.set(parameters)]
    }

    private mutating func failed(_ failure: BluetoothFailure) -> [Action] {
        isGivenUp = true
        lingersUntil = nil
        let text: String
        switch failure {
        case .notConnected, .notSupported, .serviceGone, .notReady, .doesNotExist:
            // The link went meanwhile, or there is no kernel's link to it at all.
            return []
        case .notPermitted:
            text =
                "its link cannot be tightened while a control is held, so that its loss is noticed late: "
                + "give the daemon CAP_NET_RAW (systemd: AmbientCapabilities=CAP_NET_RAW)"
        default:
            text = "its link cannot be tightened while a control is held (\(failure)): its loss is noticed late"
        }
        guard !hasTold else { return [] }
        hasTold = true
        return [.note(text)]
    }

    private static func parameters(_ idle: AccessoryProfile.IdleLink) -> LEConnectionParameters? {
        // A controller may choose in a range; a profile says how long a press may wait.
        let shortest = max(.microseconds(7500), idle.interval - .milliseconds(20))
        return try? LEConnectionParameters(
            interval: min(shortest, idle.interval)...idle.interval, latency: idle.latency,
            supervisionTimeout: idle.supervisionTimeout)
    }
}
