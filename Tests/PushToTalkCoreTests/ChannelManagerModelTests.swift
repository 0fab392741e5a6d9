// Random sequences of all events against the invariants, from printed seeds.

import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import TestSupport
import Testing
import Vocabulary

@Suite struct ChannelManagerModelTests {
    static let stepsPerSeed = 12_000
    // Fixed seeds keep what they once found found; the last is new each time, and printed.
    static let seeds: [UInt64] = (1...11).map { $0 } + [SeededGenerator.seed(for: "channel manager model")]

    @Test(arguments: seeds) func `random events keep the invariants`(_ seed: UInt64) {
        print("channel manager model: seed \(seed), \(Self.stepsPerSeed) steps")
        var model = ChannelManagerModel(seed: seed)
        for _ in 0..<Self.stepsPerSeed where model.observer.violations.isEmpty { model.step() }
        model.finish()
        let violations = model.observer.violations
        #expect(violations.isEmpty, "seed \(seed): \(violations.joined(separator: "\n"))")
        // The run has to have been about something. The bounds lie four deviations below what 400 seeds had.
        let counts = model.observer.counts
        #expect(counts.begins > 60, "seed \(seed)")
        #expect(counts.captures > 25, "seed \(seed)")
        #expect(counts.programTalks > 5, "seed \(seed)")
        #expect(counts.failures > 300, "seed \(seed)")
        #expect(counts.asked > 50, "seed \(seed)")
        #expect(counts.handOvers > 1, "seed \(seed)")
        #expect(counts.updates > 10, "seed \(seed)")
        #expect(counts.waits > 20, "seed \(seed)")
        #expect(counts.waitsBegun > 4, "seed \(seed)")
        #expect(counts.programsWanted > 10, "seed \(seed)")
        #expect(counts.dropped > 100, "seed \(seed)")
        #expect(model.deadlines > 40, "seed \(seed)")
        #expect(model.restarts > 1, "seed \(seed)")
    }
}

extension ChannelManagerStateMachine {
    fileprivate var isKnownToCapture: Bool { transmission?.captureBegan ?? true }
}

/// The world around a channel manager: callers, a program with moods, servers that push, telephones, and a sound device.
/// `ChannelManagerObserver` checks what comes of it.
struct ChannelManagerModel {
    private(set) var observer = ChannelManagerObserver()
    private(set) var deadlines = 0
    private(set) var restarts = 0

    private let channels = [UUID(), UUID(), UUID()]
    private let participants = [PTParticipant(name: "Ann", image: nil), PTParticipant(name: "Bob", image: nil)]
    private let callers = ["phone", "softphone", "inhibitor"]
    private var generator: SeededGenerator
    private var machine: ChannelManagerStateMachine
    private var now = Instant.zero
    private var nextNumber: UInt64 = 0
    /// Tokens of memberships that are over, and servers that do not know it.
    private var deadTokens: [PushToken] = []

    init(seed: UInt64) {
        generator = SeededGenerator(seed: seed)
        machine = Self.makeMachine(&generator)
    }

    private static func makeMachine(_ generator: inout SeededGenerator) -> ChannelManagerStateMachine {
        ChannelManagerStateMachine(
            configuration: .init(talkTimeLimit: .seconds(20)), generator: SeededGenerator(seed: generator.next()))
    }

    mutating func step() {
        // Now and then nothing happens for a while, and the deadlines come due.
        now = now + .milliseconds(Int.random(in: 0...(generator.chance(5) ? 30_000 : 500), using: &generator))
        if let deadline = machine.nextDeadline, deadline <= now {
            // Mostly kept to the millisecond, as the event loop does; sometimes late.
            if generator.chance(80) { now = deadline }
            deadlines += 1
            handle(.deadlineReached)
            if let next = machine.nextDeadline, next <= now { observer.violate("a deadline stays due: \(next)") }
        }
        if Int.random(in: 0..<800, using: &generator) == 0 { restart() }
        handle(nextEvent())
        observer.checkRestoration(machine)
    }

    /// Shuts down, lets the device answer, and expects that nothing is left.
    mutating func finish() {
        handle(.shutdown)
        while let deadline = machine.nextDeadline {
            now = max(now, deadline)
            handle(.deadlineReached)
        }
        observer.checkEnd(machine)
    }

