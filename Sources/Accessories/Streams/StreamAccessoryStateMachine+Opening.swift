// From a known device to its open stream: recognise it, pair where needed, open; and what the answers mean.
import BlueZ
import MonotonicTime

extension StreamAccessoryStateMachine {
    mutating func begin(_ device: DeviceFacts, at now: Instant) -> [Action] {
        guard let found = matchingProfile(device) else {
            problem = "no profile fits it: name one with profile = \"…\", or add a profile file"
            phase = .unusable
            return []
        }
        let actions: [Action] = profile == found ? [] : [.recognised(found, inputs: [:])]
        profile = found
        guard device.isPaired || !(found.bonding == .required || configuration.isBondedOnly) else {
            return actions + pair(device, found)
        }
        return actions + (kind == .handsFree && !device.isConnected ? connect(device, at: now) : open(device, at: now))
    }

    /// The configured profile; else one that the device's name or services tell, of this kind of stream.
    private func matchingProfile(_ device: DeviceFacts) -> AccessoryProfile? {
        if let id = configuration.profileID { return library[id] }
        let transport: AccessoryProfile.Transport = kind == .serialPort ? .spp : .handsFree
        if let found = library.candidate(name: device.name, services: device.services), found.transport == transport {
            return found
        }
        return library.profiles.first {
            $0.transport == transport && !$0.isExplicitOnly && $0.matches(name: device.name)
        }
    }

    private mutating func pair(_ device: DeviceFacts, _ profile: AccessoryProfile) -> [Action] {
        guard profile.bonding != .never else {
            problem =
                "it has to be paired, which profile \"\(profile.id)\" forbids: set bonding in a profile of your own, "
                + "or do not ask for bonded accessories only"
            phase = .unusable
            return []
        }
        phase = .pairing
        return [.command(.pair(device: device.id))]
    }

    private mutating func connect(_ device: DeviceFacts, at now: Instant) -> [Action] {
        phase = .connecting
        lastAttempt = now
        return [.command(.connect(device: device.id))]
    }

    private mutating func open(_ device: DeviceFacts, at now: Instant) -> [Action] {
        phase = .opening
        hasClosedWhileOpening = false
        lastAttempt = now
        return [.command(.openStream(device: device.id, kind))]
    }

    // MARK: Answers

    mutating func completed(
        _ command: BluetoothCommand, _ failure: BluetoothFailure?, at now: Instant
    ) -> [Action] {
        guard let device else { return [] }
        switch command {
        case .openStream(device.id, kind) where phase == .opening: return opened(device, failure, at: now)
        case .connect(device.id) where phase == .connecting: return connected(device, failure, at: now)
        case .pair(device.id) where phase == .pairing: return paired(device, failure, at: now)
        case .trust(device.id):
            if let failure {
                problem = "could not be trusted, so it cannot connect by itself (\(failure))"
            }
            return []
        case .writeStream(device.id, kind, _) where isReady:
            if let failure { problem = "did not take its start command (\(failure))" }
            return []
        default: return []
        }
    }

    private mutating func opened(_ device: DeviceFacts, _ failure: BluetoothFailure?, at now: Instant) -> [Action] {
        guard let failure else {
            guard !hasClosedWhileOpening else {
                problem = "hangs up as soon as it is connected"
                backOff(at: now)
                return []
            }
            phase = .ready(since: now)
            problem = nil
            quickAttempts = 0
            progressCount = 0
            // What is told in the first stream since Bluetooth came may be of a press from before.
            var actions: [Action] = [.heard(isKept: device.isTrusted && !hasBeenOpen)]
            hasBeenOpen = true
            // A trusted device may connect by itself; only one that has proved to be what it is said to be is trusted.
            if !device.isTrusted { actions.append(.command(.trust(device: device.id))) }
            if let start = profile?.streamStart, !start.isEmpty {
                actions.append(.command(.writeStream(device: device.id, kind, start)))
            }
            return actions
        }
        switch failure {
        case .authentication: return authenticate(device, at: now)
        case .notSupported:
            problem =
                kind == .serialPort
                ? "shows no serial port: switch it off and on, and see that its profile is right for it"
                : "has no hands-free commands"
            again(at: now)
        case .abortedLocally:
            problem = "its link broke while it was made: bring it near"
            again(at: now)
        default: failed(failure, at: now)
        }
        return []
    }

    /// At once, a few times.
    private mutating func again(at now: Instant) {
        quickAttempts += 1
        guard quickAttempts < Self.quickTries else { return backOff(at: now) }
        phase = .backingOff(until: now + Self.quickPause)
    }

    private mutating func connected(_ device: DeviceFacts, _ failure: BluetoothFailure?, at now: Instant) -> [Action] {
        guard let failure else { return open(device, at: now) }
        if failure == .authentication { return authenticate(device, at: now) }
        failed(failure, at: now)
        return []
    }

    /// What follows on a failure that is not worth another attempt at once.
    private mutating func failed(_ failure: BluetoothFailure, at now: Instant) {
        switch failure {
        case .inProgress where progressCount < Self.progressRetries:
            progressCount += 1
            phase = .backingOff(until: now + Self.progressPause)
            return
        case .timedOut: problem = "does not answer: switch it on, and bring it near"
        case .other(let words) where kind == .handsFree: problem = words
        // What is wrong is told by the radio's state, or the device's removal.
        case .doesNotExist, .serviceGone, .notReady: break
        default: problem = "could not be opened (\(failure))"
        }
        progressCount = 0
        backOff(at: now)
    }

    private mutating func paired(_ device: DeviceFacts, _ failure: BluetoothFailure?, at now: Instant) -> [Action] {
        switch failure {
        case nil:
            return kind == .handsFree && !device.isConnected ? connect(device, at: now) : open(device, at: now)
        case .inProgress where progressCount < Self.progressRetries:
            progressCount += 1
            phase = .backingOff(until: now + Self.progressPause)
        case let failure?:
            problem = "could not be paired (\(failure)): put it into pairing mode"
            backOff(at: now)
        }
        return []
    }

    private mutating func authenticate(_ device: DeviceFacts, at now: Instant) -> [Action] {
        guard device.isPaired else {
            quickAttempts += 1
            guard let profile, quickAttempts < Self.quickTries else {
                problem = "is paired, but asks for it again: put it into pairing mode"
                backOff(at: now)
                return []
            }
            return pair(device, profile)
        }
        problem = "its keys no longer fit: 'bluetoothctl remove \(device.address)', then put it into pairing mode"
        backOff(at: now)
        return []
    }
}
