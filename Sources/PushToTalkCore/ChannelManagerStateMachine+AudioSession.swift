// When the sound device is opened and closed, and which callbacks the delegate gets about it.

import MonotonicTime
import Vocabulary

extension ChannelManagerStateMachine {
    /// Brings the audio session in line with what it is needed for; the last step of every event.
    mutating func settle(at now: Instant) {
        let inUse = transmission != nil || activeRemoteParticipant != nil
        // "Stop, then receive": the program that was asked about a push may have stopped its transmission in order to answer
        // with a participant, and the session stays active from the one to the other.
        let isHeld = sessionTold && audioSession == .active && pushes.isAwaitingAnswer
        let needed = (inUse || isHeld) && !isSuspended && !isShutDown
        let wanted = (needed && !activationBlocked) || capture != .idle || pendingTone != nil
        switch audioSession {
        case .inactive:
            if wanted { activate(at: now) }
        case .deactivating:
            guard wanted else { return }
            // The device is still open: opening it again is what stops the closing.
            tellDeactivated()
            activate(at: now)
        case .activating:
            if !wanted { deactivate(.drop, at: now) }
        case .active:
            if channel?.media == .application {
                settleForProgram(needed: needed, at: now)
            } else {
                settleForDaemon(needed: needed, at: now)
            }
        }
    }

    private mutating func settleForDaemon(needed: Bool, at now: Instant) {
        if needed, !sessionTold {
            sessionTold = true
            tell(.didActivateAudioSession)
        }
        if transmission?.captureStarted == false { startCapture(at: now) }
        guard capture == .idle else { return }
        if let tone = pendingTone {
            pendingTone = nil
            actions.append(.playTone(tone))
        }
        if !needed { deactivate(.finish, at: now) }
    }

    /// The session of a program that records and plays itself: from `didActivate` to `didDeactivate` the devices are its,
    /// and tones sound before and after.
    private mutating func settleForProgram(needed: Bool, at now: Instant) {
        guard needed else {
            tellDeactivated()
            if let tone = pendingTone {
                pendingTone = nil
                actions.append(.playTone(tone))
            }
            deactivate(.finish, at: now)
            return
        }
        pendingTone = nil
        if !sessionTold {
            if transmission?.captureStarted == false {
                transmission?.captureStarted = true
                tonesUntil = now + configuration.toneLimit
                actions.append(.playTone(.microphoneOn))
            }
            guard tonesUntil == nil else { return }
            sessionTold = true
            tell(.didActivateAudioSession)
        }
        guard let begun = transmission, !begun.captureBegan else { return }
        transmission?.captureStarted = true
        transmission?.captureBegan = true
        transmission?.request = nil
        complete(begun.request)
    }

    private mutating func startCapture(at now: Instant) {
        guard let begun = transmission else { return }
        let beginsBy = now + configuration.activationLimit
        transmission?.captureStarted = true
        transmission?.captureBeginsBy = beginsBy
        capture = .running
        actions.append(.startCapture(begun.captureStart))
    }

    private mutating func activate(at now: Instant) {
        audioSession = .activating(until: now + configuration.activationLimit)
        actions.append(.activateAudioSession)
    }

    private mutating func deactivate(_ playOut: PlayOut, at now: Instant) {
        tonesUntil = nil
        audioSession = .deactivating(until: now + configuration.settleLimit)
        actions.append(.deactivateAudioSession(playOut))
    }

    private mutating func tellDeactivated() {
        if seededFault("a-session-is-not-told") { return }
        guard sessionTold else { return }
        sessionTold = false
        tell(.didDeactivateAudioSession)
    }

    /// Ends the session for the delegate at once, and closes the device without playing out.
    mutating func dropSession(at now: Instant) {
        cutTail()
        pendingTone = nil
        tellDeactivated()
        guard audioSession != .inactive else { return }
        deactivate(.drop, at: now)
    }

    /// Sounds a tone as soon as the device is open. It is mixed over received speech and also sounds while this device
    /// transmits, but never while something else, or a program with its own media, uses the audio.
    mutating func signal(_ tone: Tone) {
        guard !isSuspended, !isShutDown else { return }
        guard let transmission else {
            if channel?.media != .application || activeRemoteParticipant == nil { pendingTone = tone }
            return
        }
        if transmission.captureBegan, channel?.media == .daemon { actions.append(.playTone(tone)) }
    }

    // MARK: What the device reports

    mutating func sessionActivated() {
        guard case .activating = audioSession else { return }
        audioSession = .active
    }

    mutating func sessionDeactivated() {
        guard case .deactivating = audioSession else { return }
        audioSession = .inactive
        tellDeactivated()
    }

    mutating func sessionFailed(_ reason: String, at now: Instant) {
        switch audioSession {
        case .inactive: return
        case .deactivating: sessionDeactivated()
        case .activating, .active: failSession(reason, leaving: .inactive, at: now)
        }
    }

    mutating func activationTimedOut(at now: Instant) {
        actions.append(.deactivateAudioSession(.drop))
        failSession(
            "the sound device did not open within \(configuration.activationLimit)",
            leaving: .deactivating(until: now + configuration.settleLimit), at: now)
    }

    mutating func deactivationTimedOut() {
        actions.append(.deactivateAudioSession(.drop))
        sessionDeactivated()
    }

    private mutating func failSession(_ reason: String, leaving state: AudioSessionState, at now: Instant) {
        actions.append(.notice(.audioSessionFailed(reason: reason)))
        activationBlocked = true
        let hadTail = capture != .idle && transmission == nil
        capture = .idle
        endTransmission(.audioFailed(reason: reason), capture: .immediately, at: now)
        if hadTail { finishAudio(erased: false) }
        pendingTone = nil
        tonesUntil = nil
        tellDeactivated()
        audioSession = state
    }

    // MARK: Others who need the audio

    mutating func callBegan(_ call: CallHold, at now: Instant) {
        let wasActive = isCallActive
        if let index = calls.firstIndex(where: { $0.holder == call.holder }) {
            guard calls[index] != call else { return }
            calls[index] = call
        } else {
            guard calls.count < Self.callsMax else { return }
            calls.append(call)
        }
        actions.append(.notice(.callsChanged(calls)))
        if !wasActive { suspend(.callActive, reason: "a call is active: \(call.description)", at: now) }
    }

    mutating func interrupted(_ reason: String, at now: Instant) {
        guard !isInterrupted else { return }
        isInterrupted = true
        suspend(.interrupted(reason: reason), reason: reason, at: now)
    }

    private mutating func suspend(_ cause: TransmissionEndCause, reason: String, at now: Instant) {
        if seededFault("a-call-ends-nothing") { return }
        actions.append(.notice(.audioSessionInterrupted(reason: reason)))
        endTransmission(cause, capture: .immediately, at: now)
        dropSession(at: now)
    }

    mutating func callEnded(_ holder: String) {
        guard let index = calls.firstIndex(where: { $0.holder == holder }) else { return }
        if !seededFault("a-call-has-no-end") { calls.remove(at: index) }
        actions.append(.notice(.callsChanged(calls)))
        if calls.isEmpty { resumeUnlessSuspended() }
    }

    mutating func interruptionEnded() {
        guard isInterrupted, !seededFault("an-interruption-has-no-end") else { return }
        isInterrupted = false
        resumeUnlessSuspended()
    }

    private mutating func resumeUnlessSuspended() {
        guard !isSuspended else { return }
        activationBlocked = false
        actions.append(.notice(.audioSessionInterruptionEnded))
    }
}
