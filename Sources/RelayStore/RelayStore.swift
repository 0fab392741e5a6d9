// A relay's records on disk: SQLite, written so that neither a kill nor a power cut loses what was confirmed.
import Cryptography
import Files
import RelayProtocol
import SQLite
import Synchronization

/// The channels, invitations and members of one relay.
///
/// Every call is one transaction, and has reached the disk when it returns (WAL with synchronous = FULL). One process has a
/// relay's records at a time: that is held with a lock on the state directory (`RelayStoreLock`), not here. Calls block, for
/// some milliseconds as a rule.
public final class RelayStore: Sendable {
    /// Limits of what is kept; what is beyond is refused.
    public struct Limits: Sendable {
        /// Channels, served or not.
        public var channels = 1_000_000
        /// Members of one channel, those removed included.
        public var membersPerChannel = 20_000
        /// Invitations of one channel that are open.
        public var invitationsPerChannel = 1_000
        /// The usual ones.
        public init() {}
    }

    let database: DatabaseFile
    let limits: Limits
    private let file: RelayStoreFile
    private let log = Mutex<(any RecordLog)?>(nil)

    /// The file's name in the state directory.
    public static let fileName = "relay.sqlite"

    /// Opens the records in the file at `path`.
    ///
    /// - Parameter mayMake: Whether records are begun if there are none: a file that is not there or empty. A relay that has a key
    ///   has had records, and is not to forget its members because of a lost file.
    /// - Throws: `RelayStoreError.missing`, `.unusable`, `.notNow`, `.unsafe`, `.damaged`, `.newer`.
    public static func open(
        path: String, limits: Limits = Limits(), mayMake: Bool = true
    ) throws(RelayStoreError) -> RelayStore {
        do {
            return try RelayStore(path: path, limits: limits, mayMake: mayMake, sharesLog: true)
        } catch {
            let error = RelayStoreError(error, path: path)
            guard case .notNow = error else { throw error }
            // The index of the log wants room on the disk even for reading. Alone with the file, SQLite keeps it in memory.
            if let store = try? RelayStore(path: path, limits: limits, mayMake: mayMake, sharesLog: false) {
                return store
            }
            throw error
        }
    }

    /// Gives records that are damaged, or not wanted any more, another name.
    ///
    /// - Returns: That name; nil: there were none.
    /// - Throws: `RelayStoreError`.
    public static func setAside(path: String, as word: String) throws(RelayStoreError) -> String? {
        guard AtomicFile.exists(path) else { return nil }
        do throws(FileError) {
            return try AtomicFile.setAside(path, as: word, companions: RelayStoreFile.companions)
        } catch {
            throw RelayStoreError(error)
        }
    }

    private init(path: String, limits: Limits, mayMake: Bool, sharesLog: Bool) throws {
        self.limits = limits
        file = try RelayStoreFile(preparing: path, mayMake: mayMake)
        database = try DatabaseFile(path: path) { database throws(DatabaseError) in
            if !sharesLog { try database.execute("PRAGMA locking_mode = EXCLUSIVE") }
        }
        try file.checkUnchanged()
        let isEmpty = try database.read { try $0.count("SELECT count(*) FROM sqlite_master") == 0 }
        guard mayMake || !isEmpty else { throw RelayStoreError.missing(path: path) }
        try database.withoutTransaction { db in
            guard try db.value("PRAGMA journal_mode = WAL") == "wal" else {
                throw RelayStoreError.unusable(path: path, why: "its directory cannot hold SQLite's log")
            }
            try db.execute("PRAGMA synchronous = FULL")
        }
        try database.write { db in
            guard try db.value("PRAGMA quick_check(1)") == "ok" else { throw DatabaseError.corrupt("its check fails") }
        }
        if try database.read({ try RelayStoreSchema.isNewer($0) }) { throw RelayStoreError.newer(path: path) }
        try RelayStoreSchema.bringUp(database)
        try file.checkInPlace()
    }

    /// Ends it: everything is in the file itself then. Nothing can be read or written afterwards.
    ///
    /// - Throws: `RelayStoreError`.
    public func close() throws(RelayStoreError) {
        do { try database.close() } catch { throw RelayStoreError(error, path: database.path) }
    }

    // MARK: Transactions

    func write<T: Sendable>(_ body: @Sendable (Database) throws -> T) throws(RelayStoreError) -> T {
        let log = log.withLock { $0 }
        let result = try writing {
            if let log { return try write(body, to: log) }
            return try database.write { db in
                guard try Self.logPlace(db) == nil else { throw RelayStoreError.inCluster }
                return try body(db)
            }
        }
        // So that nothing is confirmed that is only where nobody will read it.
        try file.checkInPlace()
        return result
    }

    /// From now on what is written is in `log` as well, before it counts. The file knows its place in that log (`LogPlace`).
    public func share(with log: any RecordLog) { self.log.withLock { $0 = log } }

    /// A transaction of the relay itself that its cluster is not told of.
    func writeAlone<T: Sendable>(_ body: @Sendable (Database) throws -> T) throws(RelayStoreError) -> T {
        try writing { try database.write(body) }
    }

    private func writing<T>(_ transaction: () throws -> T) throws(RelayStoreError) -> T {
        // Nothing is written where nobody will read it.
        try file.checkInPlace()
        do { return try transaction() } catch { throw .notWritten(error, path: database.path) }
    }

    func read<T: Sendable>(_ body: @Sendable (Database) throws -> T) throws(RelayStoreError) -> T {
        do {
            return try database.read(body)
        } catch {
            throw RelayStoreError(error, path: database.path)
        }
    }

    /// Reads every record, so that none that is damaged is met by chance only.
    ///
    /// - Throws: `RelayStoreError.damaged`, `.unusable`.
    public func check() throws(RelayStoreError) {
        try read { db in
            try db.forEachRow("SELECT * FROM channel") { _ = try Self.channel($0) }
            try db.forEachRow("SELECT * FROM invitation") { _ = try Self.invitation($0) }
            try db.forEachRow("SELECT * FROM member") { _ = try Self.member($0) }
            _ = try Self.lastStart(db)
        }
    }

    // MARK: The last start

    /// The name in invitations and the port, of the last start; nil before the first.
    public func lastStart() throws(RelayStoreError) -> (host: String, port: UInt16)? {
        try read { db in try Self.lastStart(db) }
    }

    private static func lastStart(_ db: Database) throws -> (host: String, port: UInt16)? {
        guard let row = try db.row("SELECT host, port FROM start") else { return nil }
        let kept = KeptRow(row, of: "start")
        return (try kept.value("host"), try kept.value("port"))
    }

    /// Keeps how members reach the relay; writes only what is new.
    public func setLastStart(host: String, port: UInt16) throws(RelayStoreError) {
        if let last = try lastStart(), last == (host, port) { return }
        try write { db in
            try db.execute("DELETE FROM start")
            try db.execute("INSERT INTO start VALUES (?, ?)", [host, port])
        }
    }
}
