// Whom the operator means, what a link is for, and that commands do not come between each other: against a relay that runs.
import ArgumentParser
import Cryptography
import Glibc
import Reactor
import RelayClient
import RelayProtocol
import RelayServer
import RelayStore
import Synchronization
import Testing

@testable import pttrelay

@Suite struct RevocationTests {
    private func start() async throws -> RunningRelay.Parts {
        try await RunningRelay.start(try StateFolder(), clock: { 1_000 })
    }

    private func failure(_ answer: AdministrationResponse) -> String {
        if case .failed(let why) = answer { why } else { "it worked: \(answer)" }
    }

    // MARK: Names

    @Test func `a member is listed and revoked by the name that it has now`() async throws {
        let relay = try await start()
        let link = try await relay.invite(nil)
        let key = try Identity(generating: "ada")
        do {
            let ada = try await Device("Ada", link, identity: key)
            try await ada.isReady()
        }
        let eve = try await Device("Eve", link, identity: key)
        try await eve.isReady()
        let bob = try await Device("Bob", link)
        try await bob.isReady()
        let lines = try await relay.members()
        let line = try #require(lines.first { $0.name == "Ada" })
        #expect(line.nameNow == "Eve" && line.isConnected == true && line.fullName == "Eve, enrolled as Ada")
        #expect(MembersCommand.row(line)[1...3] == ["Ada", "Eve", "on"])
        #expect(lines.first { $0.name == "Bob" }.map { MembersCommand.row($0)[1...3] } == ["Bob", "-", "on"])

        let answer = try await relay.ask(.revoke(channel: "Team", member: "Eve", keepsInvitation: true))
        guard case .removed(let removed, let removal) = answer else { return #expect(Bool(false), "\(answer)") }
        #expect(removed.id == eve.id.description)
        #expect(
            RevokeCommand.sentences(removed, removal, channel: "Team").first
                == "Eve, enrolled as Ada (\(eve.id)) is removed")
        #expect(try await eve.refusal().contains("removed"))
        // Nobody is connected by that name any more.
        #expect(
            failure(try await relay.ask(.revoke(channel: "Team", member: "Eve", keepsInvitation: true)))
                .contains("no member 'Eve'"))
        await relay.stop()
    }

    @Test func `a name that two have is told with their identifiers, and removes nobody`() async throws {
        let relay = try await start()
        let link = try await relay.invite(nil)
        let ada = try await Device("Ada", link)
        try await ada.isReady()
        let key = try Identity(generating: "bob")
        do {
            let bob = try await Device("Bob", link, identity: key)
            try await bob.isReady()
        }
        let other = try await Device("Ada", link, identity: key)
        try await other.isReady()
        for request in [
            AdministrationRequest.revoke(channel: "Team", member: "Ada", keepsInvitation: true),
            .readmit(channel: "Team", member: "Ada", MemberChange(priority: 9)),
        ] {
            let why = failure(try await relay.ask(request))
            #expect(why.contains(ada.id.description) && why.contains("Bob, now Ada (\(other.id))"), "\(why)")
        }
        #expect(try await relay.members().allSatisfy { $0.revokedAt == nil && $0.priority == 0 })
        await relay.stop()
    }

    // MARK: Invitations

    @Test func `an invitation is withdrawn with all its members, who are out at once, and nobody else`()
        async throws
    {
        let relay = try await start()
        let link = try await relay.invite(.init(priority: 0, isListenOnly: false))
        let standing = try await relay.invite(nil)
        let devices = [try await Device("Ada", link), try await Device("Bob", link)]
        let cleo = try await Device("Cleo", standing)
        for device in devices + [cleo] { try await device.isReady() }
        let number = try #require(try await relay.members().first { $0.name == "Ada" }?.invitation)
        let begun = ContinuousClock.now
        let answer = try await relay.ask(.revokeInvited(channel: "Team", invitation: number))
        for device in devices { #expect(try await device.refusal().contains("removed")) }
        // Less than their connections or bursts would last without it, and more than a busy machine takes.
        #expect(ContinuousClock.now - begun < .seconds(4))
        guard case .removedInvited(2, let removal) = answer else { return #expect(Bool(false), "\(answer)") }
        #expect(
            RevokeCommand.sentences(number, 2, removal, channel: "Team") == [
                "invitation \(number) is withdrawn, and its 2 members are removed"
            ])
        #expect(await relay.server.connectedMembers(of: link.channel)?.keys.map(\.self) == [cleo.id])
        #expect(try await Device("Dan", link).refusal().contains("withdrawn"))
        guard case .removedInvited(0, _) = try await relay.ask(.revokeInvited(channel: "Team", invitation: number))
        else { return #expect(Bool(false)) }
        #expect(failure(try await relay.ask(.revokeInvited(channel: "Team", invitation: 99))).contains("invitation 99"))
        await relay.stop()
    }

    @Test(arguments: [
        ["Team", "--delete-members"], ["Team", "Ada", "--delete-members"],
        ["Team", "--invitation", "3", "--keep-invitation"], ["Team"], ["Team", "Ada", "--invitation", "3"],
    ])
    func `what makes no sense together is refused before anything is asked`(arguments: [String]) {
        #expect(throws: (any Error).self) { try RevokeCommand.parse(arguments) }
    }

    @Test func `a link that another one is to be like has to be this relay's, for this channel`() async throws {
        let relay = try await start()
        for name in ["Crew", "Boat"] {
            guard case .invitation = try await relay.ask(.invite(channel: .named(name), terms: nil, key: .first)) else {
                return #expect(Bool(false), "\(name)")
            }
        }
        func channel(_ name: String) throws -> String {
            try relay.records.channel(named: name).id.description
        }
        func like(_ name: String, _ channel: String, _ pin: String) async throws -> AdministrationResponse {
            let key = AdministrationRequest.MediaKeyOrigin.earlierLink(channel: channel, pin: pin)
            return try await relay.ask(.invite(channel: .named(name), terms: nil, key: key))
        }
        let pin = try await relay.invite(nil).pin.description
        let other = try Identity(generating: "other").pin.description
        let crew = try channel("Crew")
        #expect(failure(try await like("Boat", crew, pin)).contains("is for 'Crew', not for 'Boat'"))
        #expect(
            failure(try await like("Crew", ChannelID().description, pin)).contains("a channel that the relay does not"))
        #expect(failure(try await like("Crew", crew, other)).contains("of another relay"))
        #expect(
            failure(try await like("Ship", crew, pin)).contains("no channel 'Ship'"),
            "none is made for a key that it cannot have")
        guard case .invitations(let made, _) = try await relay.ask(.invitations(channel: "Crew")) else {
            return #expect(Bool(false))
        }
        #expect(made.count == 1, "no invitation is left that nobody has a link of")
        guard case .invitation = try await like("Crew", crew, pin) else { return #expect(Bool(false)) }
        await relay.stop()
    }

    // MARK: Starting, and turns

    @Test func `who comes before anybody has been told that the relay runs is enrolled`() async throws {
        let folder = try StateFolder()
        let token = InvitationToken()
        let identity: Identity
        do {
            let state = try RelayState.open(folder.path, logger: quiet("state"))
            identity = state.identity
            try state.store.addChannel(DisplayName("Team")!, token: token, now: 1)
        }
        let first = Mutex<Device?>(nil)
        let relay = try await RunningRelay.start(folder, clock: { 1_000 }) { channel, port in
            let link = try InvitationLink(
                host: "127.0.0.1", port: port, channelName: DisplayName("Team")!, channel: channel, token: token,
                pin: identity.pin)
            let device = try await Device("Ada", link)
            try await device.isReady()
            first.withLock { $0 = device }
        }
        #expect(try await relay.members().map(\.name) == ["Ada"])
        await relay.stop()
    }

    @Test func `changes wait for each other in the order they came, and too many are refused`() async throws {
        let relay = try await start()
        let registrar = relay.registrar
        let (gate, opener) = AsyncStream.makeStream(of: Void.self)
        let (begun, tellBegun) = AsyncStream.makeStream(of: Void.self)
        let holder = Task { @Sendable in
            try await registrar.inTurn { _ in
                tellBegun.yield()
                for await _ in gate { break }
            }
        }
        for await _ in begun { break }
        let request = AdministrationRequest.invite(channel: "Crew", terms: nil, key: .first)
        let next = AdministrationRequest.changeChannel(.named("Crew"), ChannelChange(hasQueue: true))
        let answers = Mutex<[Int]>([])
        var tasks: [Task<AdministrationResponse, Never>] = []
        for number in 0..<AdministrationLimits.waitingCommands {
            tasks.append(
                Task { @Sendable in
                    let answer = await registrar.answer(number == 0 ? request : next)
                    answers.withLock { $0.append(number) }
                    return answer
                })
            // Each has come before the next one is sent.
            while await registrar.waitingCount <= number { await Task.yield() }
        }
        #expect(failure(await registrar.answer(next)).contains("too many commands"))
        guard case .channels(let before, _) = await registrar.answer(.channels()) else { return #expect(Bool(false)) }
        #expect(before.map(\.name) == ["Team"], "what changes nothing waits for nobody")
        #expect(answers.withLock(\.self).isEmpty)
        #expect(try relay.records.channels().map(\.name.text) == ["Team"], "nothing is begun out of turn")
        opener.yield()
        try await holder.value
        for task in tasks { _ = await task.value }
        #expect(try relay.records.channels().map(\.name.text) == ["Crew", "Team"])
        guard case .channel(let line) = await tasks[1].value else { return #expect(Bool(false)) }
        #expect(line.name == "Crew" && line.hasQueue && line.openInvitations == 1 && line.connected == 0)
        await relay.stop()
    }
}
