// Who may begin transmitting, and what ends a transmission.

import FoundationEssentials
import MonotonicTime
import Vocabulary

extension ChannelManagerStateMachine {
    // MARK: Begin and stop

    mutating func beginTransmitting(
        _ uuid: UUID, _ source: PTChannelTransmitRequestSource, _ floor: FloorOutlook, _ identifier: RequestIdentifier?,
        at now: Instant
    ) {
        if source == .handsfreeButton, channel?.uuid == uuid, channel?.accessoryButtonEventsEnabled == false {
            // Switched off means that the button does nothing: no callback, no tone.
            complete(
                identifier,
                PTChannelError(.transmissionNotAllowed, explanation: "accessory buttons are switched off here"))
            return
        }
        if let refusal = refusalToBegin(uuid, floor) {
            if refusal.isHeard { pendingTone = .denied }
            if channel?.uuid == uuid, isProgramMissing { wantProgram(at: now) }
            tell(.failedToBeginTransmitting(uuid, refusal.error))
            complete(identifier, refusal.error)
            return
        }
        cutTail()
        pendingTone = nil
        activationBlocked = false
        isServiceAwaited = channel?.serviceStatus != .ready
        if floor == .queueable { return wait(source, identifier, position: nil, at: now) }
        // Who speaks no more is only heard still: that gives way to who speaks now.
        if channel?.transmissionMode == .halfDuplex { clearParticipant() }
        begin(source, identifier, .atOnce, at: now)
    }

    /// The begin is allowed, and nobody else is heard but in full duplex.
    mutating func begin(
        _ source: PTChannelTransmitRequestSource, _ identifier: RequestIdentifier?, _ captureStart: CaptureStart,
        at now: Instant
    ) {
        guard let uuid = channel?.uuid else { return }
        if sessionTold, activeRemoteParticipant == nil {
            // Left over from the transmission or reception before: every transmission gets its own activation,
            // or a program that waits for it, as Apple tells it to, would wait for ever.
            sessionTold = false
            tell(.didDeactivateAudioSession)
        }
        let talkTimeLimit = channel?.talkTimeLimit ?? configuration.talkTimeLimit
        let endsAt = seededFault("no-talk-time-limit") ? nil : talkTimeLimit.map { now + $0 }
        var warnsAt: Instant?
        if let limit = talkTimeLimit, configuration.talkTimeWarning < limit {
            warnsAt = now + (limit - configuration.talkTimeWarning)
        }
        transmission = Transmission(
            source: source, begunAt: now, captureStart: captureStart, endsAt: endsAt, warnsAt: warnsAt,
            request: identifier)
        audioUnfinished = true
        tell(.didBeginTransmitting(uuid, source: source))
    }

    mutating func stopTransmitting(
        _ uuid: UUID, _ source: PTChannelTransmitRequestSource, _ identifier: RequestIdentifier?, at now: Instant
    ) {
        let isUnderWay = transmission != nil || waiting != nil
        let error = errorUnlessActive(uuid) ?? (isUnderWay ? nil : PTChannelError(.transmissionNotFound))
        if let error {
            tell(.failedToStopTransmitting(uuid, error))
            complete(identifier, error)
            return
        }
        endTransmission(.stopped(source), by: source, capture: .afterTail, at: now)
        complete(identifier)
    }

    private func refusalToBegin(_ uuid: UUID, _ floor: FloorOutlook) -> (error: PTChannelError, isHeard: Bool)? {
        if let error = errorUnlessActive(uuid) { return (error, false) }
        guard let channel else { return nil }
        if let call = calls.first {
            let explanation = "a call is active (\(call.description)); try again when it is over"
            return (PTChannelError(.callActive, explanation: explanation), false)
        }
        if transmission != nil {
            return (PTChannelError(.transmissionInProgress, explanation: "this device is already transmitting"), false)
        }
        if waiting != nil {
            let explanation = "this device is already waiting for the floor"
            return (PTChannelError(.transmissionInProgress, explanation: explanation), false)
        }
        if isInterrupted {
            let explanation = "something else has the audio; try again when it is free"
            return (PTChannelError(.transmissionNotAllowed, explanation: explanation), false)
        }
        if channel.transmissionMode == .listenOnly {
            let explanation = "the channel is for listening only"
            return (PTChannelError(.transmissionNotAllowed, explanation: explanation), true)
        }
        if floor == .listenOnly {
            let explanation = "this device may only listen on the channel; ask its operator for an invitation to talk"
            return (PTChannelError(.transmissionNotAllowed, explanation: explanation), true)
        }
        if isProgramMissing {
            let explanation =
                pushes.canStartProgram
                ? "the program that talks on this channel is being started; try again when it runs"
                : "the program that talks on this channel is not running; start it"
            return (PTChannelError(.transmissionNotAllowed, explanation: explanation), true)
        }
        if channel.serviceStatus != .ready, floor != .reconnecting || channel.media != .daemon {
            let explanation = "the channel's service is \(channel.serviceStatus); try again when it is ready"
            return (PTChannelError(.transmissionNotAllowed, explanation: explanation), true)
        }
        if floor == .unknown, channel.transmissionMode == .halfDuplex, let activeRemoteParticipant {
            let explanation = "\(activeRemoteParticipant.name) is speaking; try again afterwards"
            return (PTChannelError(.transmissionInProgress, explanation: explanation), true)
        }
        return nil
    }

