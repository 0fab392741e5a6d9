// Which requests are allowed, and when: joining, leaving and the settings of the active channel.

import FoundationEssentials
import MonotonicTime
import Vocabulary

extension ChannelManagerStateMachine {
    mutating func handle(_ request: Request, _ identifier: RequestIdentifier?, at now: Instant) {
        switch request {
        case .join(let uuid, let descriptor, let reason, let mode, let status, let options):
            let channel = Channel(
                uuid: uuid, descriptor: descriptor, transmissionMode: mode, serviceStatus: status,
                accessoryButtonEventsEnabled: options.accessoryButtonEventsEnabled, media: options.media,
                talkTimeLimit: options.talkTimeLimit)
            join(channel, reason, options, identifier, at: now)
        case .leave(let uuid, let reason):
            let error = leave(uuid, reason, at: now)
            if let error { tell(.failedToLeaveChannel(uuid, error)) }
            complete(identifier, error)
        case .beginTransmitting(let uuid, let source, let floor):
            beginTransmitting(uuid, source, floor, identifier, at: now)
        case .stopTransmitting(let uuid, let source):
            stopTransmitting(uuid, source, identifier, at: now)
        case .setChannelDescriptor(let descriptor, let uuid):
            set(uuid, identifier) { machine, channel in
                guard channel.descriptor != descriptor else { return }
                machine.channel?.descriptor = descriptor
                machine.actions.append(.notice(.channelDescriptorChanged(descriptor)))
            }
        case .setTransmissionMode(let mode, let uuid):
            set(uuid, identifier) { machine, channel in
                guard channel.transmissionMode != mode else { return }
                machine.channel?.transmissionMode = mode
                machine.actions.append(.notice(.transmissionModeChanged(mode)))
                machine.endTransmissionIfModeForbidsIt(at: now)
            }
        case .setServiceStatus(let status, let uuid):
            set(uuid, identifier) { machine, channel in
                if channel.serviceStatus != status {
                    machine.channel?.serviceStatus = status
                    machine.actions.append(.notice(.serviceStatusChanged(status)))
                }
                if channel.media == .daemon, let tone = machine.link.changed(to: status, at: now) {
                    machine.signal(tone)
                }
                machine.isServiceAwaited = false
                guard status != .ready else { return }
                machine.endTransmission(.serviceStatus(status), capture: .immediately, at: now)
            }
        case .setAccessoryButtonEventsEnabled(let enabled, let uuid):
            set(uuid, identifier) { machine, channel in
                guard channel.accessoryButtonEventsEnabled != enabled else { return }
                machine.channel?.accessoryButtonEventsEnabled = enabled
                machine.actions.append(.notice(.accessoryButtonEventsEnabledChanged(enabled)))
            }
        case .setActiveRemoteParticipant(let participant, let uuid):
            complete(identifier, setActiveRemoteParticipant(participant, uuid))
        }
    }

    private mutating func join(
        _ channel: Channel, _ reason: PTChannelJoinReason, _ options: JoinOptions, _ identifier: RequestIdentifier?,
        at now: Instant
    ) {
        guard !isShutDown, self.channel == nil else {
            let error = isShutDown ? stoppingError : PTChannelError(.channelLimitReached)
            tell(.failedToJoinChannel(channel.uuid, error))
            complete(identifier, error)
            return
        }
        self.channel = channel
        link = LinkSignal()
        if channel.media == .daemon { _ = link.changed(to: channel.serviceStatus, at: now) }
        tell(.didJoinChannel(channel.uuid, reason: reason))
        if options.program != .none {
            let token = options.restoredToken ?? PushToken.random(using: &generator)
            tell(.receivedEphemeralPushToken(token))
            actions.append(.notice(.pushTokenChanged(token)))
            handlePushes(.joined(token, options.program, canStartProgram: options.canStartProgram), at: now)
        }
        complete(identifier)
    }

    mutating func leave(_ uuid: UUID, _ reason: PTChannelLeaveReason, at now: Instant) -> PTChannelError? {
        if let error = errorUnlessActive(uuid) { return error }
        let source: PTChannelTransmitRequestSource =
            switch reason {
            case .userRequest: .userRequest
            case .developerRequest: .developerRequest
            case .unknown, .systemPolicy: .unknown
            }
        endTransmission(.leftChannel, by: source, capture: .immediately, at: now)
        clearParticipant()
        dropSession(at: now)
        if pushes.token != nil { actions.append(.notice(.pushTokenChanged(nil))) }
        handlePushes(.left, at: now)
        channel = nil
        link = LinkSignal()
        tell(.didLeaveChannel(uuid, reason: reason))
        return nil
    }

    private mutating func set(
        _ uuid: UUID, _ identifier: RequestIdentifier?, change: (inout Self, Channel) -> Void
    ) {
        if let error = errorUnlessActive(uuid) {
            complete(identifier, error)
            return
        }
        if let channel { change(&self, channel) }
        complete(identifier)
    }

    mutating func setActiveRemoteParticipant(_ participant: PTParticipant?, _ uuid: UUID) -> PTChannelError? {
        if let error = errorUnlessActive(uuid) { return error }
        if participant != nil, channel?.transmissionMode != .fullDuplex {
            guard transmission == nil else {
                return PTChannelError(
                    .transmissionInProgress, explanation: "this device is transmitting; stop that first")
            }
            // "Stop, then receive" in one go: what is left of the tail would record what is played.
            cutTail()
        }
        if activeRemoteParticipant != participant {
            // Each new speaker is another attempt at a device that failed before.
            activationBlocked = false
            activeRemoteParticipant = participant
            actions.append(.notice(.activeRemoteParticipantChanged(participant)))
        }
        return nil
    }

    mutating func clearParticipant() {
        guard activeRemoteParticipant != nil else { return }
        activeRemoteParticipant = nil
        actions.append(.notice(.activeRemoteParticipantChanged(nil)))
    }

    func errorUnlessActive(_ uuid: UUID) -> PTChannelError? {
        if isShutDown { return stoppingError }
        return channel?.uuid == uuid ? nil : PTChannelError(.channelNotFound)
    }

    private var stoppingError: PTChannelError {
        PTChannelError(.unknown, explanation: "the push-to-talk service is stopping; try again when it runs")
    }
}
