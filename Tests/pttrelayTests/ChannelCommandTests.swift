// Channels that the operator adds, changes and removes while the relay runs, with devices on loopback sockets.
import Cryptography
import Glibc
import RelayClient
import RelayProtocol
import RelayServer
import RelayStore
import Testing

@testable import pttrelay

@Suite struct ChannelCommandTests {
    private func channel(
        _ answer: AdministrationResponse
    ) throws -> AdministrationResponse.ChannelLine {
        switch answer {
        case .added(let line, _), .channel(let line): return line
        default: throw RelayStateError(description: "\(answer)")
        }
    }

    private func failure(_ answer: AdministrationResponse) -> String {
        if case .failed(let why) = answer { why } else { "" }
    }

    private func linkTo(_ name: String, _ relay: RunningRelay.Parts) async throws -> InvitationLink {
        let answer = try await relay.ask(.invite(channel: .named(name), terms: nil, key: nil))
        guard case .invitation(let made) = answer else { throw RelayStateError(description: "\(answer)") }
        return try InvitationLink(made.link)
    }

    private func add(
        _ name: String, _ change: ChannelChange = ChannelChange(), to relay: RunningRelay.Parts
    ) async throws -> AdministrationResponse.ChannelLine {
        try channel(try await relay.ask(.addChannel(name: name, change, isEndToEnd: false)))
    }

    @Test func `a channel is served as soon as it is added, and a later start serves it with its settings`()
        async throws
    {
        var relay = try await RunningRelay.start(try StateFolder()) { 1_000 }
        var change = ChannelChange(mode: .cutIn, preemptionStep: 7, keptBursts: 3)
        change.keptMilliseconds = 90_000
        let line = try await add("Yard", change, to: relay)
        #expect(line.isServed && !line.isDeclared && line.connected == 0 && line.openInvitations == 1)
        let device = try await Device("Ada", try await linkTo("Yard", relay))
        try await device.isReady()
        let again = AdministrationRequest.addChannel(name: "Yard", change, isEndToEnd: false)
        #expect(failure(try await relay.ask(again)).contains("already"))
        let bad = AdministrationRequest.addChannel(name: "\u{7}", change, isEndToEnd: false)
        #expect(failure(try await relay.ask(bad)).contains("cannot be a channel's name"))

        relay = try await relay.restarted { 1_000 }
        let served = try #require(await relay.server.channelConfigurations.first { $0.name.text == "Yard" })
        #expect(served.rules == FloorRules(mode: .cutIn, preemptionStep: 7))
        #expect(served.retention == BurstRetention(bursts: 3, time: .seconds(90)))
        #expect(served.id.description == line.id)
        await relay.stop()
    }

    @Test func `a change is told to the relay, and what is not named stays as it is`() async throws {
        let relay = try await RunningRelay.start(try StateFolder()) { 1_000 }
        let yard = try await add("Yard", ChannelChange(hasQueue: true, preemptionStep: 9), to: relay)
        let link = try await linkTo("Yard", relay)
        let device = try await Device("Ada", link)
        try await device.isReady()
        let changed = try channel(
            try await relay.ask(
                .changeChannel("Yard", ChannelChange(name: "Square", mode: .fullDuplex, preemptionStep: 0))))
        #expect(changed.name == "Square" && changed.id == yard.id && changed.tag != yard.tag)
        #expect(changed.hasQueue && changed.preemptionStep == nil && changed.mode == .fullDuplex)
        let served = try #require(await relay.server.channelConfigurations.first { $0.name.text == "Square" })
        #expect(served.rules == FloorRules(mode: .fullDuplex, hasQueue: true))
        #expect(device.readyCount == 1, "who is on it stays")
        // The link with the old name is as good as before.
        let other = try await Device("Bob", link)
        let name = try await other.until("ready") { if case .ready(let name) = $0 { name } else { nil } }
        #expect(name == "Square")

        let stale = AdministrationRequest.changeChannel("Square", ChannelChange(hasQueue: false), tag: yard.tag)
        #expect(failure(try await relay.ask(stale)).contains("somebody else"))
        let taken = AdministrationRequest.changeChannel("Square", ChannelChange(name: "Team"))
        #expect(failure(try await relay.ask(taken)).contains("already"))
        #expect(try channel(try await relay.ask(.channel("Square"))).tag == changed.tag)
        await relay.stop()
    }