    /// The daemon ends, and another one takes over what it has kept.
    private mutating func restart() {
        restarts += 1
        let record = machine.channel.map {
            RestorationRecord(channel: $0, token: machine.pushes.token, application: "org.example.Talk")
        }
        finish()
        machine = Self.makeMachine(&generator)
        observer.restart()
        guard let record else { return }
        guard let read = try? RestorationRecord(text: record.text.utf8), read == record else {
            return observer.violate("a record does not come back as it was kept")
        }
        observer.restoredToken = record.token
        handle(.request(read.restoringJoin))
        if machine.channel?.uuid != record.channelUUID || machine.pushes.token != record.token
            || machine.channel?.transmissionMode != record.mode || machine.channel?.media != record.media
        {
            observer.violate("a channel was not restored as it was")
        }
    }

    // MARK: Events

    private mutating func nextEvent() -> Event {
        if let event = soundEvent() ?? programEvent() { return event }
        switch Int.random(in: 0..<100, using: &generator) {
        case 0..<78: return request()
        case 78..<84: return .push(.received(push()))
        case 84: return .audioSessionActivated
        case 85: return generator.chance(50) ? .signal(.channel(position: 3)) : .audioSessionDeactivated
        case 86:
            return generator.chance(30) ? .audioSessionFailed(reason: "unplugged") : .captureFailed(reason: "unplugged")
        case 87: return generator.chance(50) ? .captureEnded : .captureBegan
        case 88: return generator.chance(50) ? .tonesFinished : .playbackFailed(reason: "no speaker")
        case 89 where generator.chance(60): return .floorQueued(position: Int.random(in: 1...3, using: &generator))
        case 89: return .transmissionRefused(PTChannelError(.transmissionInProgress))
        case 90: return .transmissionRevoked(PTChannelError(.transmissionInProgress))
        case 91:
            return generator.chance(40) ? .audioSessionInterrupted(reason: "suspend") : .audioSessionInterruptionEnded
        case 92: return .audioSessionInterruptionEnded
        case 93:
            let holder = callers.randomElement(using: &generator) ?? ""
            return .callBegan(CallHold(holder: holder, description: generator.chance(50) ? "a call" : "a conference"))
        case 94..<98: return .callEnded(holder: callers.randomElement(using: &generator) ?? "")
        case 98: return .push(generator.chance(40) ? .programLeft : .programCame)
        default: return .push(.programNotStarted(reason: "no such service"))
        }
    }

    /// The device answers most of the time, soon; sometimes it fails, says nothing, or talks out of turn.
    private mutating func soundEvent() -> Event? {
        if observer.device == .opening, generator.chance(70) {
            return generator.chance(90) ? .audioSessionActivated : .audioSessionFailed(reason: "it does not open")
        }
        if observer.device == .closing, generator.chance(60) { return .audioSessionDeactivated }
        if observer.tailSince != nil, generator.chance(60) { return .captureEnded }
        if observer.capturing, !machine.isKnownToCapture, generator.chance(60) { return .captureBegan }
        if observer.toneSince != nil, generator.chance(60) { return .tonesFinished }
        if observer.waiting, generator.chance(15) { return .floorGranted }
        return nil
    }

    /// The program answers soon, wrongly or never; it ends, and it comes when it is started.
    private mutating func programEvent() -> Event? {
        if let asked = observer.asked?.identifier, generator.chance(40) {
            let participant = participants.randomElement(using: &generator) ?? participants[0]
            switch Int.random(in: 0..<20, using: &generator) {
            case 0: return .push(.answered(asked, .leaveChannel))
            case 1: return .push(.notAnswered(asked, reason: "it failed"))
            case 2: return .push(.programLeft)
            case 3: return .push(.completed(asked))
            case 4..<12:
                // "Stop, then receive", as the reference tells a program to.
                if let channel = observer.joined, observer.transmitting {
                    return .request(.stopTransmitting(channelUUID: channel, source: .developerRequest))
                }
                return .push(.answered(asked, .activeRemoteParticipant(participant)))
            default: return .push(.answered(asked, .activeRemoteParticipant(participant)))
            }
        }
        if let updating = observer.updating?.identifier, generator.chance(20) {
            return .push(generator.chance(80) ? .completed(updating) : .notAnswered(updating, reason: "it failed"))
        }
        if observer.isProgramWanted, generator.chance(30) {
            return .push(generator.chance(80) ? .programCame : .programNotStarted(reason: "it ended"))
        }
        return nil
    }

