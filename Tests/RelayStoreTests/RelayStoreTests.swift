// What a relay keeps on disk of its channels, invitations and members.
import Cryptography
import Glibc
import RelayProtocol
import SQLite
import Testing

@testable import RelayStore

/// A directory of its own, removed at the end.
final class Folder: Sendable {
    let path: String
    init() throws {
        var template = Array("/tmp/relay-store-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw RelayStoreError.unusable(path: "/tmp", why: "mkdtemp") }
        path = String(decoding: template.dropLast().map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
    }
    var file: String { path + "/" + RelayStore.fileName }
    var files: [String] {
        guard let stream = opendir(path) else { return [] }
        defer { closedir(stream) }
        var names: [String] = []
        while let entry = readdir(stream) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            if name != ".", name != ".." { names.append(name) }
        }
        return names.sorted()
    }
    deinit {
        for name in files { unlink(path + "/" + name) }
        rmdir(path)
    }
}

func device(_ number: Int) -> MemberID {
    MemberID(bytes: sha256([UInt8](String(number).utf8)).prefix(MemberID.byteCount))!
}

@Suite struct RelayStoreTests {
    private let folder: Folder
    private let store: RelayStore
    private let channel: ChannelRecord
    private let name = DisplayName("Ada")!

    init() throws {
        folder = try Folder()
        store = try RelayStore.open(path: folder.file)
        channel = try store.addChannel(DisplayName("Yard")!, now: 100)
    }

    private func enrol(
        _ number: Int, _ token: InvitationToken, now: Int64 = 100, in other: ChannelID? = nil
    ) throws -> EnrolmentOutcome {
        try store.enrol(device(number), named: name, with: token, in: other ?? channel.id, now: now)
    }

    private func isMember(_ outcome: EnrolmentOutcome) -> Bool { if case .member = outcome { true } else { false } }

    @Test
    func `a channel has a standing invitation for everybody, whose secret is kept, and others of which only a hash is`()
        throws
    {
        let standing = try #require(try store.standingToken(of: channel.id))
        for number in 1...3 { #expect(isMember(try enrol(number, standing))) }
        let token = InvitationToken()
        let number = try store.invite(to: channel.id, token: token, terms: .init(), now: 100)
        #expect(isMember(try enrol(4, token)))
        let kept = try store.invitations(to: channel.id, limit: 10)
        #expect(kept.map(\.number) == [number, 1] && kept.map(\.used) == [1, 3])
        #expect(kept.map(\.standingToken) == [nil, standing])
        let secret = Base64URL.encode(token.bytes)
        let text = try store.database.read {
            try $0.rows("SELECT digest || ifnull(standing, '') AS text FROM invitation").map {
                try #require($0["text"].flatMap { String($0) })
            }
        }
        #expect(!text.contains { $0.contains(secret) || $0.contains(Hexadecimal.encode(token.bytes)) })
    }

    @Test func `an invitation gives its members what it says`() throws {
        let token = InvitationToken()
        let terms = InvitationTerms(priority: 200, isListenOnly: true)
        let number = try store.invite(to: channel.id, token: token, terms: terms, now: 100)
        guard case .member(let member) = try enrol(1, token) else { return #expect(Bool(false)) }
        #expect(
            member.priority == 200 && member.isListenOnly && member.invitation == number && member.enrolledAt == 100)
        #expect(try store.members(of: channel.id, limit: 10) == [member])
    }

    @Test
    func `who is not invited does not become a member: another secret, another channel, too late, too many, withdrawn`()
        throws
    {
        let other = try store.addChannel(DisplayName("Other")!, now: 100)
        let token = InvitationToken()
        let number = try store.invite(
            to: channel.id, token: token, terms: .init(expiresAt: 200, uses: 2), now: 100)
        #expect(try enrol(1, InvitationToken()) == .refused(.unknown))
        #expect(try enrol(1, token, in: other.id) == .refused(.unknown))
        #expect(try enrol(1, token, in: ChannelID()) == .refused(.unknown))
        #expect(try enrol(1, token, now: 200) == .refused(.expired))
        #expect(isMember(try enrol(1, token, now: 199)))
        // A second device with the same link is one more use; the first one again is none.
        #expect(isMember(try enrol(2, token, now: 199)))
        #expect(isMember(try enrol(1, token, now: 199)))
        #expect(try enrol(3, token, now: 199) == .refused(.usedUp))
        #expect(isMember(try enrol(1, InvitationToken(), now: 900)), "it is one, whatever it shows")
        try store.withdraw(number, of: channel.id, now: 150)
        #expect(try enrol(3, token, now: 160) == .refused(.withdrawn))
        #expect(try store.memberCount(of: channel.id) == 2)
        #expect(throws: RelayStoreError.unknownInvitation(number)) {
            try store.withdraw(number, of: channel.id, now: 150)
        }
    }

