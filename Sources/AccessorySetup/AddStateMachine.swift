// Adding one accessory: found, judged, connected, paired where that is wanted, recognised, subscribed, remembered; or all taken back.
import Accessories
import BlueZ
import MonotonicTime
import Vocabulary

/// The rules of one addition. What the fleet does for every accessory (connect, recognise, trust, subscribe) it does here, too; this
/// watches it, does what only a person may ask for, and gives up in time.
struct AddStateMachine: Sendable {
    /// How long each step may take; together less than callers wait.
    static let times: [AddStep: Duration] = [
        .searching: .seconds(30), .connecting: .seconds(30), .pairing: .seconds(30), .recognising: .seconds(25),
        .subscribing: .seconds(20),
    ]
    /// A device whose characteristics fit no profile is given up after this.
    static let unrecognisedTime = Duration.seconds(6)
    /// A device that hangs up while it is being paired is given up unless it is back after this.
    static let hangUpTime = Duration.seconds(3)

    enum Event: Sendable {
        case device(DeviceFacts)
        case deviceRemoved
        case status(AccessoryStatus)
        case completed(BluetoothCommand, BluetoothFailure?)
        /// There has been a scan since it began.
        case scanned
        /// It has been written, or why not.
        case saved(String?)
        /// Whoever asked is gone.
        case cancelled
        case deadline
    }

    enum Action: Equatable, Sendable {
        case progress(AddStep)
        /// A scan is wanted, or no more.
        case scan(Bool)
        case configure(AccessoryConfiguration)
        case unconfigure(AccessoryID)
        case command(BluetoothCommand)
        case save(AccessoryConfiguration)
        /// It is over: the notes, or why not.
        case finished(Result<[String], AccessoryError>)
    }

    private enum Phase: Equatable, Sendable {
        case step(AddStep)
        case saving
        case over
    }

    private let addition: AccessoryAddition
    private let library: ProfileLibrary
    /// Makes a name that no other accessory has.
    private let makeName: @Sendable (DeviceFacts) -> String
    private var phase = Phase.step(.searching)
    private var until: Instant
    private(set) var device: DeviceFacts?
    private var status: AccessoryStatus?
    private(set) var configuration: AccessoryConfiguration?
    private(set) var profile: AccessoryProfile?
    /// BlueZ knew it before, as more than something heard.
    private var wasKnown = false
    private(set) var isKeyboard = false
    /// Our own pairing of it is under way, or was.
    private var hasAskedToPair = false
    /// There was a scan, so that it would have been found.
    private var hasScanned = false
    /// Its link was up, and is lost since then.
    private var lostSince: Instant?
    /// The same, and BlueZ does not know it any more.
    private var isGone = false
    private var unrecognisedSince: Instant?

    init(
        _ addition: AccessoryAddition, library: ProfileLibrary, at now: Instant,
        makeName: @escaping @Sendable (DeviceFacts) -> String
    ) {
        self.addition = addition
        self.library = library
        self.makeName = makeName
        until = now + (Self.times[.searching] ?? .zero)
    }

    /// What to do first.
    var firstActions: [Action] { [.progress(.searching), .scan(true)] }

    var isOver: Bool { phase == .over }

