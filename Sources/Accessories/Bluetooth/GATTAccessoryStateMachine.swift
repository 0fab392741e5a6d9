// The life of one Bluetooth LE accessory: found, connected, recognised, subscribed, lost, and back again.
//
// BlueZ reconnects a known accessory by itself once its service is registered and it is trusted, so the usual phase is
// `.waiting`, with no scan of ours. Everything else is for the first time, and for what goes wrong.
import BlueZ
import MonotonicTime

/// The rules for one configured accessory. What it does with the values is `ControlsStateMachine`'s.
struct GATTAccessoryStateMachine: AccessoryLink {
    /// A scan for an unknown device takes this long …
    static let searchTime = Duration.seconds(30)
    /// … and then pauses for the next of these, for a scan costs power and disturbs links.
    static let searchPauses: [Duration] = [.seconds(15), .seconds(30), .seconds(60), .seconds(120), .seconds(300)]
    /// Pauses between attempts to connect.
    static let connectPauses: [Duration] = [
        .seconds(1), .seconds(2), .seconds(4), .seconds(8), .seconds(15), .seconds(30), .seconds(60),
    ]
    /// Attempts repeated at once when the controller gave up though the device is there.
    static let quickRetries = 3
    /// The pause before those: BlueZ is still tearing the failed link down.
    static let quickPause = Duration.milliseconds(100)
    /// The services of a connected device are known by then; the first time less is waited, for 5.66 may keep a link from before
    /// its restart on which it never asks for services.
    static let resolveTimes: [Duration] = [.seconds(8), .seconds(20)]
    /// A device that is told to hang up has done so by then.
    static let hangUpTime = Duration.seconds(20)
    /// Characteristics may be exported a little after `ServicesResolved`.
    static let lateCharacteristicsTime = Duration.seconds(3)
    /// Reconnections because of characteristics that did not come; a cut-short discovery leaves holes.
    static let incompleteRetries = 2
    /// The pause after BlueZ said that something is in progress.
    static let progressPause = Duration.milliseconds(300)
    /// How often that is believed in a row.
    static let progressRetries = 30
    /// A link that is told of within this time after Bluetooth was switched on or bluetoothd came may be older than that.
    static let settleTime = Duration.seconds(10)
    static let hungUpPairing =
        "hung up, or went out of reach, while it was being paired: put it into pairing mode, and keep it near"
    /// Names a device has gone by, for those that lose theirs; more are not kept.
    static let namesMax = 8

    typealias Action = AccessoryLinkAction

    enum Phase: Equatable, Sendable {
        case off
        /// Not known to BlueZ: a scan is wanted.
        case searching(until: Instant)
        case resting(until: Instant)
        case connecting
        case backingOff(until: Instant)
        /// Known and trusted: BlueZ connects it when it advertises. It may be asked for from this time on; nil while it is.
        case waiting(asksAfter: Instant?)
        case resolving(until: Instant)
        case pairing
        case subscribing
        case resubscribing(at: Instant)
        case ready
        /// We hang up in order to connect anew.
        case droppingLink(until: Instant)
        /// Connected, but of no use as it is; until a time, or until something about it is different.
        case unusable(until: Instant?)
    }

    let configuration: AccessoryConfiguration
    let library: ProfileLibrary
    var phase = Phase.off
    private(set) var device: DeviceFacts?
    /// Those of the profile that the device's name and services tell.
    private var probableServices: [BluetoothUUID] = []
    /// Settled by the device's characteristics.
    var profile: AccessoryProfile?
    var problem: String?
    /// A subscription has been made since bluetoothd started: it re-arms it by itself at a reconnection, so values are
    /// news even before ours is confirmed.
    var isArmed = false
    var subscribed: Set<CharacteristicIdentifier> = []
    /// BlueZ reconnects by itself now.
    private(set) var autoConnects: Bool
    var radio = RadioState.noService
    private var radioOnSince = Instant.zero
    /// It was ready since Bluetooth was switched on or came.
    var hasBeenHeard = false
    /// The link may be older than our hearing: what it tells first may be of a press from before.
    var isLinkKept = false
    /// The device was used before, so that what it can be asked for tells whether it was pressed in order to wake it.
    var isLinkOfKnown = false
    private(set) var names: Set<String> = []
    var searches = 0
    var connectAttempts = 0
    var quickAttempts = 0
    var incompleteAttempts = 0
    /// How often it was asked for since it was connected, or since there is Bluetooth.
    var asks = 0
    var progressCount = 0
    var pairAttempts = 0
    /// It is not paired before, for one that refuses or forgets is not asked at every connection.
    var pairsAfter: Instant?
    /// Parts of it that do not work, while the others do.
    var partialProblem: String?
    /// Set once `ServicesResolved` was seen without the characteristics.
    var lateUntil: Instant?

