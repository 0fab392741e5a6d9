// From a link to presses: recognise the device, trust it, pair where needed, subscribe; and what BlueZ's answers mean. While there is no
// link: wait for a device that BlueZ connects by itself, and ask for it now and then, for BlueZ or the kernel may miss it.
import BlueZ
import MonotonicTime

extension GATTAccessoryStateMachine {
    // MARK: Recognising

    var resolveTime: Duration { Self.resolveTimes[min(incompleteAttempts, Self.resolveTimes.count - 1)] }

    mutating func resolve(at now: Instant) -> [Action] {
        phase = .resolving(until: now + resolveTime)
        lateUntil = nil
        guard let device else { return [] }
        return recognise(device, at: now)
    }

    mutating func recognise(_ device: DeviceFacts, at now: Instant) -> [Action] {
        guard case .resolving(let until) = phase else { return [] }
        guard device.servicesResolved else {
            lateUntil = nil
            return until <= now ? incomplete(device, "its services were not found in time", at: now) : []
        }
        guard let found = matchingProfile(device) else {
            guard let late = lateUntil else {
                lateUntil = now + Self.lateCharacteristicsTime
                return []
            }
            return late <= now ? incomplete(device, missing(device), at: now) : []
        }
        lateUntil = nil
        incompleteAttempts = 0
        profile = found
        var actions = [Action.recognised(found, inputs: inputs(of: found, in: device))]
        // Only what has been recognised is trusted: BlueZ lets a trusted device connect by itself.
        if !device.isTrusted { actions.append(.command(.trust(device: device.id))) }
        if found.bonding == .required, !device.isPaired {
            actions += pair(device, at: now)
        } else {
            actions += subscribe(device, at: now)
        }
        return actions
    }

    private func matchingProfile(_ device: DeviceFacts) -> AccessoryProfile? {
        guard let id = configuration.profileID else {
            return library.profile(names: names) { device.find($0, $1) != nil }
        }
        return library[id].flatMap { $0.isComplete { device.find($0, $1) != nil } ? $0 : nil }
    }

    private func inputs(of profile: AccessoryProfile, in device: DeviceFacts) -> [CharacteristicIdentifier: Int] {
        var inputs: [CharacteristicIdentifier: Int] = [:]
        for (index, input) in profile.inputs.enumerated() {
            if let found = device.find(input.service, input.characteristic) { inputs[found] = index }
        }
        return inputs
    }

    /// Whether all the characteristics that the profile needs are there.
    func isComplete(_ device: DeviceFacts) -> Bool {
        guard let profile, device.servicesResolved else { return false }
        let found = Set(inputs(of: profile, in: device).values)
        return profile.inputs.indices.allSatisfy { profile.inputs[$0].isOptional || found.contains($0) }
    }

    /// Whether a characteristic has come that is not subscribed to: an optional one, late.
    func hasMore(_ device: DeviceFacts) -> Bool {
        guard let profile else { return false }
        return !inputs(of: profile, in: device).keys.allSatisfy { subscribed.contains($0) }
    }

    private func missing(_ device: DeviceFacts) -> String {
        if let id = configuration.profileID {
            return "it lacks the characteristics of profile \"\(id)\": choose another profile"
        }
        let services = Set(device.characteristics.map(\.service)).map { $0.rawValue }.sorted()
        return "no profile fits it (services \(services.prefix(4).joined(separator: ", "))): "
            + "name one with profile = \"…\", or add a profile file"
    }

    /// The table of services has holes: once or twice a new connection fills them.
    private mutating func incomplete(_ device: DeviceFacts, _ reason: String, at now: Instant) -> [Action] {
        problem = reason
        lateUntil = nil
        guard incompleteAttempts < Self.incompleteRetries else {
            incompleteAttempts = 0
            phase = .unusable(until: nil)
            return []
        }
        incompleteAttempts += 1
        return dropLink(device, at: now)
    }

    // MARK: Subscribing

    /// Pairs; after a pause, which grows, when that has been tried.
    private mutating func pair(_ device: DeviceFacts, at now: Instant) -> [Action] {
        if let pairsAfter, now < pairsAfter {
            problem = problem ?? "asks for pairing again and again: put it into pairing mode"
            phase = .unusable(until: pairsAfter)
            return []
        }
        pairsAfter = now + Self.connectPauses[min(pairAttempts, Self.connectPauses.count - 1)]
        pairAttempts += 1
        phase = .pairing
        return [.command(.pair(device: device.id))]
    }

