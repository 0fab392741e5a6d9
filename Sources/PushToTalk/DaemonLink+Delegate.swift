// org.pttd.Delegate1 as the app serves it: each method is one method of a delegate.
import DBus
import PTTBus
import PushToTalkCore

extension DaemonLink {
    func delegateExport() throws(DBusError) -> DBusExport {
        let interface = try PTTBus.declaration(of: PTTBus.delegateInterface)
        var methods: [String: DBusMethodHandler] = [:]
        for method in interface.methods {
            methods[method.name] = { [weak self] call in
                guard let self else { throw DBusErrorReply.failed("the channel manager is gone") }
                return try await self.serve(call)
            }
        }
        return try DBusExport(interface, methods: methods)
    }

    private func serve(_ call: DBusMethodCall) async throws -> [DBusValue] {
        // Anybody on a session bus could call.
        guard let daemon, call.sender == daemon else {
            throw DBusErrorReply.accessDenied("only the owner of \(PTTBus.name) may call this")
        }
        return try await answer(try DelegateCall(member: call.member, arguments: call.arguments)).values
    }

    private func answer(_ call: DelegateCall) async throws -> DelegateAnswer {
        if let callback = DelegateCallback(call) {
            try await called(callback, route: call.route)
            return .done
        }
        switch call {
        case .receivedEphemeralPushToken(let token):
            try await asked { _, manager, delegates in
                delegates.manager.channelManager(manager, receivedEphemeralPushToken: Data(token))
            }
        case .audioSessionChanged(let change):
            try await asked { _, manager, _ in manager.audioSession.changed(change) }
        case .incomingPush(let channel, let payload):
            let push = try IncomingPush(channelUUID: channel, json: payload)
            let result = try await asked { _, manager, delegates in
                delegates.manager.incomingPushResult(
                    channelManager: manager, channelUUID: channel, pushPayload: push.payload ?? [:])
            }
            await stopsTaken()
            return .pushResult(result)
        case .incomingServiceUpdatePush(let channel, let payload, let isHighPriority, let budget):
            try await serviceUpdate(
                try IncomingPush(channelUUID: channel, json: payload), isHighPriority: isHighPriority,
                remainingHighPriorityBudget: Int(budget))
        case .channelDescriptor(let channel):
            return .descriptor(
                try await asked { _, _, delegates in
                    delegates.restoration.channelDescriptor(restoredChannelUUID: channel)
                })
        default: throw DBusErrorReply.unknownMethod("no method \(call.member)")
        }
        return .done
    }
}

extension DelegateCallback {
    /// The callback that a call asks for; nil for what the order of callbacks has no say in.
    fileprivate init?(_ call: DelegateCall) {
        switch call {
        case .didJoinChannel(let uuid, let reason): self = .didJoinChannel(uuid, reason: reason)
        case .failedToJoinChannel(let uuid, let error): self = .failedToJoinChannel(uuid, error)
        case .didLeaveChannel(let uuid, let reason): self = .didLeaveChannel(uuid, reason: reason)
        case .failedToLeaveChannel(let uuid, let error): self = .failedToLeaveChannel(uuid, error)
        case .didBeginTransmitting(let uuid, let source): self = .didBeginTransmitting(uuid, source: source)
        case .failedToBeginTransmitting(let uuid, let error): self = .failedToBeginTransmitting(uuid, error)
        case .didEndTransmitting(let uuid, let source): self = .didEndTransmitting(uuid, source: source)
        case .failedToStopTransmitting(let uuid, let error): self = .failedToStopTransmitting(uuid, error)
        case .didActivateAudioSession: self = .didActivateAudioSession
        case .didDeactivateAudioSession: self = .didDeactivateAudioSession
        case .receivedEphemeralPushToken, .audioSessionChanged, .incomingPush, .incomingServiceUpdatePush,
            .channelDescriptor:
            return nil
        }
    }
}

extension DelegateCall {
    fileprivate var route: PTAudioSession.Route? {
        guard case .didActivateAudioSession(let session) = self else { return nil }
        return PTAudioSession.Route(session)
    }
}

extension PTAudioSession {
    fileprivate func changed(_ change: AudioSessionChange) {
        switch change {
        case .interruptionBegan(let reason): interrupted(.began(reason: reason))
        case .interruptionEnded(let reason): interrupted(.ended(reason: reason))
        case .routeChanged(let session): changed(to: Route(session))
        }
    }
}