    var nextDeadline: Instant? {
        guard case .step = phase else { return nil }
        // Without its services there is nothing to decide before `until`.
        if let lostSince, phase == .step(.pairing) || isGone { return min(until, lostSince + Self.hangUpTime) }
        guard let unrecognisedSince, device?.servicesResolved == true else { return until }
        return min(until, unrecognisedSince + Self.unrecognisedTime)
    }

    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        guard phase != .over else { return [] }
        switch event {
        case .device(let facts):
            if device == nil, !isGone { wasKnown = facts.isPaired || facts.isTrusted || facts.isConnected }
            let isLost = device?.isConnected == true && !facts.isConnected
            lostSince = facts.isConnected ? nil : isLost ? now : lostSince
            isGone = false
            device = facts
        case .deviceRemoved:
            if configuration != nil, device != nil { (isGone, lostSince) = (true, lostSince ?? now) }
            device = nil
        case .scanned:
            hasScanned = true
            return []
        case .status(let new): if new.id == configuration?.id { status = new }
        case .completed(.pair, let failure):
            hasAskedToPair = false
            return paired(failure, at: now)
        case .completed(.connect, let failure?) where isKeyboard:
            return fail(.notConnected, "could not be connected (\(failure)): switch it on and bring it near")
        case .completed: break
        case .saved where phase != .saving: return []
        case .saved(nil):
            phase = .over
            return [.finished(.success(notes))]
        case .saved(let why?): return fail(.notSaved, why)
        // It is being written down: it is there in a moment, whoever has gone.
        case .cancelled where phase == .saving: return []
        case .cancelled: return fail(.notConnected, "adding ended: its caller has left the bus")
        case .deadline:
            if let lostSince, phase == .step(.pairing) || isGone, lostSince + Self.hangUpTime <= now { return lost() }
            if until <= now { return expired() }
        }
        return advance(at: now)
    }

    private mutating func advance(at now: Instant) -> [Action] {
        guard case .step(let step) = phase else { return [] }
        // The fleet says it works: what the steps before were is of no interest any more.
        if step != .searching, status?.isReady == true, !addition.isBondedOnly || device?.isPaired == true {
            return save()
        }
        guard let device else { return [] }
        switch step {
        case .searching: return judge(device, at: now)
        case .connecting: return device.isConnected ? connected(device, at: now) : []
        // An input device is trusted and connected when the answer is there.
        case .pairing: return device.isPaired && !isKeyboard ? go(to: .recognising, at: now) : []
        case .recognising: return recognise(device, at: now)
        case .subscribing: return []
        }
    }

    private mutating func go(to step: AddStep, at now: Instant) -> [Action] {
        phase = .step(step)
        until = now + (Self.times[step] ?? .zero)
        return [.progress(step)]
    }

    // MARK: Found

    private mutating func judge(_ device: DeviceFacts, at now: Instant) -> [Action] {
        if let id = addition.profileID {
            profile = library[id]
            if profile == nil {
                return fail(.invalid, "there is no profile '\(id)'; 'pttctl profile list' shows those there are")
            }
        } else {
            let found = library.probable(name: device.name, services: device.services)
            if let why = found?.refusal { return fail(.refused, why) }
            profile = found
        }
        if let profile, profile.bonding == .never, addition.isBondedOnly || addition.pairs == true {
            return fail(
                .refused,
                "\(profile.title): such devices cannot be bonded; add it without bonded-only (also in [accessories] of pttd.toml) and "
                    + "without pairing")
        }
        if addition.isBondedOnly, addition.pairs == false, !device.isPaired {
            return fail(.refused, "it has to be bonded (bonded-only, perhaps of pttd.toml), so it has to be paired")
        }
        if let profile, profile.bonding == .required, addition.pairs == false {
            return fail(.refused, "\(profile.title): such devices work only when they are paired")
        }
        let services: [BluetoothUUID] = ["1812", "1124"]
        isKeyboard =
            profile.map { $0.transport == .input } ?? services.contains { device.services.contains($0) }
        let configuration = AccessoryConfiguration(
            id: AccessoryID(addition.name ?? makeName(device)), address: addition.address,
            profileID: addition.profileID,
            gesture: addition.gesture, isBondedOnly: addition.isBondedOnly)
        self.configuration = configuration
        if !isKeyboard, addition.isBondedOnly, !device.isPaired {
            // The fleet leaves it alone until it is bonded; BlueZ connects what it pairs.
            return [.scan(false), .configure(configuration)] + pair(device, at: now)
        }
        let begun = [.scan(false), .configure(configuration)] + go(to: .connecting, at: now)
        return begun + (isKeyboard ? connectKeyboard(device, at: now) : advance(at: now))
    }

    /// The system's own driver reads a keyboard: it only has to be paired, trusted and connected.
    private mutating func connectKeyboard(_ device: DeviceFacts, at now: Instant) -> [Action] {
        guard device.isPaired else { return pair(device, at: now) }
        return [.command(.trust(device: device.id))]
            + (device.isConnected ? advance(at: now) : [.command(.connect(device: device.id))])
    }

    // MARK: Connected

    private mutating func connected(_ device: DeviceFacts, at now: Instant) -> [Action] {
        if isKeyboard { return save() }
        guard !device.isPaired else { return go(to: .recognising, at: now) + advance(at: now) }
        if addition.pairs == true || addition.isBondedOnly {
            return pair(device, at: now)
        }
        // The fleet pairs it.
        if profile?.bonding == .required { return go(to: .pairing, at: now) }
        return go(to: .recognising, at: now) + advance(at: now)
    }

    private mutating func pair(_ device: DeviceFacts, at now: Instant) -> [Action] {
        hasAskedToPair = true
        return go(to: .pairing, at: now) + [.command(.pair(device: device.id))]
    }

    private mutating func paired(_ failure: BluetoothFailure?, at now: Instant) -> [Action] {
        guard phase == .step(.pairing) else { return [] }
        switch failure {
        case nil, .inProgress: break
        default:
            if lostSince != nil || isGone { return lost() }
            return fail(
                .pairingFailed,
                "could not be paired (\(Self.words(failure))): put it into pairing mode, and remove it from telephones nearby"
            )
        }
        if isKeyboard, let device {
            phase = .step(.connecting)
            return [.command(.trust(device: device.id))]
                + (device.isConnected ? save() : [.command(.connect(device: device.id))])
        }
        return advance(at: now)
    }

    private mutating func recognise(_ device: DeviceFacts, at now: Instant) -> [Action] {
        guard device.isConnected else { return [] }
        let found = status?.profileID.flatMap { library[$0] }
        if let found, device.servicesResolved || found.transport != .gatt, isComplete(found, device) {
            profile = found
            unrecognisedSince = nil
            return go(to: .subscribing, at: now)
        }
        // The fleet connects it anew meanwhile, for a table of services may have holes.
        guard device.servicesResolved else { return [] }
        // What it is becomes certain only now: its services were not all advertised.
        let probable = library.probable(name: device.name, services: device.services)
        if addition.profileID == nil, let why = probable?.refusal { return fail(.refused, why) }
        let since = unrecognisedSince ?? now
        unrecognisedSince = since
        guard since + Self.unrecognisedTime <= now else { return [] }
        return fail(.notRecognised, unrecognised(device))
    }

    private func isComplete(_ profile: AccessoryProfile, _ device: DeviceFacts) -> Bool {
        guard profile.transport == .gatt else { return true }
        return profile.isComplete { device.find($0, $1) != nil }
    }

    private func unrecognised(_ device: DeviceFacts) -> String {
        if let id = addition.profileID {
            return
                "it lacks what profile '\(id)' needs: choose another, or learn it with 'pttctl accessory learn \(device.address)'"
        }
        return
            "no profile fits \(device.name ?? device.address): learn it with 'pttctl accessory learn \(device.address)', or name "
            + "one with --profile"
    }

    // MARK: The end

    private mutating func save() -> [Action] {
        guard let configuration else { return [] }
        profile = status?.profileID.flatMap { library[$0] } ?? profile
        phase = .saving
        return [.save(configuration)]
    }

    private mutating func expired() -> [Action] {
        guard case .step(let step) = phase else { return [] }
        if lostSince != nil, step != .searching, step != .connecting { return lost() }
        switch step {
        case .searching where !hasScanned:
            return fail(
                .notFound,
                "\(addition.address) is not known, and there could be no scan for it: another accessory is being connected or paired, or "
                    + "bluetoothd refuses to scan; try again")
        case .searching:
            return fail(
                .notFound,
                "\(addition.address) was not found: press its button, so that it advertises, and bring it near; a telephone that is "
                    + "connected to it hides it")
        case .connecting:
            return fail(.notConnected, status?.problem ?? "does not answer: press its button, and bring it near")
        case .pairing:
            // What the fleet says of its link is not why.
            let why = hasAskedToPair || device?.isConnected == true ? nil : status?.problem
            return fail(.pairingFailed, why ?? "was not paired in time: put it into pairing mode, and try again")
        case .recognising:
            return fail(.notRecognised, status?.problem ?? "its services were not found in time: try again")
        case .subscribing:
            return fail(.notConnected, status?.problem ?? "its buttons could not be subscribed to in time: try again")
        }
    }

    /// It was there, and is not any more.
    private mutating func lost() -> [Action] {
        let what =
            phase == .step(.pairing) ? "while it was being paired" : "while its buttons were looked for"
        let advice =
            "keep it near and switched on (a device that hangs up refuses, or has run out of battery), and try again"
        guard !isGone else {
            return fail(.notConnected, "it went away \(what), and the system's Bluetooth has forgotten it: \(advice)")
        }
        return fail(.notConnected, "it hung up, or went out of reach, \(what): \(advice)")
    }

    /// Takes everything back.
    private mutating func fail(_ code: AccessoryError.Code, _ why: String) -> [Action] {
        phase = .over
        var actions: [Action] = [.scan(false)]
        if let device, hasAskedToPair { actions.append(.command(.cancelPairing(device: device.id))) }
        if let configuration { actions.append(.unconfigure(configuration.id)) }
        // Heard only before; what was made of it here is of no use to anybody.
        if let device, !wasKnown, configuration != nil { actions.append(.command(.remove(device: device.id))) }
        return actions + [.finished(.failure(AccessoryError(code, why)))]
    }

    private static func words(_ failure: BluetoothFailure?) -> String {
        switch failure {
        case .other(let words): words
        case .authentication: "it refused"
        case .timedOut: "it did not answer"
        case .notPermitted: "it is not permitted"
        case .doesNotExist: "it went away"
        case .serviceGone: "bluetoothd has ended"
        case let failure?: "\(failure)"
        case nil: "no reason given"
        }
    }
}
