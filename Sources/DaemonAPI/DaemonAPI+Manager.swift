// The methods of org.pttd.Manager1.
import DBus
import FoundationEssentials
import Logging
import PTTBus
import PushToTalkCore

extension DaemonAPI {
    func managerExport(_ properties: ManagerProperties) throws(DBusError) -> DBusExport {
        try DBusExport(
            try PTTBus.declaration(of: PTTBus.managerInterface), properties: properties.properties,
            starters: [
                "RegisterApplication": method { try await $0.registerApplication($1) },
                "UnregisterApplication": method {
                    await $0.endRegistration(of: $1.sender)
                    return []
                },
                "JoinChannel": method { try await $0.joinChannel($1) },
                "LeaveChannel": method { api, call in
                    let (uuid, caller) = (try Arguments(call).uuid(0), api.identity(of: call.sender))
                    try await api.perform { controls throws(PTChannelError) in
                        try await controls.leave(uuid, by: caller)
                    }
                    return []
                },
                "ChangeChannel": method { api, call in
                    let which = try Arguments(call).text(0, "which", bytes: 1...PTTBusLimits.nameBytes)
                    let caller = api.identity(of: call.sender)
                    try api.countJoin(of: call.sender)
                    let uuid = try await api.perform { controls throws(PTChannelError) in
                        try await controls.changeChannel(ChannelChoice(which), by: caller)
                    }
                    return [.objectPath(try DBusObjectPath(PTTBus.channelPath(uuid)))]
                },
                "Inhibit": method { try await $0.inhibit($1) },
                "ListInhibitors": method { api, _ in
                    [.array(Inhibitor.dbusType, api.locks.inhibitors.map(\.busValue))]
                },
            ])
    }

    /// What a method does, given this API.
    typealias Method = @Sendable (isolated DaemonAPI, DBusMethodCall) async throws -> [DBusValue]

    /// Begins a method on the loop, so that calls take effect in the order they came; holds this API weakly.
    func method(_ body: @escaping Method) -> DBusMethodStarter {
        { [weak self] call in
            guard let self else { return Task { throw DBusErrorReply.failed("pttd is ending") } }
            return self.assumeIsolated { api in Task { try await body(api, call) } }
        }
    }

    /// Does something that may be refused with a channel error, by its D-Bus name.
    ///
    /// It takes effect before this loop turns: a program's request counts before the answer of its delegate that came after it.
    func perform<T: Sendable>(
        _ body: nonisolated(nonsending) @Sendable (any DaemonControls) async throws(PTChannelError) -> T
    ) async throws -> T {
        let controls = try controls
        do throws(PTChannelError) { return try await body(controls) } catch { throw PTTBus.reply(error) }
    }

    private func joinChannel(_ call: DBusMethodCall) async throws -> [DBusValue] {
        let arguments = Arguments(call)
        let options = try arguments.joinOptions(2)
        let caller = identity(of: call.sender)
        let request = JoinRequest(
            channel: try arguments.optionalUUID(0),
            descriptor: PTChannelDescriptor(
                name: try arguments.text(1, "name", bytes: 0...PTTBusLimits.nameBytes), image: options.image),
            link: options.link, media: options.media, caller: caller)
        guard request.channel != nil || request.link != nil else {
            throw DBusErrorReply.invalidArguments("give a UUID, or an invitation as the option 'Link'")
        }
        guard request.media != .application || caller.application != nil else {
            throw DBusErrorReply.invalidArguments(
                "only a program with a channel manager has media 'application'; call RegisterApplication first")
        }
        // A program's own channel has nothing to do with the relay.
        if request.media == .pttd || request.link != nil || caller.application == nil {
            try countJoin(of: call.sender)
        }
        let uuid = try await perform { controls throws(PTChannelError) in try await controls.join(request) }
        return [.objectPath(try DBusObjectPath(PTTBus.channelPath(uuid)))]
    }

    private func inhibit(_ call: DBusMethodCall) async throws -> [DBusValue] {
        let arguments = Arguments(call)
        let what = try arguments.choice(0, "what", ["call"]) { $0 }
        let who = try arguments.text(1, "who", bytes: 1...PTTBusLimits.whoBytes)
        let why = try arguments.text(2, "why", bytes: 0...PTTBusLimits.whyBytes)
        let process = try await bus.processIdentifier(of: call.sender)
        let lock = try locks.take(
            Inhibitor(what: what, who: who, why: why, processID: process), for: call.sender
        ) { [weak self] number in
            self?.assumeIsolated { $0.released(number) }
        }
        logger.notice("call: lock taken", metadata: ["who": "\(who)", "why": "\(why)", "pid": "\(process)"])
        // Before the caller has it: its call is safe from the microphone when this returns.
        await tellInhibitors()
        return [.unixDescriptor(lock)]
    }

    private func released(_ number: UInt64) {
        locks.remove(number)
        logger.notice("call: lock released", metadata: ["left": "\(locks.inhibitors.count)"])
        Task { await self.tellInhibitors() }
    }

    private func tellInhibitors() async { await (try? controls)?.callsChanged(inhibitors: locks.inhibitors) }
}
