// Learning a button: hearing everything that a device tells, asking the person, and writing the profile.
import Accessories
import BlueZ
import Files
import Logging
import MonotonicTime
import Reactor
import Settings
import Vocabulary

/// A session under way.
struct LearningSession {
    /// Tells it from sessions before and after it.
    let number: Int
    let request: LearningRequest
    var machine: LearningStateMachine
    /// nil when only local devices are listened to.
    var link: LearningLinkStateMachine?
    var isScanning = false
    /// The accessory is being added with the profile.
    var isAdding = false

    var nextDeadline: Instant? { [machine.nextDeadline, link?.nextDeadline].compactMap { $0 }.min() }
}

extension AccessorySetup {
    /// Begins to learn a button. There is one session at a time; where it is, is told.
    public func startLearning(_ request: LearningRequest) throws(AccessoryError) {
        guard learning == nil else {
            throw AccessoryError(.busy, "a button is being learned already; wait until that is over")
        }
        if let name = request.name {
            let id = AccessoryNames.name(from: name, fallback: "")
            guard !id.isEmpty, name.utf8.count <= 64 else {
                throw AccessoryError(.invalid, "'\(name)' is no name: use letters and digits, at most 64")
            }
            guard library[id] == nil else {
                throw AccessoryError(.alreadyConfigured, "there is a profile '\(id)' already; choose another name")
            }
        }
        learningSessions += 1
        learning = LearningSession(
            number: learningSessions, request: request, machine: LearningStateMachine(at: .now),
            link: request.address.map { LearningLinkStateMachine(address: $0) })
        service.assumeIsolated { $0.setQuiet(true) }
        tellLearning()
        if let link = learning?.link { carryOut(link.firstActions) }
        observeAsNeeded()
        if let problem = learningProblem(request) {
            if let session = learning { endLearning(session, keepsDevice: false) }
            throw problem
        }
        if let address = request.address {
            if let device = scannedDevice(address) { happened(.device(device)) }
        } else {
            learn(.listening)
        }
    }

    /// The person has pressed every other key, or there is none: the session waits for that no longer.
    public func proceedLearning() { learn(.proceed) }

    /// Why nothing can be learned here now.
    private func learningProblem(_ request: LearningRequest) -> AccessoryError? {
        guard request.address == nil else { return radio == .on ? nil : noRadio }
        guard localDevices.isEmpty else { return nil }
        return AccessoryError(
            .notFound,
            "no input device or serial port is tagged: write a udev rule for it first (docs/installers-input.md), or give a "
                + "Bluetooth address")
    }

    /// Ends the session without a profile, if it is not over.
    public func cancelLearning() {
        guard let session = learning else { return }
        if session.isAdding, let address = session.request.address { cancelAdding(address: address) }
        endLearning(session, keepsDevice: false)
    }

    // MARK: In

    func learn(_ report: BluetoothReport) {
        guard let session = learning, let address = session.request.address else { return }
        switch report {
        case .device(let facts) where facts.address.uppercased() == address: happened(.device(facts))
        case .deviceRemoved(let id) where session.link?.device?.id == id: happened(.deviceRemoved)
        case .radio(let state) where state != .on: happened(.deviceRemoved)
        case .value(let characteristic, let bytes, let time):
            let facts = session.link?.device?.characteristics.first { $0.id == characteristic }
            guard let facts else { return }
            observed(.characteristic(service: facts.service, facts.characteristic), .bytes(bytes), time)
        case .streamBytes(let device, let kind, let bytes, let time) where device == session.link?.device?.id:
            observed(.stream(kind), .bytes(bytes), time)
        case .streamClosed(let device, let kind) where device == session.link?.device?.id: happened(.streamClosed(kind))
        default: break
        }
    }

    func learn(_ report: LocalDeviceReport) {
        switch report {
        case .key(let id, let code, let isDown, let time) where isListenedTo(id):
            observed(.keys(id), .key(code: code, isDown: isDown), time)
        case .bytes(let id, let bytes, let time) where isListenedTo(id): observed(.serial(id), .bytes(bytes), time)
        default: break
        }
    }

    /// A device of the address, or any when none is named.
    private func isListenedTo(_ id: LocalDeviceID) -> Bool {
        guard let session = learning else { return false }
        guard let address = session.request.address else { return true }
        return localDevices[id]?.address?.uppercased() == address
    }

    private func observed(_ source: LearningSource, _ content: LearningObservation.Content, _ time: Instant) {
        learn(.observed(LearningObservation(source: source, content: content, time: time)))
    }

    func learningElapsed(at now: Instant) {
        if let due = learning?.link?.nextDeadline, due <= now { happened(.deadline) }
        if let due = learning?.machine.nextDeadline, due <= now { learn(.deadline) }
    }

    private func learn(_ event: LearningStateMachine.Event) {
        guard var session = learning, !session.machine.isOver else { return }
        let actions = session.machine.handle(event, at: .now)
        learning = session
        for action in actions {
            switch action {
            case .progress: tellLearning()
            case .learned(let rule): learned(rule)
            case .failed(let why): failed(why)
            }
        }
        schedule()
    }

    private func happened(_ event: LearningLinkStateMachine.Event) {
        guard var session = learning, var link = session.link else { return }
        let actions = link.handle(event, at: .now)
        session.link = link
        learning = session
        // Over for the person: only what is still to be closed counts.
        guard !session.machine.isOver else { return }
        carryOut(actions)
        schedule()
    }

    // MARK: Out

