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
        try check(sqlite3session_create(handle, "main", &session), handle)
        defer { sqlite3session_delete(session) }
        for table in tables { try check(sqlite3session_attach(session, table), handle) }
        let result = try body()
        var count: Int32 = 0
        var start: UnsafeMutableRawPointer?
        try check(sqlite3session_changeset(session, &count, &start), handle)
        defer { sqlite3_free(start) }
        return (result, Array(UnsafeRawBufferPointer(start: start, count: Int(count))))
    }

    /// Applies the changes of a transaction of another database.
    ///
    /// - Throws: `DatabaseError` of the kind `.conflict` where this database is not what they were made to. The transaction that this
    ///   is part of must not be kept then.
    public func apply(_ changes: [UInt8]) throws(DatabaseError) {
        try check(ptt_sqlite_apply(handle, changes, Int32(clamping: changes.count)), handle)
    }
}

/// A row that changes insert, change or remove.
public struct TouchedRow: Hashable, Sendable {
    /// What is done to it.
    public enum Operation: Hashable, Sendable {
        /// It is new.
        case insertion
        /// It has other values, with the same key.
        case change
        /// It is gone.
        case removal
    }

    /// Its table.
    public let table: String
    /// What is done to it.
    public let operation: Operation
    /// The values of its primary key, in the order of the table's columns.
    public let key: [Value]
    /// What its columns had before, in their order. Of a row that is changed, only the key and the columns that change are told, the others
    /// are nil. Empty: it is new.
    public let before: [Value?]
    /// What its columns have then, in their order. Of a row that is changed, only the columns that change are told, the others are nil.
    /// Empty: it is gone.
    public let after: [Value?]
}

/// Reads the rows that changes are made to, one by one, in the order in which they are applied (see `Database.recording`).
///
/// SQLite 3.40 may not come back from changes that are damaged. They are only read here if they are known to be whole.
public final class TouchedRows {
    private let bytes: UnsafeMutableRawBufferPointer
    private var handle: OpaquePointer?

    /// The rows of `changes`. It has a copy of them.
    public init(of changes: [UInt8]) throws(DatabaseError) {
        // SQLite keeps the address; and at the end it reads numbers of up to nine bytes before it sees that they are not all there.
        bytes = .allocate(byteCount: changes.count + 9, alignment: 8)
        bytes.initializeMemory(as: UInt8.self, repeating: 0)
        bytes.copyBytes(from: changes)
        try check(sqlite3changeset_start(&handle, Int32(clamping: changes.count), bytes.baseAddress), nil)
    }

    deinit {
        sqlite3changeset_finalize(handle)
        bytes.deallocate()
    }

    /// The next row; nil: there is none any more.
    ///
    /// - Throws: `DatabaseError` of the kind `.corrupt` where they are no changes.
    public func next() throws(DatabaseError) -> TouchedRow? {
        let code = sqlite3changeset_next(handle)
        guard code != SQLITE_DONE else { return nil }
        guard code == SQLITE_ROW else { throw DatabaseError(code: code, nil) }
        var table: UnsafePointer<CChar>?
        var (count, number): (Int32, Int32) = (0, 0)
        try check(sqlite3changeset_op(handle, &table, &count, &number, nil), nil)
        guard let table, let operation = TouchedRow.Operation(number) else { throw .corrupt("a change of no kind") }
        var isKey: UnsafeMutablePointer<UInt8>?
        try check(sqlite3changeset_pk(handle, &isKey, nil), nil)
        let keys = UnsafeBufferPointer(start: isKey, count: Int(count))
        let before = operation == .insertion ? [] : try values(count, sqlite3changeset_old)
        let after = operation == .removal ? [] : try values(count, sqlite3changeset_new)
        return TouchedRow(
            table: String(cString: table), operation: operation,
            key: zip(keys, operation == .insertion ? after : before).compactMap { $0 == 0 ? nil : $1 },
            before: before, after: after)
    }

    private func values(
        _ count: Int32, _ read: (OpaquePointer?, Int32, UnsafeMutablePointer<OpaquePointer?>?) -> Int32
    ) throws(DatabaseError) -> [Value?] {
        var values: [Value?] = []
        for index in 0..<count {
            var value: OpaquePointer?
            try check(read(handle, index, &value), nil)
            values.append(value.map { Value(of: $0) })
        }
        return values
    }
}

extension TouchedRow.Operation {
    /// Nil: it is not SQLite's number of one.
    fileprivate init?(_ number: Int32) {
        switch number {
        case SQLITE_INSERT: self = .insertion
        case SQLITE_UPDATE: self = .change
        case SQLITE_DELETE: self = .removal
        default: return nil
        }
    }
}
