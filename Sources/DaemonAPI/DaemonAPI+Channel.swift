// The methods of org.pttd.Channel1.
import DBus
import FoundationEssentials
import PTTBus
import PushToTalkCore

extension DaemonAPI {
    func channelExport(_ properties: ChannelProperties) throws(DBusError) -> DBusExport {
        guard let uuid = UUID(uuidString: properties.uuid) else {
            throw .invalid("'\(properties.uuid)' is not the UUID of a channel")
        }
        return try DBusExport(
            try PTTBus.declaration(of: PTTBus.channelInterface), properties: properties.properties,
            starters: talking(uuid).merging(settings(uuid)) { first, _ in first })
    }

    /// Everybody's: talking, hearing it again, and leaving.
    private func talking(_ uuid: UUID) -> [String: DBusMethodStarter] {
        [
            "BeginTransmitting": action { try await $0.begin(uuid, $1.sender) },
            "StopTransmitting": action { try await $0.end($1.sender) },
            "ReplayLast": action { api, call in
                try await api.controls.replayLast(uuid, by: api.identity(of: call.sender))
            },
            "ListMessages": method { api, call in
                [KeptMessage.list(try await api.controls.keptMessages(uuid, by: api.identity(of: call.sender)))]
            },
            "ReplayMessage": action { api, call in
                let id = try Arguments(call).text(0, "id", bytes: 1...KeptMessage.idBytes)
                try await api.controls.replayKept(id, of: uuid, by: api.identity(of: call.sender))
            },
            "Leave": action { api, call in
                try await api.controls.leave(uuid, by: api.identity(of: call.sender))
            },
        ]
    }

    /// The owner's: everything else.
    private func settings(_ uuid: UUID) -> [String: DBusMethodStarter] {
        [
            "RequestBeginTransmitting": owners { api, _, caller in try await api.requestBegin(uuid, caller) },
            "RequestStopTransmitting": owners { api, _, caller in try await api.requestStop(uuid, caller) },
            "SetDescriptor": owners { api, arguments, caller in
                let descriptor = PTChannelDescriptor(
                    name: try arguments.text(0, "name", bytes: 0...PTTBusLimits.nameBytes),
                    image: try arguments.image(1))
                try await api.controls.setDescriptor(descriptor, of: uuid, by: caller)
            },
            "SetServiceStatus": owners { api, arguments, caller in
                let status = try arguments.choice(0, "status", PTServiceStatus.allCases) { $0.busName }
                try await api.controls.setServiceStatus(status, of: uuid, by: caller)
            },
            "SetTransmissionMode": owners { api, arguments, caller in
                let mode = try arguments.choice(0, "mode", PTTransmissionMode.allCases) { $0.busName }
                try await api.controls.setTransmissionMode(mode, of: uuid, by: caller)
            },
            "SetActiveRemoteParticipant": owners { api, arguments, caller in
                let participant = PTParticipant(
                    name: try arguments.text(0, "name", bytes: 1...PTTBusLimits.nameBytes),
                    image: try arguments.image(1))
                try await api.controls.setActiveRemoteParticipant(participant, of: uuid, by: caller)
            },
            "ClearActiveRemoteParticipant": owners { api, _, caller in
                try await api.controls.setActiveRemoteParticipant(nil, of: uuid, by: caller)
            },
            "SetAccessoryButtonEventsEnabled": owners { api, arguments, caller in
                let enabled: Bool = try arguments.value(0)
                try await api.controls.setAccessoryButtonEventsEnabled(enabled, of: uuid, by: caller)
            },
            "ReportPushToTalkMessage": owners { api, arguments, caller in
                let payload = try arguments.payload(0)
                try await api.controls.reportPushToTalkMessage(payload, to: uuid, by: caller)
            },
        ]
    }

    /// A handler for the program that joined; for everybody when no program did.
    private func owners(
        _ body: @escaping @Sendable (isolated DaemonAPI, Arguments, BusCaller) async throws -> Void
    ) -> DBusMethodStarter {
        action { api, call in try await body(api, Arguments(call), try api.owner(call.sender)) }
    }

    private func owner(_ sender: String) throws(DBusErrorReply) -> BusCaller {
        let caller = identity(of: sender)
        let owner = channel?.properties.owner ?? ""
        guard owner.isEmpty || owner == sender || owner == caller.application?.owner else {
            throw PTTBus.foreignChannel(of: owner)
        }
        return caller
    }

    // MARK: Talking

    private func begin(_ uuid: UUID, _ caller: String) async throws {
        try await waitForTurn(.talkKey, of: caller)
        let controls = try controls
        // Watched before the press, so that a caller who is gone by now is noticed.
        try await hold(.talkKey, for: caller)
        do {
            try await controls.pressTalkKey(uuid, caller: caller)
        } catch {
            // Answered with an error: this press is over, and the next one counts.
            _ = await controls.releaseTalkKey(caller: caller)
            await drop(.talkKey, for: caller)
            throw error
        }
        if !isHolding(.talkKey, caller) { _ = await controls.releaseTalkKey(caller: caller) }
    }

    private func end(_ caller: String) async throws {
        let wasWaiting = endWaiting(.talkKey, of: caller)
        await settled(caller)
        await drop(.talkKey, for: caller)
        let wasHeld = try await controls.releaseTalkKey(caller: caller)
        guard wasHeld || wasWaiting else {
            throw PTChannelError(.transmissionNotFound, explanation: "this caller does not hold the talk key")
        }
    }

    private func requestBegin(_ uuid: UUID, _ caller: BusCaller) async throws {
        try await waitForTurn(.transmission, of: caller.busName)
        let heldBefore = isHolding(.transmission, caller.busName)
        try await hold(.transmission, for: caller.busName)
        do {
            try await controls.requestBeginTransmitting(uuid, by: caller)
        } catch {
            // An earlier one of this caller may still go on.
            if !heldBefore { await drop(.transmission, for: caller.busName) }
            throw error
        }
        if !isHolding(.transmission, caller.busName) { await (try? controls)?.requestingCallerLeft(caller) }
    }

    private func requestStop(_ uuid: UUID, _ caller: BusCaller) async throws {
        let wasWaiting = endWaiting(.transmission, of: caller.busName)
        await settled(caller.busName)
        do {
            try await controls.requestStopTransmitting(uuid, by: caller)
        } catch {
            guard wasWaiting else { throw error }
        }
        await drop(.transmission, for: caller.busName)
    }
}
