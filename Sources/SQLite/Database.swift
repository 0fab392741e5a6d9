// Statements on an open database.
import CSQLite

/// An open database, for the length of a call of `DatabaseFile`.
public final class Database {
    let handle: OpaquePointer
    let mayWrite: Bool

    init(_ handle: OpaquePointer, mayWrite: Bool = true) {
        self.handle = handle
        self.mayWrite = mayWrite
    }

    /// The key of the row that was inserted last.
    public var lastInsertedRowID: Int64 { sqlite3_last_insert_rowid(handle) }

    /// Runs the statements of `sql`, one after the other. Only a single one may have arguments.
    public func execute(_ sql: String, _ arguments: [(any DatabaseValue)?] = []) throws(DatabaseError) {
        let text = Array(sql.utf8CString)
        var place = 0
        while let statement = try Statement(self, text, from: &place) {
            try statement.bind(arguments)
            while try statement.step() {}
        }
    }

    /// The rows that a statement finds.
    public func rows(_ sql: String, _ arguments: [(any DatabaseValue)?] = []) throws(DatabaseError) -> [Row] {
        let statement = try statement(sql, arguments)
        var rows: [Row] = []
        while let row = try statement.next() { rows.append(row) }
        return rows
    }

    /// Hands over the rows that a statement finds, one by one.
    public func forEachRow(
        _ sql: String, _ arguments: [(any DatabaseValue)?] = [], _ body: (Row) throws -> Void
    ) throws {
        let statement = try statement(sql, arguments)
        while let row = try statement.next() { try body(row) }
    }

    /// The first row that a statement finds.
    public func row(_ sql: String, _ arguments: [(any DatabaseValue)?] = []) throws(DatabaseError) -> Row? {
        try statement(sql, arguments).next()
    }

    /// The first value of the first row that a statement finds; nil: there is no row, or the value is something else.
    public func value<T: DatabaseValue>(
        _ sql: String, _ arguments: [(any DatabaseValue)?] = []
    ) throws(DatabaseError) -> T? {
        try row(sql, arguments)?.values.first.flatMap { T($0) }
    }

    /// The number that a statement finds, as of `SELECT count(*)`; 0: none.
    public func count(_ sql: String, _ arguments: [(any DatabaseValue)?] = []) throws(DatabaseError) -> Int {
        try value(sql, arguments) ?? 0
    }

    private func statement(_ sql: String, _ arguments: [(any DatabaseValue)?]) throws(DatabaseError) -> Statement {
        var place = 0
        guard let statement = try Statement(self, Array(sql.utf8CString), from: &place) else {
            throw DatabaseError(code: SQLITE_MISUSE, message: "no statement in '\(sql)'")
        }
        try statement.bind(arguments)
        return statement
    }
}

/// A prepared statement.
private final class Statement {
    private let database: Database
    private let handle: OpaquePointer
    private lazy var columns: [String] = (0..<sqlite3_column_count(handle)).map { index in
        sqlite3_column_name(handle, index).map { String(cString: $0) } ?? ""
    }

    /// The statement that begins at `place` of `text`, which goes behind it; nil: there is none any more.
    init?(_ database: Database, _ text: [CChar], from place: inout Int) throws(DatabaseError) {
        var statement: OpaquePointer?
        var code = SQLITE_OK
        // What has only spaces or a comment is no statement.
        while statement == nil, code == SQLITE_OK, text[place] != 0 {
            place = text.withUnsafeBufferPointer { text in
                guard let begin = text.baseAddress else { return place }
                var end: UnsafePointer<CChar>?
                code = sqlite3_prepare_v2(database.handle, begin + place, -1, &statement, &end)
                return end.map { $0 - begin } ?? place
            }
        }
        guard code == SQLITE_OK else { throw DatabaseError(code: code, database.handle) }
        guard let statement else { return nil }
        self.database = database
        handle = statement
        guard database.mayWrite || sqlite3_stmt_readonly(statement) != 0 else {
            throw DatabaseError(code: SQLITE_READONLY, message: "a read does not write")
        }
    }

    deinit { sqlite3_finalize(handle) }

    func bind(_ arguments: [(any DatabaseValue)?]) throws(DatabaseError) {
        guard sqlite3_bind_parameter_count(handle) == Int32(arguments.count) else {
            throw DatabaseError(code: SQLITE_RANGE, message: "the number of arguments does not match the statement")
        }
        for (index, argument) in zip(Int32(1)..., arguments) {
            let code =
                switch argument?.value ?? .null {
                case .null: sqlite3_bind_null(handle, index)
                case .integer(let number): sqlite3_bind_int64(handle, index, number)
                case .real(let number): sqlite3_bind_double(handle, index, number)
                case .text(let text):
                    ptt_sqlite_bind_text(handle, index, text, Int32(clamping: text.utf8.count))
                case .bytes(let bytes): ptt_sqlite_bind_bytes(handle, index, bytes, Int32(clamping: bytes.count))
                }
            try check(code, database.handle)
        }
    }

    /// Whether there is another row.
    func step() throws(DatabaseError) -> Bool {
        let code = sqlite3_step(handle)
        guard code == SQLITE_ROW || code == SQLITE_DONE else { throw DatabaseError(code: code, database.handle) }
        return code == SQLITE_ROW
    }

    func next() throws(DatabaseError) -> Row? {
        guard try step() else { return nil }
        return Row(
            columns: columns,
            values: (0..<sqlite3_column_count(handle)).map { Value(of: sqlite3_column_value(handle, $0)) })
    }
}