    init(_ configuration: AccessoryConfiguration, library: ProfileLibrary, autoConnects: Bool) {
        self.configuration = configuration
        self.library = library
        self.autoConnects = autoConnects
    }

    // MARK: What the fleet asks

    var wantsDiscovery: Bool { if case .searching = phase { true } else { false } }

    var isReady: Bool { phase == .ready }

    var isConnecting: Bool { phase == .connecting }

    var asksAfter: Instant? { if case .waiting(let time) = phase { time } else { nil } }

    /// Whether a value that comes now is news, rather than something read or remembered.
    var hearsNews: Bool { radio == .on && device?.isReachable == true && (isReady || isArmed) }

    /// The services BlueZ should reconnect for: those of the certain, else the configured, else the probable profile.
    var servicesToRegister: [BluetoothUUID] {
        if let profile { return profile.services }
        if let id = configuration.profileID { return library[id]?.services ?? [] }
        return device == nil ? [] : probableServices
    }

    var nextDeadline: Instant? {
        switch phase {
        case .searching(let time), .resting(let time), .backingOff(let time), .resubscribing(let time),
            .droppingLink(let time):
            time
        case .unusable(let time):
            time
        case .resolving(let time):
            lateUntil ?? time
        case .off, .connecting, .waiting, .pairing, .subscribing, .ready:
            nil
        }
    }

    // MARK: Events

    mutating func handle(_ event: AccessoryLinkEvent, at now: Instant) -> [AccessoryLinkAction] {
        var actions: [Action] = []
        switch event {
        case .radio(let state):
            // bluetoothd's objects and sessions end with it. (At a start the devices are told before there is Bluetooth.)
            if state == .noService, radio != .noService { (device, isArmed, autoConnects) = (nil, false, false) }
            if state != radio { (radioOnSince, hasBeenHeard) = (now, false) }
            radio = state
        case .device(let facts):
            // A different device of the same name: what was known of the former one is void.
            if let old = device, let new = facts, old.id != new.id { actions += forget(.disconnected, at: now) }
            if let old = device, let new = facts { reconsider(old, new, at: now) }
            lookAtLink(device, facts, at: now)
            if let facts, (facts.name, facts.services) != (device?.name, device?.services) {
                probableServices = library.candidate(name: facts.name, services: facts.services)?.services ?? []
            }
            device = facts
            if facts == nil { isArmed = false }
            if let name = facts?.name, names.count < Self.namesMax { names.insert(name) }
        case .autoConnect(let isArmed):
            autoConnects = isArmed
        case .completed(let command, let failure):
            actions += completed(command, failure, at: now)
        case .ask:
            actions += ask(at: now)
        case .deadline, .streamClosed, .streamOffered:
            break
        }
        return actions + advance(at: now)
    }

    /// How a link that is new to us came: before our eyes, because the device was woken by a press, or earlier.
    private mutating func lookAtLink(_ old: DeviceFacts?, _ new: DeviceFacts?, at now: Instant) {
        guard let new, new.isReachable, old?.id != new.id || old?.isReachable != true else { return }
        let isSettled = hasBeenHeard || radioOnSince + Self.settleTime <= now
        let cameUp = old?.id == new.id && radio == .on && isSettled
        // One that was never recognised has not been held for anything.
        isLinkOfKnown = new.isTrusted
        isLinkKept = new.isTrusted && !cameUp
    }

    /// Brings the phase in line with what is so: each step is taken from the state, not from the event that led to it.
    private mutating func advance(at now: Instant) -> [Action] {
        guard radio == .on else {
            guard phase != .off else { return [] }
            let actions = lose(radio == .off ? .adapterOff : .bluetoothStopped)
            phase = .off
            asks = 0
            problem = nil
            return actions
        }
        if let id = configuration.profileID, library[id] == nil {
            phase = .off
            problem = "there is no profile \"\(id)\": correct the name, or put its file into the profiles directory"
            return []
        }
        guard let device else { return search(at: now) }
        return device.isReachable ? connected(device, at: now) : disconnected(device, at: now)
    }

