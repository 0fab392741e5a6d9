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
    /// - Returns: The records; and, when a damaged file was set aside for them, what to tell the operator.
    /// - Throws: `RelayStoreError.unusable`, `.newer`.
    public static func open(
        path: String, limits: Limits = Limits()
    ) throws(RelayStoreError) -> (RelayStore, notice: String?) {
        do {
            return (try RelayStore(path: path, limits: limits), nil)
        } catch let error as DatabaseError where Self.isDamage(error) {
            let aside = try setAside(path)
            do {
                let notice =
                    "\(path) was damaged (\(error.message ?? "\(error.resultCode)")) and is kept as \(aside); the relay begins "
                    + "with empty records: invite its members again, or stop it and restore a copy of the file"
                return (try RelayStore(path: path, limits: limits), notice)
            } catch {
                throw .unusable(path: path, why: "\(error)")
            }
        } catch let error as RelayStoreError {
            throw error
        } catch let error as DatabaseError {
            throw .unusable(path: path, why: error.message ?? "\(error.resultCode)")
        } catch {
            throw .unusable(path: path, why: "\(error)")
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
        // SQLite makes its other files with the rights of this one: nobody else may read the secrets.
        let descriptor = Glibc.open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else {
            throw RelayStoreError.unusable(path: path, why: String(cString: strerror(errno)))
        }
        Self.giveToOwner(of: path, descriptor)
        close(descriptor)
        database = try DatabaseQueue(path: path, configuration: configuration)
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

    /// Root may open the records of a relay that runs as another user: a file that it makes is that user's, whose the directory
    /// is. SQLite does the same for the files beside it.
    private static func giveToOwner(of path: String, _ descriptor: Int32) {
        guard geteuid() == 0 else { return }
        let directory = path.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(separator: "/")
        var owner = stat()
        var file = stat()
        guard stat(directory.isEmpty ? "." : directory, &owner) == 0, fstat(descriptor, &file) == 0 else { return }
        if file.st_uid != owner.st_uid, file.st_size == 0 { _ = fchown(descriptor, owner.st_uid, owner.st_gid) }
    }

    private static func isDamage(_ error: DatabaseError) -> Bool {
        [.SQLITE_CORRUPT, .SQLITE_NOTADB].contains(error.resultCode)
    }

    /// Renames a damaged file with what belongs to it, under the first name that is free.
    private static func setAside(_ path: String) throws(RelayStoreError) -> String {
        for number in 1...99 {
            let aside = "\(path).damaged-\(number)"
            guard access(aside, F_OK) != 0 else { continue }
            guard rename(path, aside) == 0 else { break }
            for suffix in ["-wal", "-shm"] where access(path + suffix, F_OK) == 0 {
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
        return migrator
    }

    // MARK: Transactions

    func write<T: Sendable>(_ body: @Sendable (Database) throws -> T) throws(RelayStoreError) -> T {
        do {
            return try database.write(body)
        } catch {
            throw .notWritten(error)
        }
    }

    func read<T: Sendable>(_ body: @Sendable (Database) throws -> T) throws(RelayStoreError) -> T {
        do {
            return try database.read(body)
        } catch let error as RelayStoreError {
            throw error
        } catch {
            throw .unusable(path: database.path, why: "\(error)")
        }
    }

    // MARK: The last start

    /// The name in invitations and the port, of the last start; nil before the first.
    public func lastStart() throws(RelayStoreError) -> (host: String, port: UInt16)? {
        let kept = try read { db in
            try Row.fetchOne(db, sql: "SELECT host, port FROM start").map { ($0["host"] as String, $0["port"] as Int) }
        }
        guard let kept, let port = UInt16(exactly: kept.1) else { return nil }
        return (kept.0, port)
    }

    /// Keeps how members reach the relay.
    public func setLastStart(host: String, port: UInt16) throws(RelayStoreError) {
        try write { db in
            try db.execute(sql: "DELETE FROM start")
            try db.execute(sql: "INSERT INTO start VALUES (?, ?)", arguments: [host, Int(port)])
        }
    }
}
