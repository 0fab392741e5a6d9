// Random sequences of all events against the invariants, from printed seeds.

import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import TestSupport
import Testing

@Suite struct ChannelManagerModelTests {
    static let stepsPerSeed = 12_000
    // Fixed seeds keep what they once found found; the last is new each time, and printed.
    static let seeds: [UInt64] = (1...9).map { $0 } + [SeededGenerator.seed(for: "channel manager model")]

    @Test(arguments: seeds) func randomEventsKeepTheInvariants(_ seed: UInt64) {
        print("channel manager model: seed \(seed), \(Self.stepsPerSeed) steps")
        var model = ChannelManagerModel(seed: seed)
        for _ in 0..<Self.stepsPerSeed where model.violations.isEmpty { model.step() }
        model.finish()
        #expect(model.violations.isEmpty, "seed \(seed): \(model.violations.joined(separator: "\n"))")
        // The run has to have been about something.
        #expect(model.begins > 300, "seed \(seed)")
        #expect(model.captures > 100, "seed \(seed)")
        #expect(model.failures > 300, "seed \(seed)")
        #expect(model.deadlines > 100, "seed \(seed)")
    }
}

extension ChannelManagerStateMachine {
    fileprivate var isKnownToCapture: Bool { transmission?.captureBegan ?? true }
}

/// The world around a channel manager: callers, a sound device with moods, and an observer who checks every action.
struct ChannelManagerModel {
    private enum Device { case closed, opening, open, closing }

    private(set) var violations: [String] = []
    private(set) var begins = 0
    private(set) var captures = 0
    private(set) var failures = 0
    private(set) var deadlines = 0

    private let channels = [UUID(), UUID(), UUID()]
    private let participants = [PTParticipant(name: "Ann", image: nil), PTParticipant(name: "Bob", image: nil)]
    private var generator: SeededGenerator
    private var machine = ChannelManagerStateMachine(configuration: .init(talkTimeLimit: .seconds(20)))
    private var now = Instant.zero
    private static let historyLength = 12
    private var recent: [(at: Instant, event: Event, actions: [Action])] = []

    // What the observer knows, from the actions and the device alone.
    private var device = Device.closed
    private var capturing = false
    private var tailSince: Instant?
    private var joined: UUID?
    private var transmitting = false
    private var audioOpen = false
    private var sessionActive = false
    private var nextRequest: UInt64 = 0
    private var unanswered: Set<RequestIdentifier> = []

    init(seed: UInt64) { generator = SeededGenerator(seed: seed) }

    mutating func step() {
        // Now and then nothing happens for a while, and the deadlines come due.
        now = now + .milliseconds(Int.random(in: 0...(generator.chance(5) ? 30_000 : 500), using: &generator))
        if let deadline = machine.nextDeadline, deadline <= now {
            // Mostly kept to the millisecond, as the event loop does; sometimes late.
            if generator.chance(80) { now = deadline }
            deadlines += 1
            handle(.deadlineReached)
            if let next = machine.nextDeadline, next <= now { violate("a deadline stays due: \(next)") }
        }
        handle(nextEvent())
    }

    /// Shuts down, lets the device answer, and expects that nothing is left.
    mutating func finish() {
        handle(.shutdown)
        if transmitting || audioOpen { violate("a begin has no end") }
        if capturing { violate("recording after shutdown") }
        if sessionActive { violate("the session is active after shutdown") }
        while let deadline = machine.nextDeadline {
            now = max(now, deadline)
            handle(.deadlineReached)
        }
        if machine.audioSession != .inactive { violate("the device stays open after shutdown") }
        if !unanswered.isEmpty { violate("\(unanswered.count) requests were never answered") }
    }

    // MARK: Events

    private mutating func nextEvent() -> Event {
        // The device answers most of the time, soon; sometimes it fails, says nothing, or talks out of turn.
        if device == .opening, generator.chance(70) {
            return generator.chance(90) ? .audioSessionActivated : .audioSessionFailed(reason: "it does not open")
        }
        if device == .closing, generator.chance(60) { return .audioSessionDeactivated }
        if tailSince != nil, generator.chance(60) { return .captureEnded }
        if capturing, !machine.isKnownToCapture, generator.chance(60) { return .captureBegan }
        switch Int.random(in: 0..<100, using: &generator) {
        case 0..<90: return request()
        case 90: return .audioSessionActivated
        case 91: return .audioSessionDeactivated
        case 92:
            return generator.chance(30) ? .audioSessionFailed(reason: "unplugged") : .captureFailed(reason: "unplugged")
        case 93: return generator.chance(50) ? .captureEnded : .captureBegan
        case 94: return .transmissionRefused(PTChannelError(.transmissionInProgress))
        case 95: return .transmissionRevoked(PTChannelError(.transmissionInProgress))
        case 96:
            return generator.chance(40) ? .audioSessionInterrupted(reason: "suspend") : .audioSessionInterruptionEnded
        case 97: return .audioSessionInterruptionEnded
        case 98: return generator.chance(40) ? .callBegan : .callEnded
        default: return .callEnded
        }
    }

