// The life of one accessory that speaks over a stream: a serial port, or hands-free commands. Found, paired, opened, lost, and back again.
//
// BlueZ does not reconnect serial ports by itself, so the attempts are ours. Each pages the device for some 5 s, which costs power and
// disturbs links: the pauses grow, and end when the device itself connects.
import BlueZ
import MonotonicTime

/// The rules for one configured accessory with a stream. What it does with the bytes is `ControlsStateMachine`'s.
struct StreamAccessoryStateMachine: AccessoryLink {
    /// Pauses between attempts to open.
    static let openPauses: [Duration] = [
        .seconds(1), .seconds(2), .seconds(4), .seconds(8), .seconds(16), .seconds(32), .seconds(60),
    ]
    /// The longest of them for commands of a connected headset: nobody is paged, and BlueALSA may be started later.
    static let commandsPauseMax = Duration.seconds(8)
    /// Attempts in a row at once when the record of the port is missing, as it is at first with AINA's, or the link broke in the making.
    static let quickTries = 3
    /// The pause between those.
    static let quickPause = Duration.milliseconds(500)
    /// The least time between two attempts, however often the device connects.
    static let attemptSpacing = Duration.seconds(1)
    /// A stream that was open for so long was a good one: its end is followed by a fresh row of attempts.
    static let stableTime = Duration.seconds(10)
    /// The pause after BlueZ said that something is in progress.
    static let progressPause = Duration.seconds(1)
    /// How often that is believed in a row.
    static let progressRetries = 30

    typealias Action = AccessoryLinkAction

    enum Phase: Equatable, Sendable {
        case off
        /// Not known to BlueZ: a scan is wanted.
        case searching(until: Instant)
        case resting(until: Instant)
        case pairing
        /// Hands-free only: BlueALSA has commands of connected devices.
        case connecting
        case opening
        case backingOff(until: Instant)
        case ready(since: Instant)
        /// Of no use as it is, until something about it is different.
        case unusable
    }

    let configuration: AccessoryConfiguration
    let kind: StreamKind
    let library: ProfileLibrary
    var phase = Phase.off
    private(set) var device: DeviceFacts?
    var profile: AccessoryProfile?
    var problem: String?
    private var radio = RadioState.noService
    private var searches = 0
    var attempts = 0
    var quickAttempts = 0
    var progressCount = 0
    var lastAttempt: Instant?
    /// It was open since Bluetooth was switched on or came.
    var hasBeenOpen = false
    /// The stream has ended before its opening was answered.
    var hasClosedWhileOpening = false

    /// - Parameter kind: What carries the presses.
    init(_ configuration: AccessoryConfiguration, kind: StreamKind, library: ProfileLibrary) {
        self.configuration = configuration
        self.kind = kind
        self.library = library
    }

    // MARK: What the fleet asks

    var wantsDiscovery: Bool { if case .searching = phase { true } else { false } }

    var isReady: Bool { if case .ready = phase { true } else { false } }

    var isConnecting: Bool { [.connecting, .opening, .pairing].contains(phase) }

    /// Bytes are read from a stream that was opened for us only: all are news, those too that come before the answer is handled.
    var hearsNews: Bool { radio == .on && (isReady || phase == .opening) && !hasClosedWhileOpening }

    var servicesToRegister: [BluetoothUUID] { [] }

    var nextDeadline: Instant? {
        switch phase {
        case .searching(let time), .resting(let time), .backingOff(let time): time
        case .off, .pairing, .connecting, .opening, .ready, .unusable: nil
        }
    }

    // MARK: Events

    mutating func handle(_ event: AccessoryLinkEvent, at now: Instant) -> [AccessoryLinkAction] {
        var actions: [Action] = []
        switch event {
        case .radio(let state):
            // With bluetoothd its streams end, and its devices will be told anew.
            if state == .noService, radio != .noService { device = nil }
            if state != radio { hasBeenOpen = false }
            radio = state
        case .device(let facts): actions += changed(to: facts, at: now)
        case .completed(let command, let failure): actions += completed(command, failure, at: now)
        case .streamClosed(let closed) where closed == kind: actions += streamClosed(at: now)
        case .streamOffered(let offered) where offered == kind: hasten(to: now)
        // BlueZ does not reconnect streams.
        case .autoConnect, .streamClosed, .streamOffered, .ask, .deadline: break
        }
        return actions + advance(at: now)
    }

