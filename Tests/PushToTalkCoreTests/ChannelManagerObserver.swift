// What the model test knows of a channel manager, from its actions and the device alone, and what it holds against them.

import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import Vocabulary

struct ChannelManagerObserver {
    enum Device { case closed, opening, open, closing }

    struct Counts {
        var begins = 0
        var captures = 0
        /// Transmissions of programs that record themselves.
        var programTalks = 0
        var failures = 0
        var asked = 0
        /// Answers that turned an active session over to a participant.
        var handOvers = 0
        var updates = 0
        var programsWanted = 0
        var dropped = 0
        var waits = 0
        var waitsBegun = 0
    }

    var violations: [String] = []
    var counts = Counts()
    var restoredToken: PushToken?

    var device = Device.closed
    var capturing = false
    var tailSince: Instant?
    var toneSince: Instant?
    var joined: UUID?
    var media = MediaOwner.daemon
    var transmitting = false
    var waiting = false
    /// The transmission began after waiting.
    private var hasWaited = false
    var sessionActive = false
    var token: PushToken?
    var asked: PushDelivery?
    var updating: PushDelivery?
    var isProgramPresent = false
    var isProgramWanted = false

    private static let historyLength = 12
    private var recent: [(at: Instant, event: Event, actions: [Action])] = []
    private var audioOpen = false
    private var isTokenDue = false
    private var order = DelegateCallbackOrder()
    private var calls: Set<String> = []
    private var unanswered: Set<RequestIdentifier> = []
    private var tokensSeen: Set<PushToken> = []
    private var unsettled: [String: (push: Push, at: Instant)] = [:]
    private var askedAt = Instant.zero
    private var updatedAt = Instant.zero
    private var highPriority: [Instant] = []
    /// The event is an answer to a push that turns the active session over to a participant.
    private var isHandOver = false

    /// A new daemon: what was asked of the old one is answered, and the world is as it was.
    mutating func restart() {
        let old = self
        self = ChannelManagerObserver()
        violations = old.violations
        counts = old.counts
        tokensSeen = old.tokensSeen
    }

    // MARK: Events

    mutating func expect(_ event: Event, at now: Instant) {
        isHandOver = false
        switch event {
        case .request(let request, let identifier):
            if let identifier { unanswered.insert(identifier) }
            if case .join(_, _, _, _, _, let options) = request, joined == nil {
                media = options.media
                isProgramPresent = options.program == .present
                isTokenDue = options.program != .none
            }
        case .audioSessionActivated: if device == .opening { device = .open }
        case .audioSessionDeactivated: if device == .closing { device = .closed }
        case .audioSessionFailed:
            if device != .closed {
                device = .closed
                capturing = false
                tailSince = nil
                toneSince = nil
            }
        // A failure may be stale news of a burst before: whatever records goes on until it is stopped, or its tail ends.
        case .captureFailed, .captureEnded:
            if tailSince != nil {
                capturing = false
                tailSince = nil
            }
        case .tonesFinished, .playbackFailed: toneSince = nil
        case .callBegan(let call): calls.insert(call.holder)
        case .callEnded(let holder): calls.remove(holder)
        case .push(.received(let push)): unsettled[push.identifier] = (push, now)
        case .push(.programCame):
            isProgramWanted = false
            if token != nil { isProgramPresent = true }
        case .push(.programNotStarted): isProgramWanted = false
        case .push(.programLeft): isProgramPresent = false
        case .push(.answered(let identifier, let result)) where identifier == asked?.identifier:
            asked = nil
            guard case .activeRemoteParticipant = result else { return }
            isHandOver = sessionActive && device == .open && !transmitting
        case .push, .captureBegan, .transmissionRefused, .transmissionRevoked, .floorQueued, .floorGranted,
            .audioSessionInterrupted, .audioSessionInterruptionEnded, .signal, .deadlineReached, .shutdown:
            break
        }
    }

    mutating func observe(_ actions: [Action], of event: Event, _ machine: Machine, at now: Instant) {
        if recent.count == Self.historyLength { recent.removeFirst() }
        recent.append((now, event, actions))
        for action in actions { observe(action, at: now) }
        if isHandOver {
            counts.handOvers += 1
            let isClosed = actions.callbacks.contains(.didDeactivateAudioSession)
            if isClosed || !sessionActive { violate("stop, then receive, and the session did not stay active") }
        }
        if isTokenDue { violate("a join without a token") }
        check(machine, at: now)
    }