    private mutating func request() -> Event {
        nextRequest += 1
        let identifier = RequestIdentifier(rawValue: nextRequest)
        unanswered.insert(identifier)
        // Mostly the channel that is joined, so that something goes on there.
        let uuid =
            joined.flatMap { generator.chance(95) ? $0 : nil } ?? channels[Int.random(in: 0..<3, using: &generator)]
        let source = PTChannelTransmitRequestSource.allCases.randomElement(using: &generator) ?? .unknown
        let descriptor = PTChannelDescriptor(name: "\(nextRequest)", image: nil)
        let kind = Int.random(in: 0..<100, using: &generator)
        let request: ChannelManagerStateMachine.Request
        switch kind {
        case 0..<10:
            let mode = PTTransmissionMode.allCases.randomElement(using: &generator) ?? .halfDuplex
            request = .join(channelUUID: uuid, descriptor, mode: generator.chance(80) ? .halfDuplex : mode)
        case 10..<13:
            let reason = PTChannelLeaveReason.allCases.randomElement(using: &generator) ?? .unknown
            request = .leave(channelUUID: uuid, reason: reason)
        case 13..<45: request = .beginTransmitting(channelUUID: uuid, source: source)
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
        case 85..<95: request = .setActiveRemoteParticipant(nil, channelUUID: uuid)
        case 95..<97: request = .setAccessoryButtonEventsEnabled(generator.chance(80), channelUUID: uuid)
        case 97..<99: request = .incomingPushResult(.activeRemoteParticipant(participants[0]), channelUUID: uuid)
        default: request = .incomingPushResult(.leaveChannel, channelUUID: uuid)
        }
        return .request(request, identifier)
    }

    // MARK: The observer

    private mutating func handle(_ event: Event) {
        switch event {
        case .audioSessionActivated: if device == .opening { device = .open }
        case .audioSessionDeactivated: if device == .closing { device = .closed }
        case .audioSessionFailed:
            if device != .closed {
                device = .closed
                capturing = false
                tailSince = nil
            }
        // A failure may be stale news of a burst before: whatever records goes on until it is stopped, or its tail ends.
        case .captureFailed, .captureEnded:
            if tailSince != nil {
                capturing = false
                tailSince = nil
            }
        default: break
        }
        let actions = machine.handle(event, at: now)
        if recent.count == Self.historyLength { recent.removeFirst() }
        recent.append((now, event, actions))
        for action in actions { observe(action) }
        if capturing, !transmitting, tailSince == nil { violate("recording without a press or a tail") }
        if let tailSince, now > tailSince + .seconds(5) { violate("a tail without an end") }
        if capturing, device != .open { violate("recording with the device not open") }
        if transmitting, joined == nil { violate("transmitting without a channel") }
        if machine.channel?.transmissionMode != .fullDuplex, transmitting, machine.activeRemoteParticipant != nil {
            violate("both ways in half duplex")
        }
    }

    private mutating func observe(_ action: Action) {
        switch action {
        case .callback(let callback): observe(callback)
        case .notice(.transmissionAudioFinished):
            if transmitting || capturing || !audioOpen { violate("audio finished out of turn") }
            audioOpen = false
        case .notice: break
        case .activateAudioSession:
            if device == .open || device == .opening { violate("a second activation") }
            device = .opening
        case .deactivateAudioSession:
            if capturing { violate("deactivated while recording") }
            device = .closing
        case .startCapture:
            if capturing || !transmitting || !sessionActive || device != .open { violate("recording out of turn") }
            capturing = true
            captures += 1
        case .stopCapture(let stop):
            if !capturing { violate("stopped what did not record") }
            if stop == .afterTail {
                tailSince = now
            } else {
                capturing = false
                tailSince = nil
            }
        case .playTone: if device != .open { violate("a tone without a device") }
        case .complete(let request, let error):
            if error != nil { failures += 1 }
            if unanswered.remove(request) == nil { violate("answered twice") }
        }
    }

    private mutating func observe(_ callback: DelegateCallback) {
        switch callback {
        case .didJoinChannel(let uuid, _):
            if joined != nil || transmitting || sessionActive { violate("joined a second channel") }
            joined = uuid
        case .didLeaveChannel(let uuid, _):
            if joined != uuid || transmitting || sessionActive { violate("left out of turn") }
            joined = nil
        case .didBeginTransmitting(let uuid, _):
            if joined != uuid || transmitting || audioOpen { violate("began out of turn") }
            transmitting = true
            audioOpen = true
            begins += 1
        case .didEndTransmitting(let uuid, _):
            if joined != uuid || !transmitting { violate("ended what had not begun") }
            transmitting = false
        case .didActivateAudioSession:
            if sessionActive || joined == nil || device != .open { violate("activated out of turn") }
            sessionActive = true
        case .didDeactivateAudioSession:
            if !sessionActive || transmitting { violate("deactivated out of turn") }
            sessionActive = false
        case .failedToJoinChannel, .failedToLeaveChannel, .failedToBeginTransmitting, .failedToStopTransmitting: break
        }
    }

    private mutating func violate(_ what: String) {
        let history = recent.map { "\($0.at) \($0.event)\n    \($0.actions)" }
        violations.append("\(what), after:\n\(history.joined(separator: "\n"))")
    }
}