    private func carryOut(_ actions: [LearningLinkStateMachine.Action]) {
        for action in actions {
            switch action {
            case .scan(let isOn):
                learning?.isScanning = isOn
                scanAsNeeded()
            case .command(let command):
                Task {
                    let failure = await service.perform(command)
                    happened(.completed(command, failure))
                }
            case .listening: learn(.listening)
            case .lost: learn(.lost)
            case .failed(let why): failed(why)
            }
        }
    }

    private func tellLearning() {
        if let report = learning?.machine.report { handler(.learning(report)) }
    }

    private func failed(_ why: String) {
        guard learning != nil else { return }
        logger.notice("button not learned", metadata: ["why": "\(why)"])
        learning?.machine.report.problem = why
        end(.failed, nil)
    }

    private func end(_ step: LearningStep, _ accessory: AccessoryID?) {
        learning?.machine.report.step = step
        learning?.machine.report.prompt = ""
        learning?.machine.report.accessory = accessory?.text
        guard let session = learning else { return }
        endLearning(session, keepsDevice: accessory != nil)
        handler(.learning(session.machine.report))
    }

    private func learned(_ rule: LearnedRule) {
        guard let session = learning else { return }
        let local: LocalDeviceFacts? =
            switch rule.source {
            case .keys(let id), .serial(let id): localDevices[id]
            case .characteristic, .stream: nil
            }
        let device = session.link?.device
        let name = session.request.name ?? local?.name ?? device?.name
        let library = library
        let id = AccessoryNames.unique(AccessoryNames.name(from: name, fallback: "learned")) { library[$0] != nil }
        let title = session.request.name ?? AccessoryNames.title(from: name)
        let profile = AccessoryProfile(
            rule, id: id, title: title, device: device, local: local, date: AccessoryProfile.today)
        // What would not be understood at the next start is of no use.
        guard (try? AccessoryProfile(bytes: Array(profile.text.utf8), file: id)) == profile else {
            return failed(
                "the profile '\(id)' cannot be written as it was learned: write it by hand (docs/profiles.md)")
        }
        Task { await keep(profile, of: session.number, device: device, local: local) }
    }

    /// Writes a learned profile down and uses it. The session may have ended meanwhile.
    private func keep(
        _ profile: AccessoryProfile, of number: Int, device: DeviceFacts?, local: LocalDeviceFacts?
    ) async {
        let file: String
        do throws(FileError) {
            file = try await disk.perform { [store] () throws(FileError) in try store.save(profile) }
        } catch {
            if learning?.number == number { failed("the profile was learned and not kept: \(error)") }
            return
        }
        logger.notice("button learned", metadata: ["profile": "\(profile.id)", "file": "\(file)"])
        await service.add(profile)
        carryOut(scan.handle(.library(library), at: .now))
        guard learning?.number == number else { return }
        learning?.machine.report.profile = profile.id
        learning?.machine.report.file = file
        learning?.machine.report.text = profile.text
        await finish(profile, of: number, device: device, local: local)
    }

    /// Adds the accessory where that is wanted, and ends.
    private func finish(
        _ profile: AccessoryProfile, of number: Int, device: DeviceFacts?, local: LocalDeviceFacts?
    ) async {
        let statuses = await service.statuses
        guard let session = learning, session.number == number else { return }
        guard let address = session.request.address, session.request.addsAccessory, local == nil || device != nil else {
            // A tagged device is an accessory by its rule.
            let own = statuses.first { $0.profileID == profile.id && $0.isReady }
            return end(.done, local == nil ? nil : own?.id)
        }
        let old = statuses.first { $0.address.uppercased() == address && origin(of: $0.id) != .automatic }
        if let old {
            // It is one already: from now on with what it was taught.
            let isUsed = await useProfile(profile.id, of: old)
            guard learning?.number == number else { return }
            if isUsed { return end(.done, old.id) }
            learning?.machine.report.problem =
                configured[old.id] == nil
                ? "learned, but '\(old.id)' could not be written down with it: the log says why"
                : "learned, but '\(old.id)' has another profile in pttd.toml: write profile = \"\(profile.id)\" there, and "
                    + "restart pttd"
            return end(.done, nil)
        }
        learning?.isAdding = true
        learning?.machine.report.step = .connecting
        learning?.machine.report.prompt = "Learned. Adding it…"
        tellLearning()
        do throws(AccessoryError) {
            let added = try await add(AccessoryAddition(address: address, profileID: profile.id))
            if learning?.number == number { end(.done, added.id) }
        } catch {
            guard learning?.number == number else { return }
            learning?.machine.report.problem = "learned, but not added: \(error)"
            end(.done, nil)
        }
    }

    private func endLearning(_ session: LearningSession, keepsDevice: Bool) {
        learning = nil
        service.assumeIsolated { $0.setQuiet(false) }
        if let link = session.link, let device = link.device {
            var commands = link.streams.map { BluetoothCommand.closeStream(device: device.id, $0) }
            let isAccessory = service.assumeIsolated { service in
                service.statuses.contains { $0.address.uppercased() == link.address }
            }
            if keepsDevice || isAccessory {
                // The fleet has streams of its own.
                commands = []
            } else if !link.wasKnown {
                commands.append(.remove(device: device.id))
            } else if !link.wasConnected {
                commands.append(.disconnect(device: device.id))
            }
            let wanted = commands
            Task { for command in wanted { _ = await service.perform(command) } }
        }
        observeAsNeeded()
    }
}
