// Records that are damaged, or not the relay's own: told, and neither guessed nor left out.
import Cryptography
import Glibc
import RelayProtocol
import SQLite
import Testing

@testable import RelayStore

@Suite struct DamagedRecordsTests {
    private let folder: Folder
    private let store: RelayStore
    private let channel: ChannelRecord

    init() throws {
        folder = try Folder()
        store = try RelayStore.open(path: folder.file)
        channel = try store.addChannel(DisplayName("Yard")!, now: 100)
        let token = try #require(try store.standingToken(of: channel.id))
        for number in 1...3 {
            _ = try store.enrol(device(number), named: DisplayName("Ada")!, with: token, in: channel.id, now: 100)
        }
        try store.setLastStart(host: "relay.example", port: 4_433)
    }

    private func isDamaged(_ error: RelayStoreError?) -> Bool {
        guard case .damaged(folder.file, _) = error else { return false }
        return "\(error!)".contains(folder.file) && "\(error!)".contains("put a copy")
    }

    @Test(arguments: [
        "UPDATE member SET id = substr(id, 3) WHERE id = (SELECT min(id) FROM member)",
        "UPDATE member SET id = 'zz' || substr(id, 3) WHERE id = (SELECT min(id) FROM member)",
        "UPDATE member SET name = char(7)", "UPDATE member SET priority = 256", "UPDATE member SET priority = -1",
        "UPDATE member SET listenOnly = 2",
    ])
    func `a member that means nothing is not left out`(change: String) throws {
        try store.check()
        try store.database.write { try $0.execute(change) }
        for read in [
            { try self.store.check() }, { _ = try self.store.members(of: self.channel.id, limit: 10) },
            { _ = try RelayStore.open(path: self.folder.file).check() },
        ] as [() throws -> Void] {
            #expect(isDamaged(#expect(throws: RelayStoreError.self) { try read() }))
        }
        #expect(!folder.files.contains { $0.contains("damaged") })
    }

    @Test(arguments: [
        "UPDATE channel SET name = ''", "UPDATE channel SET endToEnd = 3", "UPDATE channel SET served = -1",
        "UPDATE invitation SET standing = 'AA'", "UPDATE invitation SET priority = 900",
        "UPDATE invitation SET listenOnly = 9", "UPDATE start SET port = 65536",
        "PRAGMA foreign_keys = OFF; UPDATE channel SET id = 'Yard'",
    ])
    func `a channel, an invitation or a start that means nothing is told`(change: String) throws {
        try store.database.withoutTransaction { try $0.execute(change) }
        #expect(isDamaged(#expect(throws: RelayStoreError.self) { try store.check() }))
    }

    @Test func `a write that meets a damaged record changes nothing and says why`() throws {
        try store.database.write { try $0.execute("UPDATE member SET listenOnly = 5") }
        #expect(
            isDamaged(
                #expect(throws: RelayStoreError.self) { try store.revoke(device(1), from: channel.id, now: 200) }))
        let removed = try store.database.read {
            try $0.count("SELECT count(*) FROM member WHERE revokedAt NOTNULL")
        }
        #expect(removed == 0)
    }

    @Test func `a file that is no database stays where it is`() throws {
        let other = try Folder()
        let bytes = [UInt8](repeating: 0xA5, count: 4_096)
        let descriptor = Glibc.open(other.file, O_WRONLY | O_CREAT, 0o600)
        #expect(write(descriptor, bytes, bytes.count) == bytes.count)
        close(descriptor)
        let error = #expect(throws: RelayStoreError.self) {
            try RelayStore.open(path: other.file)
        }
        guard case .damaged(other.file, _) = error else { return #expect(Bool(false), "\(String(describing: error))") }
        #expect(other.files.contains(RelayStore.fileName) && !other.files.contains { $0.contains("damaged") })
    }

    // MARK: The file itself

    private func refusal(_ path: String) -> String {
        let error = #expect(throws: RelayStoreError.self) { try RelayStore.open(path: path) }
        guard case .unsafe = error else { return "\(String(describing: error))" }
        return "unsafe: \(error!)"
    }

    @Test func `a link in place of the records is not followed, nor is anything else that is no file`() throws {
        let target = try Folder()
        let other = try Folder()
        try #require(symlink(target.file, other.file) == 0)
        #expect(refusal(other.file).hasPrefix("unsafe: \(other.file) was not opened: it is a symbolic link"))
        #expect(target.files.isEmpty, "nothing was made where it leads")
        unlink(other.file)
        try #require(mkfifo(other.file, 0o600) == 0)
        #expect(refusal(other.file).contains("not a regular file"))
        unlink(other.file)
        try #require(symlink("/dev/null", other.file + "-wal") == 0)
        #expect(refusal(other.file).contains("relay.sqlite-wal was not opened"))
    }

    @Test func `records that are readable by others are so no longer, and those of another user are refused`() throws {
        try store.database.close()
        try #require(chmod(folder.file, 0o644) == 0)
        let file = try RelayStoreFile(preparing: folder.file)
        var status = stat()
        #expect(stat(folder.file, &status) == 0 && status.st_mode & 0o777 == 0o600)
        try file.checkUnchanged()
        try #require(rename(folder.file, folder.file + ".old") == 0)
        #expect(throws: RelayStoreError.self) { try file.checkUnchanged() }
        try #require(symlink(folder.file + ".old", folder.file) == 0)
        #expect(throws: RelayStoreError.self, "the same file, by a link") { try file.checkUnchanged() }
        unlink(folder.file)
        try #require(rename(folder.file + ".old", folder.file) == 0)
        // Only root can give a file away.
        guard geteuid() == 0 else { return }
        try #require(chown(folder.file, 12_345, 12_345) == 0)
        let error = #expect(throws: RelayStoreError.self) { try RelayStore.open(path: folder.file) }
        #expect(
            error?.description
                == "\(folder.file) cannot be used: it belongs to user 12345 and not to the owner of its directory; "
                + "run chown --reference=\(folder.path) \(folder.file)")
        try #require(chown(folder.path, 12_345, 12_345) == 0)
        _ = try RelayStoreFile(preparing: folder.file)
    }
}
