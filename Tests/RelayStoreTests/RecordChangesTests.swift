// What a node that follows is told of the records that others have changed.
import Cryptography
import RelayProtocol
import SQLite
import Synchronization
import Testing

@testable import RelayStore

/// A log in memory.
private final class Log: RecordLog {
    private let kept = Mutex<[[UInt8]]>([])
    var entries: [[UInt8]] { kept.withLock { $0 } }

    func append(_ changes: [UInt8], behind place: LogPlace) throws -> UInt64 {
        kept.withLock { kept in
            kept.append(changes)
            return UInt64(kept.count)
        }
    }

    func isAhead(because error: any Error) {}
}

@Suite struct RecordChangesTests {
    private let folders: [Folder]
    private let first: RelayStore
    private let second: RelayStore
    private let log = Log()
    /// Two channels that both have: with devices 1 to 3, and with device 1.
    private let yard: ChannelRecord
    private let gate: ChannelRecord

    init() throws {
        folders = [try Folder(), try Folder()]
        first = try RelayStore.open(path: folders[0].file)
        second = try RelayStore.open(path: folders[1].file)
        yard = try first.addChannel(try #require(DisplayName("Yard")), now: 1)
        gate = try first.addChannel(try #require(DisplayName("Gate")), isAdded: true, isServed: true, now: 1)
        try first.begin(place(0))
        first.share(with: log)
        for number in 1...3 { try enrol(number, in: yard) }
        try enrol(1, in: gate)
        let isEverything = try second.apply(try first.everything(), upTo: place(4), isBeginning: true)
        #expect(isEverything == RecordChanges(isEverything: true) && !isEverything.isEmpty)
    }

    private func name(_ text: String) throws -> DisplayName { try #require(DisplayName(text)) }

    private func place(_ position: Int) -> LogPlace {
        LogPlace(cluster: "00112233445566778899aabbccddeeff", epoch: 1, position: UInt64(position))
    }

    private func enrol(_ number: Int, in channel: ChannelRecord, with token: InvitationToken? = nil) throws {
        let standing = try first.standingToken(of: channel.id)
        let outcome = try first.enrol(
            device(number), named: try name("D\(number)"), with: try #require(token ?? standing), in: channel.id, now: 2
        )
        guard case .member = outcome else { throw RelayStoreError.differs("\(outcome)") }
    }

    /// What the other node is told of everything that has been written since it looked last.
    private func follow() throws -> RecordChanges {
        let from = Int(try #require(try second.logPlace()).position)
        return try second.apply(Array(log.entries[from...]), upTo: place(log.entries.count))
    }

    @Test func `channels that come, change and go are named`() throws {
        let square = try first.addChannel(try name("Square"), now: 3)
        #expect(try follow() == RecordChanges(channels: [square.id]))
        let apart = try first.addChannel(try name("Apart"), isEndToEnd: true, now: 3)
        #expect(try follow() == RecordChanges(channels: [apart.id]))
        _ = try first.changeChannel(gate.id, name: try name("Door"), settings: ChannelSettings(), isServed: true)
        #expect(try follow() == RecordChanges(channels: [gate.id]))
        #expect(try second.knownChannel(gate.id)?.name.text == "Door")
        var settings = ChannelSettings()
        settings.mode = .cutIn
        settings.keptBursts = 3
        _ = try first.changeChannel(gate.id, name: try name("Door"), settings: settings, isServed: true)
        #expect(try follow() == RecordChanges(channels: [gate.id]))
        try first.setServed([yard.id, gate.id], declared: [yard.id])
        #expect(try follow() == RecordChanges(channels: [yard.id]))
        let names = [try name("A"), try name("B"), try name("Yard")]
        let made = try first.channels(including: names, now: 3)
        #expect(
            try follow() == RecordChanges(channels: [try #require(made[names[0]]).id, try #require(made[names[1]]).id]))
        try first.removeChannel(yard.id)
        #expect(
            try follow() == RecordChanges(channels: [yard.id], members: [yard.id: [device(1), device(2), device(3)]]))
        #expect(try second.knownChannel(yard.id) == nil)
    }

    @Test
    func `members that enrol, go and come again are named, and with them the channel where an invitation changes`()
        throws
    {
        try enrol(4, in: gate)
        #expect(try follow() == RecordChanges(channels: [gate.id], members: [gate.id: [device(4)]]))
        // One that is in already changes nothing.
        try enrol(4, in: gate)
        #expect(try follow().isEmpty)
        _ = try first.revoke(device(1), from: yard.id, keepingInvitation: true, now: 3)
        #expect(try follow() == RecordChanges(members: [yard.id: [device(1)]]))
        _ = try first.readmit(device(1), to: yard.id)
        #expect(try follow() == RecordChanges(members: [yard.id: [device(1)]]))
        _ = try first.readmit(device(1), to: yard.id, priority: 7)
        #expect(try follow() == RecordChanges(members: [yard.id: [device(1)]]))
        #expect(try second.member(device(1), of: yard.id).priority == 7)
        _ = try first.readmit(device(1), to: yard.id, priority: 7)
        #expect(try follow() == RecordChanges())
        // Its invitation goes, and there is another standing one.
        #expect(try first.revoke(device(2), from: yard.id, now: 4).hasNewStandingInvitation)
        #expect(try follow() == RecordChanges(channels: [yard.id], members: [yard.id: [device(2)]]))
        #expect(try second.standingToken(of: yard.id) == first.standingToken(of: yard.id))
        let token = InvitationToken()
        let invitation = try first.invite(to: gate.id, token: token, terms: .init(), now: 5)
        for number in 5...6 { try enrol(number, in: gate, with: token) }
        _ = try follow()
        _ = try first.revokeMembers(invitedBy: invitation, to: gate.id, now: 6)
        #expect(try follow() == RecordChanges(channels: [gate.id], members: [gate.id: [device(5), device(6)]]))
    }

    @Test func `an invitation that comes, is used or goes names its channel`() throws {
        let number = try first.invite(to: yard.id, token: InvitationToken(), terms: .init(uses: 2), now: 3)
        #expect(try follow() == RecordChanges(channels: [yard.id]))
        try first.withdraw(number, of: yard.id, now: 4)
        #expect(try follow() == RecordChanges(channels: [yard.id]))
        let token = try #require(try first.standingToken(of: gate.id))
        let standing = try #require(try first.invitation(with: token, to: gate.id))
        try first.withdraw(standing.number, of: gate.id, now: 5)
        #expect(try follow() == RecordChanges(channels: [gate.id]))
        let renewed = try second.standingToken(of: gate.id)
        #expect(try renewed == first.standingToken(of: gate.id) && renewed != token)
        let columns = try first.read { db in try db.rows("SELECT name FROM pragma_table_info('invitation')") }
        #expect(columns[RecordChanges.invitationChannelColumn]["name"] == .text("channel"))
    }

    @Test func `other tables are of no interest`() throws {
        try first.setLastStart(host: "relay.example", port: 4_433)
        try first.setLastStart(host: "relay.example", port: 4_434)
        _ = try first.retrySecret()
        #expect(log.entries.count == 7)
        #expect(try follow().isEmpty && second.lastStart()?.port == 4_434)
        #expect(try second.apply([], upTo: place(8)).isEmpty)
    }

    @Test func `several transactions at once are told together, also of rows that come and go meanwhile`() throws {
        let square = try first.addChannel(try name("Square"), now: 3)
        try enrol(7, in: square)
        try enrol(8, in: gate)
        _ = try first.revoke(device(8), from: gate.id, now: 4)
        try first.removeChannel(square.id)
        let expected = RecordChanges(
            channels: [square.id, gate.id], members: [square.id: [device(7)], gate.id: [device(8)]])
        #expect(try follow() == expected)
    }

    @Test func `what has changed is added up, and everything is everything`() {
        var all = RecordChanges()
        #expect(all.isEmpty)
        all.formUnion(RecordChanges(members: [yard.id: [device(1)], gate.id: []]))
        all.formUnion(RecordChanges(channels: [gate.id], members: [yard.id: [device(2)]]))
        #expect(all == RecordChanges(channels: [gate.id], members: [yard.id: [device(1), device(2)]]) && !all.isEmpty)
        let everything = RecordChanges(channels: [yard.id], members: [yard.id: [device(1)]], isEverything: true)
        #expect(everything.channels.isEmpty && everything.members.isEmpty && !everything.isEmpty)
        var both = everything
        both.formUnion(all)
        all.formUnion(everything)
        #expect(all == everything && both == everything)
    }

    @Test func `more rows than are looked at are everything`() throws {
        try first.removeChannel(yard.id)
        let changes = try #require(log.entries.last)
        // A channel, an invitation and three members.
        for (count, isEverything) in [(4, true), (5, false)] {
            let touched = try second.read { db in
                var touched = RecordChanges()
                try touched.insertRows(of: changes, appliedTo: db, rowsMaximum: count)
                return touched
            }
            #expect(touched.isEverything == isEverything)
        }
    }

    @Test func `a damaged change is told as such, and not applied`() throws {
        try enrol(4, in: gate)
        let changes = try #require(log.entries.last)
        let digits = Array("\(device(4))".utf8)
        let start = try #require(changes.firstRange(of: digits)?.lowerBound)
        var other = changes
        other[start] = UInt8(ascii: "z")
        let before = try second.members()
        for damaged in [[0x58], [0x58] + changes, Array(changes.dropLast()), Array(changes.dropLast(20)), other] {
            let error = #expect(throws: RelayStoreError.self) { try second.apply([changes, damaged], upTo: place(5)) }
            #expect(error.map { "\($0)".contains("a change of another node") } == true)
            #expect(try second.members() == before && second.logPlace() == place(4))
        }
        #expect(try follow() == RecordChanges(channels: [gate.id], members: [gate.id: [device(4)]]))
    }

    @Test func `the records of what has changed are read at once`() throws {
        let all = try second.members(of: yard.id, limit: 9)
        #expect(
            try second.members([device(3), device(1), device(9)], of: yard.id) == all.filter { $0.id != device(2) })
        #expect(try second.members([], of: yard.id).isEmpty && second.members([device(1)], of: ChannelID()).isEmpty)
        let many = Set((1...20_000).map { device($0) })
        #expect(try second.members(many, of: yard.id) == all)
        let both = try second.members()
        #expect(both.count == 2 && both[yard.id]?.count == 3)
        #expect(try second.members(ofChannels: [yard.id, gate.id, ChannelID()]) == both)
        #expect(try second.members(ofChannels: [gate.id]) == both.filter { $0.key == gate.id })
        #expect(try second.members(ofChannels: []).isEmpty)
    }

    @Test func `the rows that changes are made to have their keys and values`() throws {
        let file = try DatabaseFile(path: ":memory:")
        let changes = try file.write { db in
            // The order of the key's columns is not that of the table's.
            try db.execute("CREATE TABLE a (x TEXT, y INTEGER, z ANY, PRIMARY KEY (y, x)) STRICT")
            try db.execute("INSERT INTO a VALUES ('one', 1, 1.5), (?, 2, x'C328')", ["größer\u{0}than"])
            return try db.recording(["a"]) {
                try db.execute("INSERT INTO a VALUES ('three', 3, NULL)")
                try db.execute("UPDATE a SET z = x'' WHERE y = 2; DELETE FROM a WHERE y = 1")
            }.1
        }
        let rows = try TouchedRows(of: changes)
        var found: [TouchedRow.Operation: TouchedRow] = [:]
        while let row = try rows.next() { found[row.operation] = row }
        #expect(try rows.next() == nil && found.count == 3 && found.values.allSatisfy { $0.table == "a" })
        let new = try #require(found[.insertion])
        #expect(new.key == [.text("three"), .integer(3)] && new.before.isEmpty)
        #expect(new.after == [.text("three"), .integer(3), .null])
        let changed = try #require(found[.change])
        #expect(changed.key == [.text("größer\u{0}than"), .integer(2)])
        #expect(changed.before == [.text("größer\u{0}than"), .integer(2), .bytes([0xC3, 0x28])])
        #expect(changed.after == [nil, nil, .bytes([])])
        let removed = try #require(found[.removal])
        #expect(removed.key == [.text("one"), .integer(1)] && removed.after.isEmpty)
        #expect(removed.before == [.text("one"), .integer(1), .real(1.5)])
        #expect(try TouchedRows(of: []).next() == nil)
        #expect(throws: DatabaseError.self) { try TouchedRows(of: [0x58]).next() }
    }
}