    private mutating func check(_ machine: Machine, at now: Instant) {
        if capturing, !transmitting, tailSince == nil { violate("recording without a press or a tail") }
        if let tailSince, now > tailSince + .seconds(5) { violate("a tail without an end") }
        if capturing, device != .open { violate("recording with the device not open") }
        if waiting != (machine.waiting != nil) { violate("waiting is not what was told") }
        if let waiting = machine.waiting, waiting.source != .handsfreeButton {
            // With the floor there is a second of last words.
            let due = machine.nextDeadline ?? Instant(nanoseconds: .max)
            if due > waiting.since + .seconds(61) { violate("waiting that nobody may be waiting for") }
        }
        if waiting, capturing || transmitting || joined == nil || !calls.isEmpty { violate("waiting that had to end") }
        if transmitting, joined == nil { violate("transmitting without a channel") }
        if transmitting, !calls.isEmpty { violate("transmitting during a call") }
        if transmitting, media == .application, !isProgramPresent {
            violate("transmitting without the program that records")
        }
        if sessionActive, !calls.isEmpty { violate("the session is active during a call") }
        if machine.isCallActive == calls.isEmpty { violate("the calls are not those that are active") }
        if machine.channel?.transmissionMode != .fullDuplex, transmitting, machine.activeRemoteParticipant != nil {
            violate("both ways in half duplex")
        }
        if machine.pushes.token != token, !machine.isShutDown { violate("the token is not the one that was told") }
        if machine.pushes.waitingCount > machine.pushes.configuration.waitingMax { violate("too many pushes wait") }
        // A deadline may be handled late, by the length of a step.
        if asked != nil, now > askedAt + .seconds(45) { violate("an answer is awaited for ever") }
        if updating != nil, now > updatedAt + .seconds(65) { violate("a completion is awaited for ever") }
    }

    /// A program that comes now is told what makes sense of what it is told next.
    mutating func checkRestoration(_ machine: Machine) {
        var order = DelegateCallbackOrder()
        for callback in machine.restorationCallbacks where !order.accept(callback) {
            violate("what a program is told first is out of order: \(machine.restorationCallbacks)")
        }
        if order.isTransmitting != transmitting || order.isSessionActive != sessionActive {
            violate("a program that comes is not told what goes on")
        }
    }

    mutating func checkEnd(_ machine: Machine) {
        if transmitting || waiting || audioOpen { violate("a begin has no end") }
        if capturing { violate("recording after shutdown") }
        if sessionActive { violate("the session is active after shutdown") }
        if machine.audioSession != .inactive { violate("the device stays open after shutdown") }
        if !unanswered.isEmpty { violate("\(unanswered.count) requests were never answered") }
        if !unsettled.isEmpty { violate("\(unsettled.count) pushes were never settled") }
    }

    // MARK: Actions

    private mutating func observe(_ action: Action, at now: Instant) {
        switch action {
        case .callback(let callback):
            if !order.accept(callback) { violate("\(callback) is out of order") }
            observe(callback, at: now)
        case .notice(let notice): observe(notice, at: now)
        case .activateAudioSession:
            if device == .open || device == .opening { violate("a second activation") }
            if sessionActive { violate("activated beneath an active session") }
            // A program's session is told active only when the tones before it are over.
            toneSince = nil
            device = .opening
        case .deactivateAudioSession:
            if capturing { violate("deactivated while recording") }
            if sessionActive, media == .application { violate("a program's device was closed") }
            toneSince = nil
            device = .closing
        case .startCapture(let start):
            if start != (hasWaited ? .afterGoAhead : .atOnce) { violate("the go-ahead tone is not where it belongs") }
            if capturing || !transmitting || !sessionActive || device != .open { violate("recording out of turn") }
            if media == .application { violate("recording for a program that records") }
            capturing = true
            counts.captures += 1
        case .stopCapture(let stop):
            if !capturing { violate("stopped what did not record") }
            tailSince = stop == .afterTail ? now : nil
            if stop != .afterTail { capturing = false }
        case .playTone:
            if device != .open { violate("a tone without a device") }
            if media == .application {
                if sessionActive { violate("a tone while the device is a program's") }
                toneSince = now
            }
        case .complete(let request, let error):
            if error != nil { counts.failures += 1 }
            if unanswered.remove(request) == nil { violate("answered twice") }
        }
    }