    @Test
    func `a removed member stays out with every link, and its invitation is withdrawn; a standing one is made anew`()
        throws
    {
        let standing = try #require(try store.standingToken(of: channel.id))
        for number in 1...2 { _ = try enrol(number, standing) }
        let removal = try store.revoke(device(1), from: channel.id, now: 300)
        #expect(removal.hasWithdrawnInvitation && removal.hasNewStandingInvitation && !removal.wasRevoked)
        let fresh = try #require(try store.standingToken(of: channel.id))
        #expect(fresh != standing)
        #expect(try enrol(1, standing) == .refused(.revoked))
        #expect(try enrol(1, fresh) == .refused(.revoked))
        #expect(try enrol(3, standing) == .refused(.withdrawn))
        #expect(isMember(try enrol(2, standing)), "who came by it stays")
        #expect(isMember(try enrol(3, fresh)))
        let again = try store.revoke(device(1), from: channel.id, now: 400)
        #expect(again.wasRevoked && again.member.revokedAt == 300)
        // With the invitation kept, others still come by it.
        let kept = try store.revoke(device(3), from: channel.id, keepingInvitation: true, now: 400)
        #expect(!kept.hasWithdrawnInvitation)
        #expect(isMember(try enrol(4, fresh)))
    }

    @Test func `a removed member can be let in again, with other rights`() throws {
        _ = try enrol(1, try #require(try store.standingToken(of: channel.id)))
        _ = try store.revoke(device(1), from: channel.id, now: 300)
        let member = try store.readmit(device(1), to: channel.id, priority: 5)
        #expect(member.revokedAt == nil && member.priority == 5 && !member.isListenOnly)
        #expect(try store.readmit(device(1), to: channel.id, isListenOnly: true).priority == 5)
        #expect(isMember(try enrol(1, InvitationToken())))
        #expect(throws: RelayStoreError.self) { try store.readmit(device(9), to: channel.id) }
    }

    @Test func `a member is meant by its identifier, the beginning of it or its name, if that is only one`() throws {
        let standing = try #require(try store.standingToken(of: channel.id))
        for number in 1...20 { _ = try enrol(number, standing) }
        _ = try store.enrol(device(21), named: DisplayName("Bob")!, with: standing, in: channel.id, now: 100)
        let id = device(7).description
        #expect(try store.member(id, of: channel.id).id == device(7))
        #expect(try store.member(id.uppercased(), of: channel.id).id == device(7))
        #expect(try store.member(String(id.prefix(12)), of: channel.id).id == device(7))
        #expect(try store.member("Bob", of: channel.id).id == device(21))
        for text in ["Ada", "Eve", "", "a", "%", String(id.prefix(12)) + "zz"] {
            #expect(throws: RelayStoreError.self, "\(text)") { try store.member(text, of: channel.id) }
        }
    }

    @Test func `a member is meant by the name it is connected by, too, and by no name that could be another's`() throws
    {
        let standing = try #require(try store.standingToken(of: channel.id))
        for (number, name) in [(1, "Ada"), (2, "Bob"), (3, "Cleo")] {
            _ = try store.enrol(device(number), named: DisplayName(name)!, with: standing, in: channel.id, now: 100)
        }
        let connected = [device(1): DisplayName("Eve")!, device(3): DisplayName("Bob")!]
        #expect(try store.member("Eve", of: channel.id, connected: connected).id == device(1))
        #expect(try store.member("Ada", of: channel.id, connected: connected).id == device(1))
        #expect(try store.member("Cleo", of: channel.id, connected: connected).id == device(3))
        // One was enrolled by that name, another one uses it now.
        let error = #expect(throws: RelayStoreError.self) {
            try store.member("Bob", of: channel.id, connected: connected)
        }
        guard case .unknownMember("Bob", let candidates) = error else { return #expect(Bool(false), "\(error!)") }
        #expect(Set(candidates) == ["Bob (\(device(2)))", "Cleo, now Bob (\(device(3)))"])
        #expect(try store.member("Bob", of: channel.id, connected: [device(2): DisplayName("Bob")!]).id == device(2))
        // Who calls itself by the identifier of another is not meant by it.
        let id = device(2).description
        let posing = [device(1): DisplayName(id)!, device(3): DisplayName(String(id.prefix(8)))!]
        #expect(try store.member(id, of: channel.id, connected: posing).id == device(2))
        #expect(throws: RelayStoreError.self) {
            try store.member(String(id.prefix(8)), of: channel.id, connected: posing)
        }
        let stranger = [device(9): DisplayName("Zoe")!]
        #expect(throws: RelayStoreError.self) { try store.member("Zoe", of: channel.id, connected: stranger) }
    }