    /// Nobody would record: the media are those of a program that does not run.
    var isProgramMissing: Bool { channel?.media == .application && pushes.program != .present }

    // MARK: End

    /// Ends the transmission, or the waiting for one, if there is any: every end goes through here.
    mutating func endTransmission(
        _ cause: TransmissionEndCause, by source: PTChannelTransmitRequestSource = .unknown, capture stop: CaptureStop,
        at now: Instant
    ) {
        guard let ended = transmission, let uuid = channel?.uuid else { return endWaiting(cause) }
        actions.append(.notice(.transmissionEnding(cause)))
        transmission = nil
        pendingTone = tone(after: cause, captureBegan: ended.captureBegan)
        let wasCapturing = capture == .running
        if wasCapturing {
            capture = stop == .afterTail ? .tail(until: now + configuration.settleLimit) : .idle
            actions.append(.stopCapture(stop))
        }
        tell(.didEndTransmitting(uuid, source: source))
        if capture == .idle { finishAudio(erased: stop == .discarding) }
        complete(ended.request, cause.error)
    }

    mutating func endTransmissionIfModeForbidsIt(at now: Instant) {
        guard let mode = channel?.transmissionMode else { return }
        let isBothWays = transmission != nil && activeRemoteParticipant != nil
        let forbidden = mode == .listenOnly || (mode == .halfDuplex && isBothWays)
        if forbidden { endTransmission(.transmissionMode(mode), capture: .immediately, at: now) }
    }

    /// The relay does not carry the transmission, or, when it has ended already, did not carry it.
    mutating func refused(_ error: PTChannelError, _ cause: TransmissionEndCause, at now: Instant) {
        guard transmission == nil, waiting == nil else {
            endTransmission(cause, capture: .discarding, at: now)
            return
        }
        guard channel != nil, !isShutDown else { return }
        if case .tail = capture {
            capture = .idle
            actions.append(.stopCapture(.discarding))
            finishAudio(erased: true)
        }
        // The button is up again: without a tone nobody would know that nothing was heard.
        actions.append(.notice(.lastTransmissionNotCarried(error)))
        if !isSuspended { pendingTone = .denied }
    }

    mutating func warnOfTalkTimeLimit(at now: Instant) {
        guard let endsAt = transmission?.endsAt else { return }
        transmission?.warnsAt = nil
        guard now < endsAt else { return }
        actions.append(.notice(.talkTimeWarning(remaining: endsAt - now)))
        // A program's devices are its own while it talks.
        if audioSession == .active, channel?.media == .daemon { actions.append(.playTone(.talkTimeWarning)) }
    }

    mutating func tailEnded() {
        if seededFault("the-end-of-a-tail-is-not-noticed") { return }
        guard case .tail = capture else { return }
        capture = .idle
        finishAudio(erased: false)
    }

    /// Stops recording now if only a tail is left of the transmission.
    mutating func cutTail() {
        guard case .tail = capture else { return }
        capture = .idle
        actions.append(.stopCapture(.immediately))
        finishAudio(erased: false)
    }

    /// The begin is answered, and the tone sounds, once the microphone really records.
    mutating func captureBegan() {
        guard capture == .running, let transmission, !transmission.captureBegan else { return }
        self.transmission?.captureBegan = true
        self.transmission?.captureBeginsBy = nil
        self.transmission?.request = nil
        // Who waited has heard it already, with the begin of the recording.
        if transmission.captureStart == .atOnce { actions.append(.playTone(.microphoneOn)) }
        complete(transmission.request)
    }

    mutating func captureFailed(_ reason: String, at now: Instant) {
        switch capture {
        case .idle: break
        case .running:
            // The failure may be one of a transmission before: it is made sure that nothing records. Stopped here and
            // not by `endTransmission`, for what came before the failure is not void.
            capture = .idle
            actions.append(.stopCapture(.discarding))
            endTransmission(.audioFailed(reason: reason), capture: .immediately, at: now)
        case .tail: tailEnded()
        }
    }

    mutating func finishAudio(erased: Bool) {
        guard audioUnfinished else { return }
        audioUnfinished = false
        actions.append(.notice(.transmissionAudioFinished(erased: erased)))
    }

    func tone(after cause: TransmissionEndCause, captureBegan: Bool) -> Tone? {
        switch cause {
        case .stopped: captureBegan ? .microphoneOff : nil
        case .talkTimeLimit, .refused, .revoked, .serviceStatus, .transmissionMode, .programLeft: .denied
        case .audioFailed: .deviceFailed
        case .queued, .leftChannel, .callActive, .interrupted, .shutdown: nil
        }
    }
}