    private mutating func observe(_ callback: DelegateCallback, at now: Instant) {
        if isTokenDue, joined != nil {
            if case .receivedEphemeralPushToken = callback {} else { violate("something came before the token") }
        }
        switch callback {
        case .didJoinChannel(let uuid, _):
            if joined != nil || transmitting || sessionActive { violate("joined a second channel") }
            joined = uuid
        case .didLeaveChannel(let uuid, _):
            if joined != uuid || transmitting || sessionActive { violate("left out of turn") }
            if token != nil { violate("the token outlives the membership") }
            if asked != nil || updating != nil { violate("left with a question open") }
            joined = nil
            isProgramPresent = false
            isProgramWanted = false
        case .didBeginTransmitting(let uuid, _):
            if joined != uuid || transmitting || audioOpen { violate("began out of turn") }
            transmitting = true
            audioOpen = true
            counts.begins += 1
            hasWaited = waiting
            if waiting { counts.waitsBegun += 1 }
            waiting = false
        case .didEndTransmitting(let uuid, _):
            if joined != uuid || !transmitting { violate("ended what had not begun") }
            transmitting = false
        case .didActivateAudioSession:
            if sessionActive || joined == nil || device != .open { violate("activated out of turn") }
            if let toneSince, now < toneSince + .seconds(2) { violate("a program got the device during a tone") }
            toneSince = nil
            sessionActive = true
            if media == .application, transmitting { counts.programTalks += 1 }
        case .didDeactivateAudioSession:
            if !sessionActive || transmitting { violate("deactivated out of turn") }
            sessionActive = false
        case .receivedEphemeralPushToken(let new):
            if !isTokenDue || joined == nil { violate("a token out of turn") }
            if tokensSeen.contains(new), new != restoredToken { violate("a token was used twice") }
            if !PushToken.byteCounts.contains(new.bytes.count) { violate("a token of the wrong length") }
            tokensSeen.insert(new)
            token = new
            isTokenDue = false
        case .incomingPush(let uuid, let delivery):
            if asked != nil { violate("asked twice at a time") }
            delivered(delivery, to: uuid, at: now)
            asked = delivery
            askedAt = now
            counts.asked += 1
        case .incomingServiceUpdatePush(let uuid, let delivery, let isHighPriority, let remaining):
            if updating != nil { violate("two service updates at a time") }
            delivered(delivery, to: uuid, at: now)
            updating = delivery
            updatedAt = now
            counts.updates += 1
            if isHighPriority { highPriority.append(now) }
            let used = highPriority.count { now - $0 < .seconds(3600) }
            if used > 6 || remaining != 6 - used { violate("the budget is not kept: \(used) used, \(remaining) left") }
            if isHighPriority, !delivery.push.isHighPriority { violate("a priority was raised") }
        case .failedToJoinChannel, .failedToLeaveChannel, .failedToBeginTransmitting, .failedToStopTransmitting: break
        }
    }

    private mutating func delivered(_ delivery: PushDelivery, to uuid: UUID, at now: Instant) {
        let push = delivery.push
        if joined != uuid || !isProgramPresent { violate("a push without a program") }
        if token == nil || (push.token != nil && push.token != token) { violate("a push with a dead token") }
        guard let came = unsettled[push.identifier]?.at else { return violate("a push out of nothing") }
        switch push.expiry {
        case .immediate: if now >= came + .seconds(10) { violate("a push for now came late") }
        case .at(let expiry): if now >= expiry { violate("a push came after its time") }
        }
    }

    private mutating func observe(_ notice: Machine.Notice, at now: Instant) {
        switch notice {
        case .transmissionAudioFinished:
            if transmitting || capturing || !audioOpen { violate("audio finished out of turn") }
            audioOpen = false
        case .pushTokenChanged(let new):
            if let new, new != token { violate("a token was registered that was not told") }
            if new == nil { token = nil }
        case .programWanted:
            if isProgramPresent || joined == nil { violate("a program was wanted that runs") }
            isProgramWanted = true
            counts.programsWanted += 1
        case .pushSettled(let push, let outcome):
            if unsettled.removeValue(forKey: push.identifier) == nil { violate("a push was settled twice") }
            if case .dropped = outcome { counts.dropped += 1 }
            if asked?.push == push { asked = nil }
            if updating?.push == push { updating = nil }
        case .waitingForFloor:
            if transmitting || joined == nil { violate("waiting out of turn") }
            if !waiting { counts.waits += 1 }
            waiting = true
        case .waitingEnded:
            if !waiting { violate("an end of waiting without a beginning") }
            waiting = false
        default: break
        }
    }

    mutating func violate(_ what: String) {
        let history = recent.map { "\($0.at) \($0.event)\n    \($0.actions)" }
        violations.append("\(what), after:\n\(history.joined(separator: "\n"))")
    }
}