    @Test func `an invitation is withdrawn with all who came by it, once or later, and with nobody else`() throws {
        let standing = try #require(try store.standingToken(of: channel.id))
        let token = InvitationToken()
        let number = try store.invite(to: channel.id, token: token, terms: .init(), now: 100)
        for device in 1...3 { _ = try enrol(device, token) }
        _ = try enrol(4, standing)
        _ = try store.revoke(device(2), from: channel.id, keepingInvitation: true, now: 150)
        let outcome = try store.revokeMembers(invitedBy: number, to: channel.id, now: 200)
        #expect(Set(outcome.members) == [device(1), device(3)])
        #expect(outcome.hasWithdrawnInvitation && !outcome.hasNewStandingInvitation)
        #expect(try enrol(1, standing) == .refused(.revoked) && enrol(5, token) == .refused(.withdrawn))
        #expect(isMember(try enrol(4, standing)))
        #expect(try store.members(of: channel.id, limit: 10).compactMap(\.revokedAt).sorted() == [150, 200, 200])
        // Again, after the invitation is gone: who was let in again is out again.
        _ = try store.readmit(device(1), to: channel.id)
        #expect(try store.members(invitedBy: number, to: channel.id) == [device(1)])
        let again = try store.revokeMembers(invitedBy: number, to: channel.id, now: 300)
        #expect(again.members == [device(1)] && !again.hasWithdrawnInvitation)
        let all = try store.revokeMembers(invitedBy: 1, to: channel.id, now: 300)
        #expect(all.members == [device(4)] && all.hasNewStandingInvitation)
        #expect(try store.standingToken(of: channel.id) != standing)
        let other = try store.addChannel(DisplayName("Other")!, now: 100)
        for (number, channel) in [(number, other.id), (99, channel.id)] {
            #expect(throws: RelayStoreError.unknownInvitation(number)) {
                try store.revokeMembers(invitedBy: number, to: channel, now: 300)
            }
        }
    }

    @Test func `channels that are served are marked, and in a file of an earlier version all are`() throws {
        let other = try store.addChannel(DisplayName("Other")!, now: 100)
        #expect(try store.channels().map(\.isServed) == [false, false])
        try store.setServed([channel.id, other.id])
        try store.setServed([other.id])
        #expect(try RelayStore.open(path: folder.file).channels().filter(\.isServed).map(\.id) == [other.id])
        try store.database.withoutTransaction { db in
            try db.execute(
                "ALTER TABLE channel DROP COLUMN served; DELETE FROM grdb_migrations WHERE identifier = '2'")
        }
        #expect(try RelayStore.open(path: folder.file).channels().map(\.isServed) == [true, true])
    }

    @Test func `members are listed in pages, all of them once`() throws {
        let standing = try #require(try store.standingToken(of: channel.id))
        for number in 1...25 { _ = try enrol(number, standing) }
        var seen: [MemberID] = []
        repeat {
            seen += try store.members(of: channel.id, after: seen.last, limit: 10).map(\.id)
        } while seen.count % 10 == 0
        #expect(seen.count == 25 && Set(seen).count == 25)
    }

