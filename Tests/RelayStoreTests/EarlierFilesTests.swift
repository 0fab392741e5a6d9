// Files that the first versions have written, by way of GRDB.
import Files
import RelayProtocol
import SQLite
import Testing

@testable import RelayStore

@Suite struct EarlierFilesTests {
    /// What `sqlite3 relay.sqlite .dump` said of a relay's records of version 0.1.
    private static let dump = """
        CREATE TABLE grdb_migrations (identifier TEXT NOT NULL PRIMARY KEY);
        CREATE TABLE start (host TEXT NOT NULL, port INTEGER NOT NULL) STRICT;
        CREATE TABLE channel (
            id TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL UNIQUE, endToEnd INTEGER NOT NULL,
            added INTEGER NOT NULL
        , served INTEGER NOT NULL DEFAULT 1) STRICT;
        CREATE TABLE invitation (
            number INTEGER PRIMARY KEY AUTOINCREMENT, channel TEXT NOT NULL REFERENCES channel (id),
            digest TEXT NOT NULL UNIQUE, standing TEXT, expiresAt INTEGER, uses INTEGER,
            used INTEGER NOT NULL DEFAULT 0, priority INTEGER NOT NULL, listenOnly INTEGER NOT NULL,
            madeAt INTEGER NOT NULL, withdrawnAt INTEGER, CHECK (uses IS NULL OR used <= uses)
        ) STRICT;
        CREATE INDEX invitationOfChannel ON invitation (channel);
        CREATE UNIQUE INDEX standingOfChannel ON invitation (channel)
            WHERE standing IS NOT NULL AND withdrawnAt IS NULL;
        CREATE TABLE member (
            channel TEXT NOT NULL REFERENCES channel (id), id TEXT NOT NULL, name TEXT NOT NULL,
            invitation INTEGER NOT NULL REFERENCES invitation (number), priority INTEGER NOT NULL,
            listenOnly INTEGER NOT NULL, enrolledAt INTEGER NOT NULL, revokedAt INTEGER,
            PRIMARY KEY (channel, id)
        ) STRICT, WITHOUT ROWID;
        INSERT INTO grdb_migrations VALUES('1');
        INSERT INTO grdb_migrations VALUES('2');
        INSERT INTO channel VALUES('568aed65-f084-40ab-975e-e9bb8aea6291','Yard',0,0,1);
        INSERT INTO channel VALUES('3b19fe47-b60d-4c12-ba8b-0cbd541e01e7','Dock',0,0,1);
        INSERT INTO invitation VALUES(1,'568aed65-f084-40ab-975e-e9bb8aea6291',
            'aa5528321b28b2e867fa6962fc07211eb9d6628d2fb0f924fb4502498e0b17a8','NXSnGIPB-Y5ToarvKoZBVg',
            NULL,NULL,0,0,0,1795640446,NULL);
        INSERT INTO invitation VALUES(2,'3b19fe47-b60d-4c12-ba8b-0cbd541e01e7',
            '789ded1e2404c9b2862d14ff52916f238e4ca57ec8e611dc5a92212a58f68dec','YMbfFQSWtZTbjfPQR3PQxw',
            NULL,NULL,0,0,0,1795640446,NULL);
        INSERT INTO start VALUES('relay.example',47279);
        """

    private func tables(_ database: DatabaseFile) throws -> [String: String] {
        let rows = try database.read { try $0.rows("SELECT name, sql FROM sqlite_master WHERE sql NOTNULL") }
        return try Dictionary(
            uniqueKeysWithValues: rows.map { row in
                // Only where lines begin differs.
                let sql = try #require(row["sql"].flatMap { String($0) })
                let name = try #require(row["name"].flatMap { String($0) })
                return (name, sql.split(whereSeparator: \.isWhitespace).joined(separator: " "))
            })
    }

    @Test func `a file of version 0.1 gets what is new once, and a new one has the same tables`() throws {
        let earlier = try Folder()
        let made = try DatabaseFile(path: earlier.file)
        try made.withoutTransaction { try $0.execute("PRAGMA journal_mode = WAL") }
        try made.write { try $0.execute(Self.dump) }
        try made.close()

        let store = try RelayStore.open(path: earlier.file, mayMake: false)
        try store.check()
        #expect(try store.channels().map(\.name.text) == ["Dock", "Yard"])
        #expect(try store.lastStart()?.port == 47_279)
        #expect(try store.channels().allSatisfy { $0.settings == ChannelSettings() && !$0.isDeclared })
        let tables = try tables(store.database)
        try store.close()
        let bytes = try RegularFile.read(earlier.file, byteCountMax: 1 << 24)
        let next = try RelayStore.open(path: earlier.file, mayMake: false)
        try next.check()
        try next.close()
        #expect(try RegularFile.read(earlier.file, byteCountMax: 1 << 24) == bytes, "nothing is written again")

        let new = try Folder()
        #expect(try self.tables(try RelayStore.open(path: new.file).database) == tables)

        let again = try RelayStore.open(path: earlier.file, mayMake: false)
        let yard = try again.channel(named: "Yard")
        let token = try #require(try again.standingToken(of: yard.id))
        let outcome = try again.enrol(device(1), named: DisplayName("Ada")!, with: token, in: yard.id, now: 100)
        guard case .member(let member) = outcome else { return #expect(Bool(false), "\(outcome)") }
        #expect(member.invitation == 1)
    }
}
