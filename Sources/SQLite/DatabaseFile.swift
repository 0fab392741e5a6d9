// A database in a file, and its transactions.
import CSQLite
import Synchronization

/// A connection to a database in a file. Calls block, and come one after the other, from whichever threads.
public final class DatabaseFile: Sendable {
    /// Where it is.
    public let path: String
    /// Nil: it has been closed.
    private let connection: Mutex<Connection?>

    /// Only who has the lock uses it.
    private struct Connection: @unchecked Sendable {
        let handle: OpaquePointer
    }

    /// Opens the file at `path`; makes it if there is none. Foreign keys are checked.
    ///
    /// - Parameters:
    ///   - waitsFor: Milliseconds that a call waits for another connection to the file.
    ///   - prepare: What has to be said before the file is read for the first time.
    public init(
        path: String, waitsFor milliseconds: Int32 = 2_000,
        prepare: (Database) throws(DatabaseError) -> Void = { _ throws(DatabaseError) in }
    ) throws(DatabaseError) {
        self.path = path
        var handle: OpaquePointer?
        // One thread at a time has it: that is held here.
        let flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX
        let code = sqlite3_open_v2(path, &handle, flags, nil)
        do throws(DatabaseError) {
            guard code == SQLITE_OK, let handle else { throw DatabaseError(code: code, handle) }
            sqlite3_extended_result_codes(handle, 1)
            sqlite3_busy_timeout(handle, milliseconds)
            try check(ptt_sqlite_refuse_double_quoted_text(handle), handle)
            let database = Database(handle)
            try prepare(database)
            try database.execute("PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF")
            connection = Mutex(Connection(handle: handle))
        } catch {
            sqlite3_close_v2(handle)
            throw error
        }
    }

    deinit { try? close() }

    /// What `body` makes of the database, which is the same for all of its statements; none of them may write.
    public func read<T: Sendable>(_ body: (Database) throws -> T) throws -> T {
        try transaction("BEGIN", mayWrite: false, body)
    }

    /// One transaction: what `body` writes is kept when this returns, and nothing of it when it throws.
    public func write<T: Sendable>(_ body: (Database) throws -> T) throws -> T {
        try transaction("BEGIN IMMEDIATE", mayWrite: true, body)
    }

    /// Statements that are no transaction, each on its own.
    public func withoutTransaction<T: Sendable>(_ body: (Database) throws -> T) throws -> T {
        try locked { handle in try body(Database(handle)) }
    }

    private func transaction<T: Sendable>(
        _ begin: String, mayWrite: Bool, _ body: (Database) throws -> T
    ) throws -> T {
        try locked { handle in
            let database = Database(handle)
            try database.execute(begin)
            do {
                let result = try body(Database(handle, mayWrite: mayWrite))
                try database.execute("COMMIT")
                return result
            } catch {
                // Some failures have ended it already.
                if sqlite3_get_autocommit(handle) == 0 { try? database.execute("ROLLBACK") }
                throw error
            }
        }
    }

    private func locked<T: Sendable>(_ body: (OpaquePointer) throws -> T) throws -> T {
        try connection.withLock { connection in
            guard let connection else { throw DatabaseError(code: SQLITE_MISUSE, message: "it has been closed") }
            return try body(connection.handle)
        }
    }

    /// Ends the connection. The last one to a file writes what is in the log to the file itself.
    public func close() throws(DatabaseError) {
        try connection.withLock { connection throws(DatabaseError) in
            guard let handle = connection?.handle else { return }
            try check(sqlite3_close(handle), handle)
            connection = nil
        }
    }
}