    private mutating func search(at now: Instant) -> [Action] {
        switch phase {
        case .searching(let until) where until <= now:
            let pause = Self.searchPauses[min(searches, Self.searchPauses.count - 1)]
            searches += 1
            phase = .resting(until: now + pause)
            return []
        case .resting(let until) where until <= now:
            break
        case .searching, .resting:
            return []
        case .off:
            break
        default:
            let actions = lose(.removed)
            startSearch(at: now)
            return actions
        }
        startSearch(at: now)
        return []
    }

    private mutating func startSearch(at now: Instant) {
        phase = .searching(until: now + Self.searchTime)
        problem = "not found yet: press its button, so that it advertises"
    }

    private mutating func disconnected(_ device: DeviceFacts, at now: Instant) -> [Action] {
        switch phase {
        case .connecting:
            return []
        case .waiting:
            return autoConnects && device.isTrusted ? [] : backOff(at: now)
        case .backingOff(let until) where until > now:
            return []
        case .off, .searching, .resting, .backingOff:
            return connect(device)
        case .droppingLink:
            let actions = lose(.disconnected)
            phase = .backingOff(until: now + Self.quickPause)
            return actions
        case .resolving, .pairing, .subscribing, .resubscribing, .ready, .unusable:
            let wasPairing = phase == .pairing
            let actions = lose(.disconnected) + waitOrBackOff(at: now)
            if wasPairing { problem = Self.hungUpPairing }
            return actions
        }
    }

    private mutating func connected(_ device: DeviceFacts, at now: Instant) -> [Action] {
        switch phase {
        case .off, .searching, .resting, .connecting, .backingOff, .waiting:
            return resolve(at: now)
        case .resolving:
            return recognise(device, at: now)
        case .pairing, .subscribing:
            return isComplete(device) ? [] : lose(.disconnected) + resolve(at: now)
        case .ready:
            guard isComplete(device) else { return lose(.disconnected) + resolve(at: now) }
            return hasMore(device) ? resolve(at: now) : []
        case .resubscribing(let time):
            guard isComplete(device) else { return lose(.disconnected) + resolve(at: now) }
            return time <= now ? subscribe(device, at: now) : []
        case .droppingLink(let until):
            // It did not hang up in time: make do with the link that is there.
            return until <= now ? resolve(at: now) : []
        case .unusable(let until):
            return until.map { $0 <= now } ?? false ? resolve(at: now) : []
        }
    }

    /// What could not be used is looked at again when it is different.
    private mutating func reconsider(_ old: DeviceFacts, _ new: DeviceFacts, at now: Instant) {
        guard case .unusable = phase else { return }
        let isDifferent = old.characteristics != new.characteristics || old.isPaired != new.isPaired
        if isDifferent { phase = .resolving(until: now + resolveTime) }
    }

    // MARK: Connecting

    private mutating func connect(_ device: DeviceFacts) -> [Action] {
        phase = .connecting
        return [.command(.connect(device: device.id))]
    }

    mutating func backOff(at now: Instant) -> [Action] {
        let pause = Self.connectPauses[min(connectAttempts, Self.connectPauses.count - 1)]
        connectAttempts += 1
        phase = .backingOff(until: now + pause)
        return []
    }

    /// Leaves the reconnection to BlueZ where it will do it.
    mutating func waitOrBackOff(at now: Instant) -> [Action] {
        guard autoConnects, profile != nil, device?.isTrusted == true else { return backOff(at: now) }
        wait(at: now)
        return []
    }

    /// Hangs up, to connect anew with a clean table of services.
    mutating func dropLink(_ device: DeviceFacts, at now: Instant) -> [Action] {
        phase = .droppingLink(until: now + Self.hangUpTime)
        return [.command(.disconnect(device: device.id))]
    }

    // MARK: Losing

    mutating func lose(_ reason: AccessoryRelease) -> [Action] {
        if seededFault("a-lost-button-releases-nothing") { return [] }
        subscribed = []
        lateUntil = nil
        partialProblem = nil
        progressCount = 0
        return profile == nil ? [] : [.lost(reason)]
    }

    private mutating func forget(_ reason: AccessoryRelease, at now: Instant) -> [Action] {
        let actions = lose(reason)
        names = []
        profile = nil
        problem = nil
        isArmed = false
        (pairAttempts, pairsAfter) = (0, nil)
        phase = .backingOff(until: now)
        return actions
    }
}
