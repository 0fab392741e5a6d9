// A relay's records on disk: SQLite, written so that neither a kill nor a power cut loses what was confirmed.
import Cryptography
import GRDB
import RelayProtocol

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

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

    /// The file's name in the state directory.
    public static let fileName = "relay.sqlite"

    /// Opens the records in the file at `path`, and makes them if there are none.
    ///
    /// - Parameter settingDamageAside: Whether a file that is no database any more is renamed, and empty records are begun; else it
    ///   is left as it is, and refused.
    /// - Returns: The records; and, when a damaged file was set aside for them, what to tell the operator.
    /// - Throws: `RelayStoreError.unusable`, `.unsafe`, `.damaged`, `.newer`.
    public static func open(
        path: String, limits: Limits = Limits(), settingDamageAside: Bool = true
    ) throws(RelayStoreError) -> (RelayStore, notice: String?) {
        do {
            return (try opened(path, limits), nil)
        } catch .damaged(_, let what) where settingDamageAside {
            let aside = try setAside(path)
            let notice =
                "\(path) was damaged (\(what)) and is kept as \(aside); the relay begins "
                + "with empty records: invite its members again, or stop it and restore a copy of the file"
            return (try opened(path, limits), notice)
        }
    }

    private static func opened(_ path: String, _ limits: Limits) throws(RelayStoreError) -> RelayStore {
        do {
            return try RelayStore(path: path, limits: limits)
        } catch {
            throw RelayStoreError(error, path: path)
        }
    }

    private init(path: String, limits: Limits) throws {
        self.limits = limits
        var configuration = Configuration()
        configuration.label = "relay records"
        configuration.journalMode = .wal
        configuration.busyMode = .timeout(2)
        configuration.prepareDatabase { db in
            try db.execute(sql: "PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF")
        }
        let file = try RelayStoreFile(preparing: path)
        database = try DatabaseQueue(path: path, configuration: configuration)
        try file.checkUnchanged()
        // Not before: with WAL, GRDB sets NORMAL, and a power cut would lose what was confirmed last.
        try database.writeWithoutTransaction { try $0.execute(sql: "PRAGMA synchronous = FULL") }
        try database.write { db in
            guard let verdict = try String.fetchOne(db, sql: "PRAGMA quick_check(1)"), verdict == "ok" else {
                throw DatabaseError(resultCode: .SQLITE_CORRUPT, message: "its check fails")
            }
        }
        let migrator = Self.migrator
        if try database.read({ try migrator.hasBeenSuperseded($0) }) { throw RelayStoreError.newer(path: path) }
        try migrator.migrate(database)
    }

    /// Renames a damaged file with what belongs to it, under the first name that is free.
    private static func setAside(_ path: String) throws(RelayStoreError) -> String {
        for number in 1...99 {
            let aside = "\(path).damaged-\(number)"
            guard access(aside, F_OK) != 0 else { continue }
            guard rename(path, aside) == 0 else { break }
            for suffix in RelayStoreFile.companions where access(path + suffix, F_OK) == 0 {
                rename(path + suffix, aside + suffix)
            }
            return aside
        }
        throw .unusable(path: path, why: "it is damaged and cannot be renamed")
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

    // MARK: Transactions

    func write<T: Sendable>(_ body: @Sendable (Database) throws -> T) throws(RelayStoreError) -> T {
        do {
            return try database.write(body)
        } catch {
            throw .notWritten(error, path: database.path)
        }
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

    /// Keeps how members reach the relay.
    public func setLastStart(host: String, port: UInt16) throws(RelayStoreError) {
        try write { db in
            try db.execute(sql: "DELETE FROM start")
            try db.execute(sql: "INSERT INTO start VALUES (?, ?)", arguments: [host, Int(port)])
        }
    }
}