    @Test func `a removed channel ends for its members, and no link to it is good any more`() async throws {
        let relay = try await RunningRelay.start(try StateFolder()) { 1_000 }
        let yard = try await add("Yard", to: relay)
        let link = try await linkTo("Yard", relay)
        let ada = try await Device("Ada", link)
        let bob = try await Device("Bob", try await linkTo("Team", relay))
        try await ada.isReady()
        try await bob.isReady()
        let removed = try channel(try await relay.ask(.removeChannel("Yard")))
        #expect(removed.id == yard.id && removed.members == 1)
        let why = try await ada.until("the end") {
            if case .unavailable(.channelEnded(let why), _) = $0 { why } else { nil }
        }
        #expect(why.contains("removed"))
        #expect(try await Device("Eve", link).refusal().contains("no such channel"))
        let gone = try #require(ChannelID(yard.id))
        #expect(bob.readyCount == 1 && relay.records.isWithout(gone))
        #expect(await relay.server.statistics?.channels.map(\.name.text) == ["Team"])

        // Nor is it when there is one of that name again.
        #expect(try await add("Yard", to: relay).id != yard.id)
        #expect(try await Device("Eve", link).refusal().contains("no such channel"))
        await relay.stop()
    }

    @Test func `what the configuration declares is changed there, and what it declared and left out can be taken up`()
        async throws
    {
        let relay = try await RunningRelay.start(try StateFolder()) { 1_000 }
        for request in [
            AdministrationRequest.changeChannel("Team", ChannelChange(hasQueue: true)), .removeChannel("Team"),
        ] { #expect(failure(try await relay.ask(request)).contains("declared in pttrelay.toml")) }

        let link = try await linkTo("Team", relay)
        let ada = try await Device("Ada", link)
        try await ada.isReady()
        let changes = try await relay.registrar.reload(channels: ["Other"], floors: Floors())
        #expect(changes.contains { $0.contains("'Team' is not served any more") })
        _ = try await ada.until("the end") { if case .unavailable(.channelEnded, _) = $0 { true } else { nil } }
        #expect(try channel(try await relay.ask(.channel("Team"))).isServed == false)
        let again = try await relay.ask(.addChannel(name: "Team", ChannelChange(mode: .cutIn), isEndToEnd: false))
        guard case .added(let line, isNew: false) = again else { return #expect(Bool(false), "\(again)") }
        #expect(line.members == 1 && line.isServed && line.mode == .cutIn)
        let back = try await Device("Bob", link)
        try await back.isReady()
        // It stays, whatever the file has now; and where the file declares it, the file has its settings.
        _ = try await relay.registrar.reload(
            channels: ["Other", "Team"], floors: Floors(rules: ["Team": FloorRules(hasQueue: true)]))
        let declared = try channel(try await relay.ask(.channel("Team")))
        #expect(declared.isDeclared && declared.hasQueue && declared.mode == .halfDuplex)
        _ = try await relay.registrar.reload(channels: ["Other"], floors: Floors())
        let own = try channel(try await relay.ask(.channel("Team")))
        #expect(!own.isDeclared && own.isServed && own.mode == .cutIn && back.readyCount == 1)
        await relay.stop()
    }

    @Test func `at the limit of channels, a reload serves another channel in the place of one that it ends`()
        async throws
    {
        var limits = RelayLimits()
        limits.channels = 1
        let relay = try await RunningRelay.start(try StateFolder(), limits: limits) { 1_000 }
        let changes = try await relay.registrar.reload(channels: ["Other"], floors: Floors())
        #expect(changes.count == 2 && changes.contains { $0.hasPrefix("'Other' is served now") })
        #expect(await relay.server.channelConfigurations.map(\.name.text) == ["Other"])
        try await Device("Ada", try await linkTo("Other", relay)).isReady()
        await relay.stop()
    }

    @Test func `whoever is removed while the channel is not served stays out when it is served again`() async throws {
        var relay = try await RunningRelay.start(try StateFolder()) { 1_000 }
        _ = try await relay.registrar.reload(channels: ["Team", "Yard"], floors: Floors())
        let link = try await linkTo("Yard", relay)
        let (ada, bob) = try (Identity(generating: "ada"), Identity(generating: "bob"))
        for (name, key) in [("Ada", ada), ("Bob", bob)] { try await Device(name, link, identity: key).isReady() }
        _ = try await relay.ask(.revoke(channel: "Yard", member: "Ada", keepsInvitation: true))

        // A start that knows both, and serves another channel.
        relay = try await relay.restarted { 1_000 }
        #expect(try channel(try await relay.ask(.channel("Yard"))).isServed == false)
        _ = try await relay.ask(.revoke(channel: "Yard", member: "Bob", keepsInvitation: true))
        _ = try await relay.ask(
            .readmit(channel: "Yard", member: MemberID(ada.pin).description, MemberChange(priority: 3)))
        #expect(try await add("Yard", to: relay).isServed)
        let again = try await linkTo("Yard", relay)
        #expect(try await Device("Bob", again, identity: bob).refusal().contains("removed"))
        try await Device("Ada", again, identity: ada).isReady()
        await relay.stop()
    }

    @Test func `channels are listed page by page, each once`() async throws {
        let relay = try await RunningRelay.start(try StateFolder()) { 1_000 }
        let names = (0..<23).map { "Channel \($0)" }
        for name in names { _ = try await add(name, to: relay) }
        var found: [String] = []
        var next: String?
        repeat {
            guard case .channels(let page, let following) = try await relay.ask(.channels(after: next, limit: 5))
            else { return #expect(Bool(false)) }
            #expect(page.count <= 5)
            found += page.map(\.name)
            next = following
        } while next != nil
        #expect(found == (names + ["Team"]).sorted())
        await relay.stop()
    }

    @Test func `a request that comes twice makes one channel and one invitation, with the same link`() async throws {
        let relay = try await RunningRelay.start(try StateFolder()) { 1_000 }
        let request = AdministrationRequest.addChannel(name: "Yard", ChannelChange(), isEndToEnd: false, retry: "a")
        guard case .added(let first, isNew: true) = try await relay.ask(request),
            case .added(let second, isNew: false) = try await relay.ask(request)
        else { return #expect(Bool(false)) }
        #expect(first.id == second.id)
        for (name, isEndToEnd) in [("Gate", false), ("Yard", true)] {
            let other = AdministrationRequest.addChannel(
                name: name, ChannelChange(), isEndToEnd: isEndToEnd, retry: "a")
            #expect(failure(try await relay.ask(other)).contains("another request"))
        }

        func invite(_ uses: Int, _ channel: ChannelReference = "Yard") async throws -> AdministrationResponse {
            let terms = AdministrationRequest.Terms(lifetime: 600, uses: uses, priority: 0, isListenOnly: false)
            return try await relay.ask(.invite(channel: channel, terms: terms, key: nil, retry: "a"))
        }
        guard case .invitation(let made) = try await invite(2), case .invitation(let again) = try await invite(2),
            case .invitation(let elsewhere) = try await invite(2, "Team")
        else { return #expect(Bool(false)) }
        #expect(made.link == again.link && made.number == again.number && made.isNew && !again.isNew)
        #expect(elsewhere.link != made.link && elsewhere.isNew)
        #expect(failure(try await invite(3)).contains("another request"))
        try await Device("Ada", try InvitationLink(again.link)).isReady()
        await relay.stop()
    }

    @Test func `a request that has served a kept channel again is refused when it comes twice`() async throws {
        let relay = try await RunningRelay.start(try StateFolder()) { 1_000 }
        let team = try channel(try await relay.ask(.channel("Team")))
        _ = try await relay.registrar.reload(channels: ["Other"], floors: Floors())
        let request = AdministrationRequest.addChannel(name: "Team", ChannelChange(), isEndToEnd: false, retry: "a")
        guard case .added(let line, isNew: false) = try await relay.ask(request) else { return #expect(Bool(false)) }
        #expect(line.id == team.id && line.isServed)
        for retry in ["a", "b"] {
            let again = AdministrationRequest.addChannel(
                name: "Team", ChannelChange(), isEndToEnd: false, retry: retry)
            #expect(failure(try await relay.ask(again)).contains("already"))
        }
        await relay.stop()
    }

    @Test func `a relay that has lost its last channel starts again, and gets others`() async throws {
        let folder = try StateFolder()
        do {
            let state = try RelayState.open(folder.path, logger: quiet("state"))
            #expect(throws: RelayStateError.self) { try state.servedChannels(named: []) }
            #expect(try state.servedChannels(named: [], mayBeNone: true).isEmpty)
            try state.store.setLastStart(host: "a", port: 1)
            #expect(try state.servedChannels(named: []).isEmpty)
            let registrar = try Registrar(state: state, channelsMaximum: 2, logger: quiet("records"))
            for name in ["A", "B", "C"] {
                let answer = await registrar.answer(.addChannel(name: name, ChannelChange(), isEndToEnd: false))
                #expect(failure(answer).contains("raise 'channels'") == (name == "C"))
            }
            #expect(try state.servedChannels(named: []).map(\.name.text) == ["A", "B"])
        }
    }
}

extension RelayStore {
    /// Whether nothing is left of a channel.
    fileprivate func isWithout(_ id: ChannelID) -> Bool {
        (try? knownChannel(id) == nil && invitations(to: id, limit: 1).isEmpty && members(of: id, limit: 1).isEmpty)
            ?? false
    }
}
