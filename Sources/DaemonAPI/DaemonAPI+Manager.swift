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
                "UnregisterApplication": action { await $0.endRegistration(of: $1.sender) },
                "JoinChannel": method { try await $0.joinChannel($1) },
                "LeaveChannel": action { api, call in
                    let uuid = try Arguments(call).uuid(0)
                    try await api.controls.leave(uuid, by: api.identity(of: call.sender))
                },
                "ChangeChannel": method { api, call in
                    let which = try Arguments(call).text(0, "which", bytes: 1...PTTBusLimits.nameBytes)
                    try api.countJoin(of: call.sender)
                    let uuid = try await api.controls.changeChannel(
                        ChannelChoice(which), by: api.identity(of: call.sender))
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

    /// Begins a method on the loop, so that calls take effect in the order they came; holds this API weakly. A request of a program takes
    /// effect before the loop turns, and so before the answer of its delegate that came after it.
    func method(_ body: @escaping Method) -> DBusMethodStarter {
        { [weak self] call in
            guard let self else { return Task { throw DBusErrorReply.failed("pttd is ending") } }
            return self.assumeIsolated { api in
                Task {
                    // What the rules refuse is answered by its D-Bus error name.
                    do {
                        return try await body(api, call)
                    } catch let error as any BusError {
                        throw PTTBus.reply(error)
                    }
                }
            }
        }
    }

    /// The same for a method that returns nothing.
    func action(
        _ body: @escaping @Sendable (isolated DaemonAPI, DBusMethodCall) async throws -> Void
    ) -> DBusMethodStarter {
        method { api, call in
            try await body(api, call)
            return []
        }
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
        let uuid = try await controls.join(request)
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