    private mutating func push() -> Push {
        nextNumber += 1
        let token: PushToken?
        switch Int.random(in: 0..<10, using: &generator) {
        case 0: token = deadTokens.randomElement(using: &generator)
        case 1: token = PushToken.random(using: &generator)
        case 2: token = nil
        default: token = observer.token
        }
        let isUpdate = generator.chance(30)
        let text = isUpdate ? #"{"aps":{"ptt-push-type":"service-update"}}"# : #"{"aps":{},"speaker":"Ann"}"#
        guard let payload = try? PushPayload(validating: text) else { fatalError("a payload that is one") }
        let expiry: Push.Expiry =
            generator.chance(60)
            ? .immediate : .at(now + .milliseconds(Int.random(in: -1_000...60_000, using: &generator)))
        return Push(
            identifier: "\(nextNumber)", token: token, payload: payload, isHighPriority: generator.chance(70),
            expiry: expiry)
    }

    private mutating func request() -> Event {
        nextNumber += 1
        let identifier = RequestIdentifier(rawValue: nextNumber)
        // Mostly the channel that is joined, so that something goes on there.
        let uuid =
            observer.joined.flatMap { generator.chance(95) ? $0 : nil }
            ?? channels[Int.random(in: 0..<3, using: &generator)]
        let source = PTChannelTransmitRequestSource.allCases.randomElement(using: &generator) ?? .unknown
        let descriptor = PTChannelDescriptor(name: "\(nextNumber)", image: nil)
        let request: ChannelManagerStateMachine.Request
        switch Int.random(in: 0..<100, using: &generator) {
        case 0..<10: request = join(uuid, descriptor)
        case 10..<12:
            let reason = PTChannelLeaveReason.allCases.randomElement(using: &generator) ?? .unknown
            request = .leave(channelUUID: uuid, reason: reason)
        case 12..<45:
            let floors: [FloorOutlook] = [
                .unknown, .unknown, .idle, .queueable, .queueable, .reconnecting, .listenOnly,
            ]
            let floor = floors.randomElement(using: &generator) ?? .unknown
            request = .beginTransmitting(channelUUID: uuid, source: source, floor: floor)
        case 45..<66: request = .stopTransmitting(channelUUID: uuid, source: source)
        case 66..<69: request = .setChannelDescriptor(descriptor, channelUUID: uuid)
        case 69..<74:
            let mode = PTTransmissionMode.allCases.randomElement(using: &generator) ?? .halfDuplex
            request = .setTransmissionMode(generator.chance(50) ? .fullDuplex : mode, channelUUID: uuid)
        case 74..<79:
            let status = PTServiceStatus.allCases.randomElement(using: &generator) ?? .ready
            request = .setServiceStatus(generator.chance(70) ? .ready : status, channelUUID: uuid)
        case 79..<85:
            request = .setActiveRemoteParticipant(participants.randomElement(using: &generator), channelUUID: uuid)
        case 85..<97: request = .setActiveRemoteParticipant(nil, channelUUID: uuid)
        default: request = .setAccessoryButtonEventsEnabled(generator.chance(80), channelUUID: uuid)
        }
        return .request(request, identifier)
    }

    private mutating func join(_ uuid: UUID, _ descriptor: PTChannelDescriptor) -> ChannelManagerStateMachine.Request {
        let mode = PTTransmissionMode.allCases.randomElement(using: &generator) ?? .halfDuplex
        let isForProgram = generator.chance(45)
        let program: ChannelProgram =
            generator.chance(60) ? .present : isForProgram || generator.chance(50) ? .absent : .none
        return .join(
            channelUUID: uuid, descriptor, mode: generator.chance(80) ? .halfDuplex : mode,
            options: .init(
                media: isForProgram ? .application : .daemon, program: program, canStartProgram: generator.chance(80)))
    }

    private mutating func handle(_ event: Event) {
        let token = observer.token
        observer.expect(event, at: now)
        let actions = machine.handle(event, at: now)
        observer.observe(actions, of: event, machine, at: now)
        if let token, observer.token != token { deadTokens = deadTokens.suffix(5) + [token] }
    }
}
