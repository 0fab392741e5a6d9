// The Bluetooth network to the machine that hosts a channel. Pure.
import MonotonicTime

/// A Bluetooth adapter that offers a personal area network to paired machines: the role NAP of the PAN profile.
public struct BluetoothAccessPoint: Hashable, Sendable, CustomStringConvertible {
    /// The length of an address.
    public static let byteCount = 6

    /// The adapter's public address, most significant byte first.
    public let address: [UInt8]

    /// Nil for anything but six bytes, and for the address that means none.
    public init?(address: [UInt8]) {
        guard address.count == Self.byteCount, address.contains(where: { $0 != 0 }) else { return nil }
        self.address = address
    }

    /// Reads `AA:BB:CC:DD:EE:FF`.
    public init?(_ text: String) {
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        let bytes = parts.compactMap { $0.utf8.count == 2 ? UInt8($0, radix: 16) : nil }
        guard bytes.count == parts.count else { return nil }
        self.init(address: bytes)
    }

    /// `AA:BB:CC:DD:EE:FF`.
    public var description: String {
        address.map { ($0 < 16 ? "0" : "") + String($0, radix: 16, uppercase: true) }.joined(separator: ":")
    }
}

/// Why there is no Bluetooth network.
public enum BluetoothNetworkError: Error, Hashable, Sendable {
    /// There is no Bluetooth that is on.
    case noRadio
    /// This machine is not paired with that one.
    case notPaired
    /// bluetoothd could not connect, in its words.
    case refused(String)
    /// Nothing came of it in time.
    case timedOut
    /// Another one is wanted now, or none.
    case cancelled
}

/// Keeps the network to one access point while that is wanted.
public struct BluetoothNetwork: Sendable {
    /// What happens.
    public enum Event: Sendable {
        /// There is Bluetooth that is on, or there is none any more; a network is gone then.
        case radio(Bool)
        /// A network to this access point is wanted; nil: none.
        case wanted(BluetoothAccessPoint?)
        /// It is there, as this network interface.
        case connected(ticket: UInt64, interface: String)
        /// It cannot be.
        case refused(ticket: UInt64, BluetoothNetworkError)
        /// The link to the access point has gone.
        case lost(BluetoothAccessPoint)
    }

    /// What is to be done.
    public enum Action: Hashable, Sendable {
        /// Connect to its network.
        case connect(BluetoothAccessPoint, ticket: UInt64)
        /// End that, or give it up.
        case disconnect(BluetoothAccessPoint)
        /// What has become of the wish: once for each, and again whenever a network that was lost is back.
        case tell(Outcome)
    }

    /// What has become of a wish.
    public enum Outcome: Hashable, Sendable {
        /// There is a network, as this interface.
        case connected(interface: String)
        /// There is none. It is tried again until it is not wanted any more.
        case failed(BluetoothNetworkError)
    }

    /// How long bluetoothd may take: it pages the other machine for five seconds, and asks for its services.
    static let connectTime = Duration.seconds(20)

    private enum State: Sendable {
        case off
        case connecting(ticket: UInt64, until: Instant)
        case connected
        case waiting(until: Instant)
    }

    private var state = State.off
    private var hasRadio = false
    private var tickets = Tickets()
    private var pause = RetryPause()

    /// The access point to which a network is wanted.
    public private(set) var wish: BluetoothAccessPoint?

    /// No network, and none wanted.
    public init() {}

    /// Whether there is a network to `wish`, or one is being made.
    public var isInUse: Bool {
        switch state {
        case .connecting, .connected: true
        case .off, .waiting: false
        }
    }

    /// When `handleTimeout` has something to do; nil: not before the next event.
    public var nextDeadline: Instant? {
        switch state {
        case .connecting(_, let until), .waiting(let until): until
        case .off, .connected: nil
        }
    }

    /// Takes in what happened.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        var actions: [Action] = []
        switch event {
        case .radio(let isThere):
            guard isThere != hasRadio else { return [] }
            hasRadio = isThere
            if !isThere {
                if case .connecting = state { actions.append(.tell(.failed(.noRadio))) }
                state = .off
            }
        case .wanted(let new):
            if new != wish {
                release(&actions)
                wish = new
            }
            pause = RetryPause()
            // Whoever asks again does not wait for the next attempt.
            if case .waiting = state { state = .off }
            if new != nil, !hasRadio { actions.append(.tell(.failed(.noRadio))) }
        case .connected(let ticket, let interface):
            guard case .connecting(ticket, _) = state else { return [] }
            (state, pause) = (.connected, RetryPause())
            actions.append(.tell(.connected(interface: interface)))
        case .refused(let ticket, let reason):
            guard case .connecting(ticket, _) = state else { return [] }
            state = .waiting(until: now + pause.next())
            actions.append(.tell(.failed(reason)))
        case .lost(let accessPoint):
            guard accessPoint == wish, case .connected = state else { return [] }
            state = .waiting(until: now + pause.next())
        }
        proceed(at: now, &actions)
        return actions
    }

    /// Does what is due.
    public mutating func handleTimeout(at now: Instant) -> [Action] {
        var actions: [Action] = []
        switch state {
        case .connecting(_, let until) where until <= now:
            if let wish { actions.append(.disconnect(wish)) }
            state = .waiting(until: now + pause.next())
            actions.append(.tell(.failed(.timedOut)))
        case .waiting(let until) where until <= now: state = .off
        default: break
        }
        proceed(at: now, &actions)
        return actions
    }

    private mutating func release(_ actions: inout [Action]) {
        switch state {
        case .connecting, .connected:
            if let wish { actions.append(.disconnect(wish)) }
            if case .connecting = state { actions.append(.tell(.failed(.cancelled))) }
        case .off, .waiting: break
        }
        state = .off
    }

    private mutating func proceed(at now: Instant, _ actions: inout [Action]) {
        guard hasRadio, let wish, case .off = state else { return }
        let ticket = tickets.next()
        state = .connecting(ticket: ticket, until: now + Self.connectTime)
        actions.append(.connect(wish, ticket: ticket))
    }
}
