// Decides when this machine's channels are advertised by Bluetooth, and when a failure is retried. Pure.
import MonotonicTime

/// Advertises while there is something to tell and a radio to tell it with. What is registered costs no wake-up.
public struct BluetoothAnnouncer: Sendable {
    /// What happens.
    public enum Event: Sendable {
        /// There is an adapter that is on, or there is none any more; what was registered with it is gone then.
        case radio(Bool)
        /// The record to advertise now has this tag; nil: there is none.
        case record(tag: UInt32?)
        /// What was asked for under this ticket is done.
        case done(ticket: UInt64)
        /// It was refused.
        case refused(ticket: UInt64, reason: String)
        /// bluetoothd has let go of what was registered.
        case released
    }

    /// What is to be done.
    public enum Action: Hashable, Sendable {
        /// Offer the service and advertise it, with this tag.
        case register(tag: UInt32, ticket: UInt64)
        /// Advertise another tag.
        case update(tag: UInt32)
        /// End both.
        case unregister
    }

    /// The number of consecutive refusals after which nothing is retried until the radio is switched on again or the
    /// record changes.
    static let attemptsMaximum = 8
    /// The least time between two tags: each one has everybody near read again.
    static let updatePause = Duration.seconds(5)

    private enum State: Sendable {
        case off
        case registering(UInt64, tag: UInt32)
        case registered(tag: UInt32, since: Instant)
        case waiting(Instant)
        case gaveUp
    }

    private var state = State.off
    private var tickets = Tickets()
    private var pause = RetryPause()
    private var attempts = 0
    private var hasRadio = false
    private var tag: UInt32?
    /// Why nothing is advertised, as of the last refusal; nil: nothing is wrong.
    public private(set) var refusal: String?

    /// An announcer without a radio.
    public init() {}

    /// Whether others can find this machine.
    public var isAnnounced: Bool {
        if case .registered = state { true } else { false }
    }

    /// When `handleTimeout` has something to do; nil: not before the next event.
    public var nextDeadline: Instant? {
        switch state {
        case .waiting(let time): time
        case .registered(let told, let since) where told != tag: since + Self.updatePause
        default: nil
        }
    }

    /// Takes in what happened.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .radio(let isThere):
            guard isThere != hasRadio else { return [] }
            hasRadio = isThere
            // What was registered has gone with the radio.
            reset()
        case .record(let new):
            guard new != tag else { return [] }
            tag = new
            if new == nil {
                defer { reset() }
                if case .off = state { return [] }
                return hasRadio ? [.unregister] : []
            }
            if case .gaveUp = state { reset() }
        case .done(let ticket):
            guard case .registering(ticket, let told) = state else { return [] }
            state = .registered(tag: told, since: now)
            (pause, attempts, refusal) = (RetryPause(), 0, nil)
        case .refused(let ticket, let reason):
            guard case .registering(ticket, _) = state else { return [] }
            refused(reason, at: now)
        case .released:
            guard case .registered = state else { return [] }
            refused("bluetoothd has ended the advertisement", at: now)
        }
        return proceed(at: now)
    }

    /// Does what is due.
    public mutating func handleTimeout(at now: Instant) -> [Action] {
        if case .waiting(let time) = state, time <= now { state = .off }
        return proceed(at: now)
    }

    private mutating func reset() { (state, pause, attempts, refusal) = (.off, RetryPause(), 0, nil) }

    private mutating func refused(_ reason: String, at now: Instant) {
        refusal = reason
        attempts += 1
        state = attempts >= Self.attemptsMaximum ? .gaveUp : .waiting(now + pause.next())
    }

    private mutating func proceed(at now: Instant) -> [Action] {
        guard hasRadio, let tag else { return [] }
        switch state {
        case .off:
            let ticket = tickets.next()
            state = .registering(ticket, tag: tag)
            return [.register(tag: tag, ticket: ticket)]
        case .registered(let told, let since) where told != tag && since + Self.updatePause <= now:
            state = .registered(tag: tag, since: now)
            return [.update(tag: tag)]
        default: return []
        }
    }
}