    mutating func subscribe(_ device: DeviceFacts, at now: Instant) -> [Action] {
        guard let profile else { return [] }
        phase = .subscribing
        let wanted = inputs(of: profile, in: device).keys.filter { !subscribed.contains($0) }.sorted()
        guard !wanted.isEmpty else { return becomeReady(device, profile) }
        return wanted.map { .command(.startNotify(characteristic: $0)) }
    }

    private mutating func becomeReady(_ device: DeviceFacts, _ profile: AccessoryProfile) -> [Action] {
        phase = .ready
        isArmed = true
        problem = partialProblem
        searches = 0
        (pairAttempts, pairsAfter) = (0, nil)
        connectAttempts = 0
        quickAttempts = 0
        asks = 0
        progressCount = 0
        hasBeenHeard = true
        defer { isLinkKept = false }
        return [.heard(isKept: isLinkKept)] + readings(of: profile, in: device)
    }

    /// The press that wakes a device may be over before it is subscribed to, and one from before may still go on: what can be read tells.
    private func readings(of profile: AccessoryProfile, in device: DeviceFacts) -> [Action] {
        guard isLinkOfKnown else { return [] }
        return inputs(of: profile, in: device).filter { profile.inputs[$0.value].isReadable }.keys.sorted()
            .map { .command(.read(characteristic: $0)) }
    }

    // MARK: BlueZ's answers

    mutating func completed(
        _ command: BluetoothCommand, _ failure: BluetoothFailure?, at now: Instant
    ) -> [Action] {
        switch command {
        case .connect(let id) where id == device?.id:
            return connectCompleted(failure, at: now)
        case .pair(let id) where id == device?.id:
            return pairCompleted(failure, at: now)
        case .startNotify(let id) where isOwn(id):
            return subscribeCompleted(id, failure, at: now)
        case .disconnect(let id) where id == device?.id:
            guard failure != nil, case .droppingLink = phase else { return [] }
            phase = .droppingLink(until: now)
            return []
        case .trust(let id) where id == device?.id:
            if let failure { problem = "could not be trusted, so it will not reconnect by itself (\(failure))" }
            return []
        default:
            return []
        }
    }

    private func isOwn(_ characteristic: CharacteristicIdentifier) -> Bool {
        device?.characteristics.contains { $0.id == characteristic } ?? false
    }

    private mutating func connectCompleted(_ failure: BluetoothFailure?, at now: Instant) -> [Action] {
        guard let device, !device.isReachable else { return [] }
        if case .waiting = phase {
            wait(at: now)
            if failure == .authentication { problem = staleKeys(device) }
            return []
        }
        guard phase == .connecting else { return [] }
        switch failure {
        case nil, .inProgress, .notReady, .serviceGone, .notConnected:
            // Connected is told by the device itself; if it does not come, ask again.
            return backOff(at: now)
        case .abortedLocally where quickAttempts < Self.quickRetries:
            quickAttempts += 1
            phase = .backingOff(until: now + Self.quickPause)
            return []
        case .timedOut, .abortedLocally:
            quickAttempts = 0
            if autoConnects, device.isTrusted {
                wait(at: now)
                return []
            }
            problem = "does not answer: press its button, and bring it near"
            return backOff(at: now)
        case .doesNotExist:
            // BlueZ forgets what it only saw for a moment; its removal is on the way.
            return backOff(at: now)
        case .authentication:
            problem = staleKeys(device)
            return backOff(at: now)
        case .notPermitted, .notSupported, .other:
            problem = "could not be connected (\(text(failure)))"
            return backOff(at: now)
        }
    }

    private mutating func pairCompleted(_ failure: BluetoothFailure?, at now: Instant) -> [Action] {
        guard phase == .pairing, let device else { return [] }
        switch failure {
        case nil:
            return subscribe(device, at: now)
        case .inProgress:
            phase = .resubscribing(at: now + Self.progressPause)
            return []
        case .other(let words) where words.lowercased().contains("already"):
            return subscribe(device, at: now)
        default:
            problem = "could not be paired (\(text(failure))): put it into pairing mode"
            phase = .unusable(until: pairsAfter)
            return []
        }
    }

