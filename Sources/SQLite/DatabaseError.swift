// The errors of SQLite.
import CSQLite

/// Why SQLite did not do what it was asked.
public struct DatabaseError: Error, Hashable, CustomStringConvertible {
    /// What kind of failure it is.
    public enum Kind: Hashable, Sendable {
        /// The file has contents that SQLite did not write.
        case corrupt
        /// The file is no database.
        case notADatabase
        /// The disk is full.
        case full
        /// The disk cannot be read or written.
        case inputOutput
        /// Another connection has the file.
        case busy
        /// Memory is short.
        case outOfMemory
        /// A connection could not go on; the same may succeed later.
        case interrupted
        /// A condition of the schema would not hold.
        case constraint
        /// Changes do not fit what is there.
        case conflict
        /// Anything else.
        case other
    }

    /// SQLite's number, with its details.
    public let code: Int32
    /// SQLite's words.
    public let message: String

    /// A failure that was found here and not by SQLite.
    public init(code: Int32, message: String) {
        self.code = code
        self.message = message
    }

    init(code: Int32, _ handle: OpaquePointer?) {
        // Without a handle there was no memory for one.
        let text = handle.flatMap { sqlite3_errmsg($0) } ?? sqlite3_errstr(code)
        self.init(code: code, message: text.map { String(cString: $0) } ?? "error \(code)")
    }

    /// The file's contents are wrong, though SQLite could read them.
    public static func corrupt(_ message: String) -> DatabaseError {
        DatabaseError(code: SQLITE_CORRUPT, message: message)
    }

    /// See `Kind`.
    public var kind: Kind {
        // The low byte; what is above tells more of it.
        switch code & 0xFF {
        case SQLITE_CORRUPT: .corrupt
        case SQLITE_NOTADB: .notADatabase
        case SQLITE_FULL: .full
        case SQLITE_IOERR: .inputOutput
        case SQLITE_BUSY, SQLITE_LOCKED: .busy
        case SQLITE_NOMEM: .outOfMemory
        case SQLITE_PROTOCOL, SQLITE_INTERRUPT: .interrupted
        case SQLITE_CONSTRAINT: .constraint
        case SQLITE_ABORT: .conflict
        default: .other
        }
    }

    /// SQLite's words and its number.
    public var description: String { "\(message) (SQLite's code \(code))" }
}

/// Throws unless SQLite has done what it was asked, by the code that it returned.
func check(_ code: Int32, _ handle: OpaquePointer?) throws(DatabaseError) {
    guard code == SQLITE_OK else { throw DatabaseError(code: code, handle) }
}