    @Test func `limits hold, and an end-to-end channel has no standing invitation`() throws {
        var limits = RelayStore.Limits()
        limits.channels = 2
        limits.membersPerChannel = 1
        limits.invitationsPerChannel = 1
        let small = try Folder()
        let store = try RelayStore.open(path: small.file, limits: limits)
        let channel = try store.addChannel(DisplayName("A")!, isEndToEnd: true, now: 1)
        #expect(try store.standingToken(of: channel.id) == nil)
        #expect(throws: RelayStoreError.channelExists("A")) { try store.addChannel(DisplayName("A")!, now: 1) }
        let token = InvitationToken()
        try store.invite(to: channel.id, token: token, terms: .init(), now: 1)
        #expect(throws: RelayStoreError.self) {
            try store.invite(to: channel.id, token: InvitationToken(), terms: .init(), now: 1)
        }
        #expect(isMember(try store.enrol(device(1), named: name, with: token, in: channel.id, now: 1)))
        #expect(try store.enrol(device(2), named: name, with: token, in: channel.id, now: 1) == .refused(.full))
        try store.addChannel(DisplayName("B")!, now: 1)
        #expect(throws: RelayStoreError.self) { try store.addChannel(DisplayName("C")!, now: 1) }
    }

    @Test func `everything is there again when it is opened again, readable by its owner only`() throws {
        let standing = try #require(try store.standingToken(of: channel.id))
        _ = try enrol(1, standing)
        _ = try store.revoke(device(1), from: channel.id, keepingInvitation: true, now: 300)
        try store.setLastStart(host: "relay.example", port: 4_433)
        for name in folder.files {
            var status = stat()
            #expect(stat(folder.path + "/" + name, &status) == 0 && status.st_mode & 0o777 == 0o600, "\(name)")
        }
        let again = try RelayStore.open(path: folder.file)
        #expect(try again.channels() == store.channels())
        #expect(try again.members(of: channel.id, limit: 10) == store.members(of: channel.id, limit: 10))
        #expect(try again.invitations(to: channel.id, limit: 10) == store.invitations(to: channel.id, limit: 10))
        #expect(try again.lastStart().map { "\($0.host):\($0.port)" } == "relay.example:4433")
        #expect(try again.database.withoutTransaction { try $0.value("PRAGMA journal_mode") } == "wal")
        #expect(try again.database.withoutTransaction { try $0.value("PRAGMA synchronous") } == 2, "2 is FULL")
    }

    @Test(arguments: [0, 100, 5_000])
    func `a damaged file is refused and stays where it is, and is set aside for who begins anew`(offset: Int) throws {
        let damaged = try Folder()
        do {
            let store = try RelayStore.open(path: damaged.file)
            let channel = try store.addChannel(DisplayName("Yard")!, now: 1)
            let token = try #require(try store.standingToken(of: channel.id))
            for number in 1...40 {
                _ = try store.enrol(device(number), named: name, with: token, in: channel.id, now: 1)
            }
            try store.database.close()
        }
        let descriptor = Glibc.open(damaged.file, O_RDWR)
        let junk = [UInt8](repeating: 0xA5, count: 4_096)
        #expect(pwrite(descriptor, junk, junk.count, off_t(offset)) == junk.count)
        close(descriptor)
        for mayMake in [true, false] {
            let error = #expect(throws: RelayStoreError.self) {
                try RelayStore.open(path: damaged.file, mayMake: mayMake)
            }
            guard case .damaged(damaged.file, _) = error else {
                return #expect(Bool(false), "\(String(describing: error))")
            }
            #expect(error?.mayPass == false && "\(error!)".contains("begin-anew records"))
        }
        #expect(!damaged.files.contains { $0.contains("old") })
        let aside = try RelayStore.setAside(path: damaged.file, as: "old")
        #expect(aside == damaged.file + ".old-1" && damaged.files.contains("relay.sqlite.old-1"))
        #expect(try RelayStore.open(path: damaged.file).channels().isEmpty)
    }

    @Test func `what cannot be opened says why, and a file of a later version is left alone`() throws {
        #expect(throws: RelayStoreError.self) { try RelayStore.open(path: folder.path) }
        #expect(throws: RelayStoreError.self) { try RelayStore.open(path: folder.path + "/nowhere/x.sqlite") }
        try store.database.write { try $0.execute("INSERT INTO grdb_migrations VALUES ('99')") }
        #expect(throws: RelayStoreError.newer(path: folder.file)) { try RelayStore.open(path: folder.file) }
    }

    @Test func `a write that does not reach the disk is told, and nothing has changed`() throws {
        let standing = try #require(try store.standingToken(of: channel.id))
        try store.database.withoutTransaction { try $0.execute("PRAGMA max_page_count = 1") }
        #expect(throws: RelayStoreError.self) {
            for number in 1...2_000 { _ = try enrol(number, standing) }
        }
        let count = try store.memberCount(of: channel.id)
        try store.database.withoutTransaction { try $0.execute("PRAGMA max_page_count = 100000") }
        #expect(try store.invitations(to: channel.id, limit: 1).map(\.used) == [count])
        #expect(isMember(try enrol(5_000, standing)))
    }
}
