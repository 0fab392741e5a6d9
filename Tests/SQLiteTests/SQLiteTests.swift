// Statements, transactions and failures of a database in a file.
import Glibc
import SQLite
import Testing

@Suite struct SQLiteTests {
    private let path: String
    private let file: DatabaseFile

    init() throws {
        var template = Array("/tmp/sqlite-tests-XXXXXX".utf8CString)
        try #require(mkdtemp(&template) != nil)
        path =
            String(decoding: template.dropLast().map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self) + "/file.sqlite"
        file = try DatabaseFile(path: path)
        try file.write { try $0.execute("CREATE TABLE a (number INTEGER, anything ANY) STRICT") }
    }

    private func kind(_ body: () throws -> Void) -> DatabaseError.Kind? {
        #expect(throws: DatabaseError.self) { try body() }?.kind
    }

    @Test func `values come back as they were given, and as nothing else`() throws {
        let text = "größer\u{0}than \u{1F4FB}"
        try file.write { db in
            try db.execute("INSERT INTO a VALUES (?, ?), (?, ?)", [Int64.min, text, nil, true])
            try db.execute("INSERT INTO a VALUES (3, 1.5), (4, x'C328'), (5, x''), (6, CAST(x'C328' AS TEXT))")
            #expect(db.lastInsertedRowID == 6)
        }
        let rows = try file.read { try $0.rows("SELECT * FROM a ORDER BY rowid") }
        #expect(rows.map { $0["number"] } == [.integer(.min), .null] + (3...6).map { .integer($0) })
        let kept: [Value?] = [
            .text(text), .integer(1), .real(1.5), .bytes([0xC3, 0x28]), .bytes([]), .bytes([0xC3, 0x28]),
        ]
        #expect(rows.map { $0["anything"] } == kept)
        #expect(rows[0]["other"] == nil)
        #expect(String(.integer(1)) == nil && Int(.text("1")) == nil && Bool(.integer(2)) == nil)
        #expect(Int64(.real(1)) == nil && String(.null) == nil)
    }

    @Test func `each of several statements runs, also behind a comment`() throws {
        try file.withoutTransaction { db in
            try db.execute("INSERT INTO a VALUES (1, 1); -- one\n ; INSERT INTO a VALUES (2, 2); -- two")
            try db.execute(" -- none")
            #expect(try db.count("SELECT count(*) FROM a") == 2)
            #expect(try db.value("SELECT number FROM a WHERE number = 9") as Int? == nil)
        }
        #expect(kind { try file.withoutTransaction { _ = try $0.row("-- nothing") } } == .other)
        #expect(kind { try file.write { try $0.execute("INSERT INTO a VALUES (?, ?)", [1]) } } == .other)
    }

    @Test func `a write that fails leaves nothing, whoever failed`() throws {
        struct Other: Error {}
        #expect(throws: Other.self) {
            try file.write { db in
                try db.execute("INSERT INTO a VALUES (1, 1)")
                throw Other()
            }
        }
        let error = kind {
            try file.write { try $0.execute("INSERT INTO a VALUES (1, 1); INSERT INTO a VALUES ('x', 1)") }
        }
        #expect(error == .constraint)
        #expect(try file.read { try $0.count("SELECT count(*) FROM a") } == 0)
        try file.write { try $0.execute("INSERT INTO a VALUES (1, 1)") }
        #expect(try file.read { try $0.count("SELECT count(*) FROM a") } == 1)
    }

    @Test func `a read cannot write, foreign keys hold, and text has single quotes`() throws {
        #expect(kind { try file.read { try $0.execute("DELETE FROM a") } } == .other)
        #expect(kind { try file.read { _ = try $0.row("SELECT \"nonsense\" FROM a") } } == .other)
        try file.write { try $0.execute("CREATE TABLE b (id PRIMARY KEY); CREATE TABLE c (b REFERENCES b (id))") }
        #expect(kind { try file.write { try $0.execute("INSERT INTO c VALUES (1)") } } == .constraint)
    }

    @Test func `another connection is waited for, but not for ever; a reader sees one state`() throws {
        let other = try DatabaseFile(path: path, waitsFor: 50)
        #expect(try file.withoutTransaction { try $0.value("PRAGMA journal_mode = WAL") } == "wal")
        try file.write { db in
            try db.execute("INSERT INTO a VALUES (1, 1)")
            #expect(kind { try other.write { try $0.execute("INSERT INTO a VALUES (2, 2)") } } == .busy)
            #expect(try other.read { try $0.count("SELECT count(*) FROM a") } == 0)
        }
        try other.read { db in
            #expect(try db.count("SELECT count(*) FROM a") == 1)
            try file.write { try $0.execute("INSERT INTO a VALUES (2, 2)") }
            #expect(try db.count("SELECT count(*) FROM a") == 1)
        }
        #expect(try other.read { try $0.count("SELECT count(*) FROM a") } == 2)
    }

    @Test func `a full file, one that is no database and a closed one are told apart`() throws {
        try file.withoutTransaction { try $0.execute("PRAGMA max_page_count = 1") }
        #expect(kind { try file.write { try $0.execute("INSERT INTO a VALUES (1, zeroblob(100000))") } } == .full)
        try file.withoutTransaction { try $0.execute("PRAGMA max_page_count = 1000") }
        try file.write { try $0.execute("INSERT INTO a VALUES (1, zeroblob(100000))") }
        try file.close()
        try file.close()
        #expect(kind { _ = try file.read { try $0.count("SELECT 1") } } == .other)
        #expect(kind { _ = try DatabaseFile(path: path + "/nowhere") } == .other)
        let descriptor = open(path, O_WRONLY)
        #expect(pwrite(descriptor, Array(repeating: 0xA5 as UInt8, count: 4_096), 4_096, 0) == 4_096)
        close(descriptor)
        let damaged = try DatabaseFile(path: path)
        let error = kind { _ = try damaged.read { try $0.count("SELECT count(*) FROM a") } }
        #expect(error == .notADatabase)
    }
}
