// The records of channels that come, change and go: names, settings, counts, and that nothing is left of one that was removed.
import Cryptography
import RelayProtocol
import SQLite
import Testing

@testable import RelayStore

@Suite struct ChannelRecordsTests {
    private let folder: Folder
    private let store: RelayStore

    init() throws {
        folder = try Folder()
        store = try RelayStore.open(path: folder.file)
    }

    private func name(_ text: String) throws -> DisplayName { try #require(DisplayName(text)) }

    @Test func `a channel keeps its settings over a restart, and is called differently only if nobody has the name`()
        throws
    {
        var settings = ChannelSettings()
        settings.mode = .listenOnly
        settings.hasQueue = true
        settings.preemptionStep = 254
        settings.keptBursts = 0
        settings.keptMilliseconds = 86_400_000
        let yard = try store.addChannel(try name("Yard"), isAdded: true, isServed: true, settings: settings, now: 1)
        let gate = try store.addChannel(try name("Gate"), now: 1)
        #expect(try RelayStore.open(path: folder.file).channel(yard.id) == yard)
        #expect(throws: RelayStoreError.channelExists("Gate")) {
            try store.changeChannel(yard.id, name: try name("Gate"), settings: ChannelSettings(), isServed: true)
        }
        #expect(try store.channel(yard.id) == yard)
        let renamed = try store.changeChannel(
            yard.id, name: try name("Square"), settings: ChannelSettings(), isServed: true)
        #expect(renamed.name.text == "Square" && renamed.settings == ChannelSettings() && renamed.isAdded)
        #expect(try store.knownChannel(named: "Yard") == nil && store.channel(named: "Square") == renamed)
        #expect(throws: RelayStoreError.noChannel(ChannelID(gate.id.uuid))) {
            try store.removeChannel(gate.id)
            try store.removeChannel(gate.id)
        }
    }

    @Test func `nothing is left of a removed channel, and the others have what they had`() throws {
        let yard = try store.addChannel(try name("Yard"), now: 1)
        let gate = try store.addChannel(try name("Gate"), now: 1)
        for channel in [yard, gate] {
            let token = try #require(try store.standingToken(of: channel.id))
            for number in 1...3 {
                _ = try store.enrol(device(number), named: try name("D"), with: token, in: channel.id, now: 2)
            }
            try store.invite(to: channel.id, token: InvitationToken(), terms: .init(uses: 1), now: 2)
        }
        _ = try store.revoke(device(1), from: gate.id, now: 3)
        let before = try store.channelSummary(of: gate.id, now: 3)
        #expect(before?.members == 2 && before?.openInvitations == 2)
        try store.removeChannel(yard.id)
        #expect(try store.channelSummary(of: yard.id, now: 3) == nil)
        #expect(try store.channelSummary(of: gate.id, now: 3) == before)
        #expect(try store.members(of: yard.id, limit: 9).isEmpty && store.invitations(to: yard.id, limit: 9).isEmpty)
        #expect(try store.members().keys.map { $0 } == [gate.id] && store.members()[gate.id]?.count == 3)
        let token = try #require(try store.standingToken(of: gate.id))
        #expect(try store.standingTokens() == [gate.id: token])
        try store.check()
        let violations = try store.database.withoutTransaction { try $0.rows("PRAGMA foreign_key_check").count }
        #expect(violations == 0)
    }

    @Test func `many channels are made in one transaction, all or none`() throws {
        let names = try (0..<50).map { try name("Channel \($0)") }
        let first = try store.channels(including: Array(names.prefix(10)), now: 1)
        let all = try store.channels(including: names, now: 1)
        #expect(all.count == 50 && first.allSatisfy { all[$0.key] == $0.value })
        #expect(try store.standingTokens().count == 50)
        var limits = RelayStore.Limits()
        limits.channels = 51
        let small = try RelayStore.open(path: folder.file, limits: limits)
        let more = try [name("A"), name("B")]
        #expect(throws: RelayStoreError.self) { try small.channels(including: more, now: 1) }
        #expect(try store.channels().count == 50)
    }

    @Test func `what is served and declared is written down only where it is something else`() throws {
        let yard = try store.addChannel(try name("Yard"), isAdded: true, isServed: true, now: 1)
        let team = try store.addChannel(try name("Team"), now: 1)
        #expect(try store.servedChannelCount() == 1)
        try store.setServed([yard.id, team.id], declared: [team.id])
        #expect(try store.channel(team.id).isDeclared && !store.channel(yard.id).isDeclared)
        #expect(try store.servedChannelCount() == 2)
        try store.setServed([yard.id])
        #expect(try !store.channel(team.id).isDeclared && !store.channel(team.id).isServed)
    }

    @Test func `summaries come in pages in the order of the names`() throws {
        for number in 0..<12 { try store.addChannel(try name("\(number)"), now: 1) }
        var seen: [String] = []
        repeat {
            seen += try store.channelSummaries(after: seen.last, limit: 5, now: 1).map(\.channel.name.text)
        } while seen.count % 5 == 0
        #expect(seen == (0..<12).map { "\($0)" }.sorted())
    }

    @Test func `the secret for repeated requests is made once, and is another one elsewhere`() throws {
        let secret = try store.retrySecret()
        #expect(secret.count == 32)
        #expect(try store.retrySecret() == secret && RelayStore.open(path: folder.file).retrySecret() == secret)
        let other = try Folder()
        #expect(try RelayStore.open(path: other.file).retrySecret() != secret)
    }

    @Test(arguments: ["mode = 'loud'", "queue = 2", "preemptionStep = 256", "declared = 'x'"])
    func `a channel with a value that no relay writes is damage`(change: String) throws {
        try store.addChannel(try name("Yard"), now: 1)
        // Of another type the table itself refuses it.
        guard (try? store.database.write({ try $0.execute("UPDATE channel SET \(change)") })) != nil else { return }
        let error = #expect(throws: RelayStoreError.self) { try store.check() }
        #expect(error.map { "\($0)".contains("table 'channel'") } == true)
    }
}
