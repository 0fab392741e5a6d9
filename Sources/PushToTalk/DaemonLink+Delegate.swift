// org.pttd.Delegate1 as the app serves it: each method is one method of a delegate.
import DBus
import PTTBus
import PushToTalkCore

extension DaemonLink {
    func delegateExport() throws(DBusError) -> DBusExport {
        let name = PTTBus.delegateInterface
        guard let interface = try DBusIntrospection(xml: PTTBus.xml(of: name)).interface(name) else {
            throw .invalid("the XML of \(name) does not declare it")
        }
        return try DBusExport(
            interface,
            methods: channelMethods().merging(transmissionMethods()) { first, _ in first }.merging(otherMethods()) {
                first, _ in first
            })
    }

    /// A method that answers when its handler has returned; only pttd gets that far.
    private func method(
        _ handler: @escaping @Sendable (isolated DaemonLink, [DBusValue]) async throws -> [DBusValue]
    ) -> DBusMethodHandler {
        { [weak self] call in
            guard let self else { throw DBusErrorReply.failed("the channel manager is gone") }
            return try await self.serve(call, handler)
        }
    }

    private func serve(
        _ call: DBusMethodCall,
        _ handler: @Sendable (isolated DaemonLink, [DBusValue]) async throws -> [DBusValue]
    ) async throws -> [DBusValue] {
        try check(call.sender)
        return try await handler(self, call.arguments)
    }

    private func callback(
        _ make: @escaping @Sendable ([DBusValue]) throws -> DelegateCallback
    ) -> DBusMethodHandler {
        method { link, arguments in
            try await link.called(try make(arguments))
            return []
        }
    }

    private func channelMethods() -> [String: DBusMethodHandler] {
        [
            "DidJoinChannel": callback { .didJoinChannel(try uuid($0), reason: try code($0, 1)) },
            "FailedToJoinChannel": callback { .failedToJoinChannel(try uuid($0), try error($0)) },
            "DidLeaveChannel": callback { .didLeaveChannel(try uuid($0), reason: try code($0, 1)) },
            "FailedToLeaveChannel": callback { .failedToLeaveChannel(try uuid($0), try error($0)) },
        ]
    }

    private func transmissionMethods() -> [String: DBusMethodHandler] {
        [
            "DidBeginTransmitting": callback { .didBeginTransmitting(try uuid($0), source: try code($0, 1)) },
            "FailedToBeginTransmitting": callback { .failedToBeginTransmitting(try uuid($0), try error($0)) },
            "DidEndTransmitting": callback { .didEndTransmitting(try uuid($0), source: try code($0, 1)) },
            "FailedToStopTransmitting": callback { .failedToStopTransmitting(try uuid($0), try error($0)) },
            "DidActivateAudioSession": method { link, arguments in
                try await link.called(.didActivateAudioSession, route: try link.route(arguments, 0))
                return []
            },
            "DidDeactivateAudioSession": callback { _ in .didDeactivateAudioSession },
            "AudioSessionChanged": method { link, arguments in
                try await link.audioSessionChanged(arguments)
                return []
            },
        ]
    }

    private func otherMethods() -> [String: DBusMethodHandler] {
        [
            "ReceivedEphemeralPushToken": method { link, arguments in
                let token = Data(try arguments.argument(0, as: [UInt8].self))
                try await link.asked { _, manager, delegates in
                    delegates.manager.channelManager(manager, receivedEphemeralPushToken: token)
                }
                return []
            },
            "IncomingPush": method { link, arguments in
                let push = try IncomingPush(channelUUID: try uuid(arguments), json: try arguments.argument(1))
                let result = try await link.asked { _, manager, delegates in
                    delegates.manager.incomingPushResult(
                        channelManager: manager, channelUUID: push.channelUUID, pushPayload: push.payload ?? [:])
                }
                return [result.busValue]
            },
            "IncomingServiceUpdatePush": method { link, arguments in
                try await link.serviceUpdate(
                    try IncomingPush(channelUUID: try uuid(arguments), json: try arguments.argument(1)),
                    isHighPriority: try arguments.argument(2),
                    remainingHighPriorityBudget: Int(try arguments.argument(3, as: Int32.self)))
                return []
            },
            "ChannelDescriptor": method { link, arguments in
                let channel = try uuid(arguments)
                let descriptor = try await link.asked { _, _, delegates in
                    delegates.restoration.channelDescriptor(restoredChannelUUID: channel)
                }
                return [.string(descriptor.name), .properties(imageOptions(descriptor.image))]
            },
        ]
    }

    private func route(_ arguments: [DBusValue], _ index: Int) throws -> PTAudioSession.Route? {
        guard arguments.indices.contains(index), let session = arguments[index].propertiesValue, !session.isEmpty else {
            return nil
        }
        return PTAudioSession.Route(session, current: PTAudioSession.defaultRoute)
    }

    private func audioSessionChanged(_ arguments: [DBusValue]) async throws {
        let event: String = try arguments.argument(0)
        let details = arguments[1].propertiesValue ?? [:]
        let reason = details["Reason"]?.stringValue ?? ""
        switch event {
        case "interruptionBegan":
            try await asked { _, manager, _ in manager.audioSession.interrupted(.began(reason: reason)) }
        case "interruptionEnded":
            try await asked { _, manager, _ in manager.audioSession.interrupted(.ended(reason: reason)) }
        case "routeChanged":
            try await asked { _, manager, _ in
                manager.audioSession.changed(
                    to: PTAudioSession.Route(details, current: manager.audioSession.currentRoute))
            }
        default: throw DBusErrorReply.invalidArguments("no event \(event.prefix(80)) of audio sessions is known")
        }
    }
}

private func uuid(_ arguments: [DBusValue]) throws -> UUID {
    let text: String = try arguments.argument(0)
    guard let uuid = UUID(uuidString: text) else {
        throw DBusErrorReply.invalidArguments("'\(text.prefix(80))' is not a UUID")
    }
    return uuid
}

private func code<Value: RawRepresentable<Int>>(_ arguments: [DBusValue], _ index: Int) throws -> Value {
    let number: Int32 = try arguments.argument(index)
    guard let value = Value(rawValue: Int(number)) else {
        throw DBusErrorReply.invalidArguments("\(number) is no \(Value.self)")
    }
    return value
}

private func error(_ arguments: [DBusValue]) throws -> PTChannelError {
    PTChannelError(try code(arguments, 1), explanation: try arguments.argument(2))
}
