// Records whose file is lost, before a start or while they are open: nothing is confirmed that the next start does not read.
import Files
import Glibc
import RelayProtocol
import SQLite
import Testing

@testable import RelayStore

@Suite struct LostRecordsTests {
    private func filled() throws -> (Folder, RelayStore, ChannelRecord) {
        let folder = try Folder()
        let store = try RelayStore.open(path: folder.file)
        let channel = try store.addChannel(DisplayName("Yard")!, now: 100)
        return (folder, store, channel)
    }

    private func enrol(_ number: Int, _ store: RelayStore, _ channel: ChannelRecord) throws {
        let token = try #require(try store.standingToken(of: channel.id))
        _ = try store.enrol(device(number), named: DisplayName("Ada")!, with: token, in: channel.id, now: 100)
    }

    @Test func `records that have to be there are not begun anew when the file is missing, empty, or has no table`()
        throws
    {
        for loss in ["missing", "empty", "without tables"] {
            let (folder, store, _) = try filled()
            try store.database.close()
            for suffix in [""] + RelayStoreFile.companions { unlink(folder.file + suffix) }
            switch loss {
            case "empty": close(Glibc.open(folder.file, O_WRONLY | O_CREAT, 0o600))
            case "without tables":
                let empty = try DatabaseFile(path: folder.file)
                try empty.withoutTransaction { try $0.execute("PRAGMA user_version = 7") }
                try empty.close()
            default: break
            }
            let error = #expect(throws: RelayStoreError.self) {
                try RelayStore.open(path: folder.file, mayMake: false)
            }
            #expect(error == .missing(path: folder.file), "\(loss)")
            #expect(error?.mayPass == false && "\(error!)".contains("begin-anew records"))
            #expect(AtomicFile.exists(folder.file) == (loss != "missing"), "nothing is made in its place")
            #expect(try RelayStore.open(path: folder.file).channels().isEmpty, "who begins anew may")
        }
    }

    /// An empty file beside a full log: SQLite would remove the log.
    @Test func `a file that was emptied leaves its log alone`() throws {
        let (folder, store, channel) = try filled()
        try enrol(1, store, channel)
        let log = try RegularFile.read(folder.file + "-wal", byteCountMax: 1 << 24)
        #expect(!log.isEmpty)
        let copy = try Folder()
        close(Glibc.open(copy.file, O_WRONLY | O_CREAT, 0o600))
        try AtomicFile.write(log, to: copy.file + "-wal", isSecret: true)
        #expect(throws: RelayStoreError.missing(path: copy.file)) {
            try RelayStore.open(path: copy.file, mayMake: false)
        }
        #expect(try RegularFile.read(copy.file + "-wal", byteCountMax: 1 << 24) == log)
    }

    @Test(arguments: [
        "rm relay.sqlite", "rm relay.sqlite-wal", "mv relay.sqlite away",
        "cp relay.sqlite copy && mv copy relay.sqlite",
        ": > relay.sqlite", ": > relay.sqlite-wal", "ln -sf /dev/null relay.sqlite",
    ])
    func `what is done to the file while it is open ends the confirmations, and not the reading`(command: String) throws
    {
        let (folder, store, channel) = try filled()
        try enrol(1, store, channel)
        // What was written is in the file itself, too.
        try store.database.withoutTransaction { try $0.execute("PRAGMA wal_checkpoint") }
        try enrol(2, store, channel)
        #expect(system("cd \(folder.path) && \(command)") == 0)
        #expect(throws: RelayStoreError.replaced(path: folder.file)) { try enrol(3, store, channel) }
        #expect(throws: RelayStoreError.replaced(path: folder.file)) { try enrol(3, store, channel) }
        #expect(RelayStoreError.replaced(path: folder.file).description.contains("restart the relay"))
    }

    @Test func `a copy that is made, and other programs that read, disturb nothing`() throws {
        let (folder, store, channel) = try filled()
        for number in 1...200 {
            try enrol(number, store, channel)
            guard number % 50 == 0 else { continue }
            let other = try DatabaseFile(path: folder.file)
            #expect(try other.read { try $0.count("SELECT count(*) FROM member") } == number)
            try other.withoutTransaction { try $0.execute("VACUUM INTO ?", [folder.path + "/copy-\(number).sqlite"]) }
            try other.close()
        }
        #expect(try RelayStore.open(path: folder.path + "/copy-200.sqlite").memberCount(of: channel.id) == 200)
    }
}
