// A relay's records on disk: SQLite, written so that neither a kill nor a power cut loses what was confirmed.
import Cryptography
import Files
import GRDB
import RelayProtocol

/// The channels, invitations and members of one relay.
///
/// Every call is one transaction, and has reached the disk when it returns (WAL with synchronous = FULL). One process has a
/// relay's records at a time: that is held with a lock on the state directory (`RelayStoreLock`), not here. Calls block, for
/// some milliseconds as a rule.
public final class RelayStore: Sendable {
    /// Limits of what is kept; what is beyond is refused.
    public struct Limits: Sendable {
        /// Channels.
        public var channels = 4_096
        /// Members of one channel, those removed included.
        public var membersPerChannel = 20_000
        /// Invitations of one channel that are open.
        public var invitationsPerChannel = 1_000
        /// The usual ones.
        public init() {}
    }

    let database: DatabaseQueue
    let limits: Limits
    private let file: RelayStoreFile

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
        var configuration = Configuration()
        configuration.label = "relay records"
        configuration.busyMode = .timeout(2)
        configuration.prepareDatabase { db in
            // Before the file is read for the first time.
            if !sharesLog { try db.execute(sql: "PRAGMA locking_mode = EXCLUSIVE") }
            try db.execute(sql: "PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF")
        }
        file = try RelayStoreFile(preparing: path, mayMake: mayMake)
        database = try DatabaseQueue(path: path, configuration: configuration)
        try file.checkUnchanged()
        let isEmpty = try database.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM sqlite_master") == 0 }
        guard mayMake || !isEmpty else { throw RelayStoreError.missing(path: path) }
        // By hand: GRDB would write something, for which a full disk has no room.
        try database.writeWithoutTransaction { db in
            guard try String.fetchOne(db, sql: "PRAGMA journal_mode = WAL") == "wal" else {
                throw RelayStoreError.unusable(path: path, why: "its directory cannot have SQLite's log")
            }
            try db.execute(sql: "PRAGMA synchronous = FULL")
        }
        try database.write { db in
            guard let verdict = try String.fetchOne(db, sql: "PRAGMA quick_check(1)"), verdict == "ok" else {
                throw DatabaseError(resultCode: .SQLITE_CORRUPT, message: "its check fails")
            }
        }
        let migrator = Self.migrator
        if try database.read({ try migrator.hasBeenSuperseded($0) }) { throw RelayStoreError.newer(path: path) }
        if try database.read({ try !migrator.hasCompletedMigrations($0) }) { try migrator.migrate(database) }
        try file.checkInPlace()
    }

    private static var migrator: DatabaseMigrator {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("1") { db in
            try db.execute(
                sql: """
                    CREATE TABLE start (host TEXT NOT NULL, port INTEGER NOT NULL) STRICT;
                    CREATE TABLE channel (
                        id TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL UNIQUE, endToEnd INTEGER NOT NULL,
                        added INTEGER NOT NULL
                    ) STRICT;
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
                    """)
        }
        migrator.registerMigration("2") { db in
            // Whatever was known was served by a start that named no channels.
            try db.execute(sql: "ALTER TABLE channel ADD COLUMN served INTEGER NOT NULL DEFAULT 1")
        }
        return migrator
    }

    /// Ends it: everything is in the file itself then. Nothing can be read or written afterwards.
    ///
    /// - Throws: `RelayStoreError`.
    public func close() throws(RelayStoreError) {
        do { try database.close() } catch { throw RelayStoreError(error, path: database.path) }
    }

    // MARK: Transactions

    func write<T: Sendable>(_ body: @Sendable (Database) throws -> T) throws(RelayStoreError) -> T {
        // Before, so that nothing is written where nobody will read it; and after, so that nothing is confirmed that is only there.
        try file.checkInPlace()
        let result: T
        do {
            result = try database.write(body)
        } catch {
            throw .notWritten(error, path: database.path)
        }
        try file.checkInPlace()
        return result
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
            let channels = try Row.fetchCursor(db, sql: "SELECT * FROM channel")
            while let row = try channels.next() { _ = try Self.channel(row) }
            let invitations = try Row.fetchCursor(db, sql: "SELECT * FROM invitation")
            while let row = try invitations.next() { _ = try Self.invitation(row) }
            let members = try Row.fetchCursor(db, sql: "SELECT * FROM member")
            while let row = try members.next() { _ = try Self.member(row) }
            _ = try Self.lastStart(db)
        }
    }

    // MARK: The last start

    /// The name in invitations and the port, of the last start; nil before the first.
    public func lastStart() throws(RelayStoreError) -> (host: String, port: UInt16)? {
        try read { db in try Self.lastStart(db) }
    }

    private static func lastStart(_ db: Database) throws -> (host: String, port: UInt16)? {
        guard let row = try Row.fetchOne(db, sql: "SELECT host, port FROM start") else { return nil }
        let kept = KeptRow(row, of: "start")
        return (try kept.value("host"), try kept.value("port") { (port: Int64) in UInt16(exactly: port) })
    }

    /// Keeps how members reach the relay; writes only what is new.
    public func setLastStart(host: String, port: UInt16) throws(RelayStoreError) {
        if let last = try lastStart(), last == (host, port) { return }
        try write { db in
            try db.execute(sql: "DELETE FROM start")
            try db.execute(sql: "INSERT INTO start VALUES (?, ?)", arguments: [host, Int(port)])
        }
    }
}