    private mutating func changed(to facts: DeviceFacts?, at now: Instant) -> [Action] {
        let old = device
        device = facts
        guard let old else { return [] }
        guard let facts else {
            let actions = lose(.removed) + close(old)
            startSearch(at: now)
            return actions
        }
        guard old.id == facts.id else {
            // A different device of the same name.
            let actions = lose(.disconnected) + close(old)
            profile = nil
            forgetAttempts()
            phase = .backingOff(until: now)
            return actions
        }
        if phase == .unusable, (old.name, old.services, old.isPaired) != (facts.name, facts.services, facts.isPaired) {
            phase = .backingOff(until: now)
        }
        if !old.isConnected, facts.isConnected { hasten(to: now) }
        guard old.isConnected, !facts.isConnected, isReady else { return [] }
        // Its stream went with the link, whether its end has been told or not.
        return streamClosed(at: now) + close(facts)
    }

    /// The device is there: no reason to wait.
    private mutating func hasten(to now: Instant) {
        guard case .backingOff(let until) = phase else { return }
        forgetAttempts()
        let earliest = lastAttempt.map { max(now, $0 + Self.attemptSpacing) } ?? now
        phase = .backingOff(until: min(until, earliest))
    }

    /// Brings the phase in line with what is so.
    private mutating func advance(at now: Instant) -> [Action] {
        guard radio == .on else { return switchOff() }
        if let id = configuration.profileID, library[id] == nil {
            phase = .off
            problem = "there is no profile \"\(id)\": correct the name, or put its file into the profiles directory"
            return []
        }
        guard let device else {
            search(at: now)
            return []
        }
        switch phase {
        case .off, .searching, .resting: return begin(device, at: now)
        case .backingOff(let until): return until <= now ? begin(device, at: now) : []
        case .pairing, .connecting, .opening, .ready, .unusable: return []
        }
    }

    private mutating func switchOff() -> [Action] {
        guard phase != .off else { return [] }
        var actions = lose(radio == .off ? .adapterOff : .bluetoothStopped)
        if radio == .off { actions += device.map { close($0) } ?? [] }
        phase = .off
        problem = nil
        searches = 0
        forgetAttempts()
        return actions
    }

    private mutating func search(at now: Instant) {
        switch phase {
        case .searching(let until) where until <= now:
            let pauses = GATTAccessoryStateMachine.searchPauses
            phase = .resting(until: now + pauses[min(searches, pauses.count - 1)])
            searches += 1
        case .resting(let until) where until > now: return
        case .searching: return
        default: startSearch(at: now)
        }
    }

    private mutating func startSearch(at now: Instant) {
        phase = .searching(until: now + GATTAccessoryStateMachine.searchTime)
        problem = "not found yet: switch it on and put it into pairing mode"
    }

    private func lose(_ reason: AccessoryRelease) -> [Action] { profile == nil ? [] : [.lost(reason)] }

    private func close(_ device: DeviceFacts) -> [Action] { [.command(.closeStream(device: device.id, kind))] }

    private mutating func streamClosed(at now: Instant) -> [Action] {
        switch phase {
        case .opening:
            hasClosedWhileOpening = true
            return lose(.disconnected)
        case .ready(let since):
            problem = "hung up: is connected again"
            if now - since >= Self.stableTime {
                forgetAttempts()
                phase = .backingOff(until: now + Self.quickPause)
            } else {
                // One that opens and hangs up at once must not keep the radio busy.
                backOff(at: now)
            }
            return lose(.disconnected)
        default:
            return []
        }
    }

    mutating func forgetAttempts() {
        attempts = 0
        quickAttempts = 0
        progressCount = 0
    }

    mutating func backOff(at now: Instant) {
        let pause = Self.openPauses[min(attempts, Self.openPauses.count - 1)]
        attempts += 1
        quickAttempts = 0
        let isFree = kind == .handsFree && device?.isConnected == true
        phase = .backingOff(until: now + (isFree ? min(pause, Self.commandsPauseMax) : pause))
    }
}
