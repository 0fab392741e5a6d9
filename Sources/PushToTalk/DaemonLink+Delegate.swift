// org.pttd.Delegate1 as the app serves it: each method is one method of a delegate.
import DBus
import PTTBus
import PushToTalkCore
import Vocabulary

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
        switch call {
        case .callback(.receivedEphemeralPushToken(let token), _):
            try await asked { _, manager, delegates in
                delegates.manager.channelManager(manager, receivedEphemeralPushToken: Data(token.bytes))
            }
        case .callback(let callback, let session):
            try await called(callback, route: session.map { PTAudioSession.Route($0) })
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
        }
        return .done
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
