// What transactions change, as bytes that can be applied to another database of the same schema and contents: SQLite's changesets
// (sqlite.org, "The Session Extension").
import CSQLite

extension DatabaseFile {
    /// One transaction, as `write`, with its changes to some tables.
    ///
    /// - Parameters:
    ///   - tables: The tables whose changes are of interest. Each has a primary key.
    ///   - body: What writes.
    ///   - told: Gets the changes before they are kept, unless there are none, and may write to other tables. When it throws, nothing is kept.
    public func write<T: Sendable>(
        recording tables: [String], _ body: (Database) throws -> T, told: (Database, [UInt8]) throws -> Void
    ) throws -> T {
        try write { database in
            let (result, changes) = try database.recording(tables) { try body(database) }
            if !changes.isEmpty { try told(database, changes) }
            return result
        }
    }
}

extension Database {
    /// What `body` makes, and what it has changed in `tables`; empty: nothing.
    public func recording<T>(_ tables: [String], _ body: () throws -> T) throws -> (T, [UInt8]) {
        var session: OpaquePointer?
        try check(sqlite3session_create(handle, "main", &session))
        defer { sqlite3session_delete(session) }
        for table in tables { try check(sqlite3session_attach(session, table)) }
        let result = try body()
        var count: Int32 = 0
        var start: UnsafeMutableRawPointer?
        try check(sqlite3session_changeset(session, &count, &start))
        defer { sqlite3_free(start) }
        return (result, Array(UnsafeRawBufferPointer(start: start, count: Int(count))))
    }

    /// Applies the changes of a transaction of another database.
    ///
    /// - Throws: `DatabaseError` of the kind `.conflict` where this database is not what they were made to. The transaction that this
    ///   is part of must not be kept then.
    public func apply(_ changes: [UInt8]) throws(DatabaseError) {
        try check(ptt_sqlite_apply(handle, changes, Int32(clamping: changes.count)))
    }

    private func check(_ code: Int32) throws(DatabaseError) {
        guard code == SQLITE_OK else { throw DatabaseError(code: code, handle) }
    }
}