    private mutating func subscribeCompleted(
        _ characteristic: CharacteristicIdentifier, _ failure: BluetoothFailure?, at now: Instant
    ) -> [Action] {
        guard let device, let profile else { return [] }
        switch phase {
        case .subscribing, .resubscribing: break
        default: return []
        }
        var failure = failure
        if let why = failure, let input = inputs(of: profile, in: device)[characteristic], isLasting(why),
            profile.inputs[input].isOptional
        {
            let controls = profile.inputs[input].rule.controls.map(\.rawValue).joined(separator: ", ")
            partialProblem = "its \(controls) control cannot be subscribed to (\(text(why))); the others work"
            failure = nil
        }
        switch failure {
        case nil:
            subscribed.insert(characteristic)
            if seededFault("a-subscription-is-not-enough") { return [] }
            let all = inputs(of: profile, in: device).keys.allSatisfy { subscribed.contains($0) }
            return all ? becomeReady(device, profile) : []
        case .inProgress, .notConnected, .notReady:
            progressCount += 1
            guard progressCount <= Self.progressRetries else { return failed(device, failure, at: now) }
            phase = .resubscribing(at: now + Self.progressPause)
            return []
        case .notPermitted:
            problem = "another program has taken its notifications: close it (a Bluetooth tool, or a second daemon)"
            phase = .resubscribing(at: now + .seconds(5))
            return []
        case .authentication:
            return authenticate(device, profile, at: now)
        case .notSupported:
            problem = "its button does not notify: its profile is wrong for it"
            phase = .unusable(until: nil)
            return []
        case .doesNotExist, .serviceGone:
            return resolve(at: now)
        case .timedOut, .abortedLocally, .other:
            return failed(device, failure, at: now)
        }
    }

    /// Whether another attempt on the same link would come to the same.
    private func isLasting(_ failure: BluetoothFailure) -> Bool {
        switch failure {
        case .notSupported, .notPermitted, .timedOut, .abortedLocally, .other: true
        case .inProgress, .notConnected, .notReady, .authentication, .doesNotExist, .serviceGone: false
        }
    }

    /// A subscription that failed half-way leaves a link on which nothing comes: hang up and connect anew.
    private mutating func failed(
        _ device: DeviceFacts, _ failure: BluetoothFailure?, at now: Instant
    ) -> [Action] {
        problem = "could not be subscribed to (\(text(failure)))"
        progressCount = 0
        let pause = Self.connectPauses[min(connectAttempts, Self.connectPauses.count - 1)]
        connectAttempts += 1
        guard connectAttempts <= Self.incompleteRetries else {
            // Not in a tight circle: a device that always refuses is left alone for longer and longer.
            phase = .unusable(until: now + pause)
            return []
        }
        return dropLink(device, at: now)
    }

    private mutating func authenticate(
        _ device: DeviceFacts, _ profile: AccessoryProfile, at now: Instant
    ) -> [Action] {
        if device.isPaired {
            problem = staleKeys(device)
        } else if profile.bonding == .never {
            problem =
                "it asks for pairing, which profile \"\(profile.id)\" forbids: set bonding in a profile of your own"
        } else {
            return pair(device, at: now)
        }
        phase = .unusable(until: nil)
        return []
    }

    private func staleKeys(_ device: DeviceFacts) -> String {
        "its keys no longer fit: 'bluetoothctl remove \(device.address)', then press its button"
    }

    private func text(_ failure: BluetoothFailure?) -> String { failure?.description ?? "no reason given" }

    // MARK: Waiting

    /// Pauses before a device that BlueZ should connect by itself is asked for all the same: it may have lost sight of it. The
    /// last one is that of each further time.
    static let askPauses: [Duration] =
        [.seconds(15), .seconds(30)] + Array(repeating: .seconds(60), count: 18) + [.seconds(300)]

    mutating func wait(at now: Instant) {
        phase = .waiting(asksAfter: now + Self.askPauses[min(asks, Self.askPauses.count - 1)])
        problem = "asleep or out of range: press its button"
    }

    /// Asks for a device that BlueZ should connect by itself. It goes on waiting: whichever comes first has done it.
    mutating func ask(at now: Instant) -> [Action] {
        guard case .waiting(let due?) = phase, due <= now, let device else { return [] }
        asks += 1
        phase = .waiting(asksAfter: nil)
        return [.command(.connect(device: device.id))]
    }
}
