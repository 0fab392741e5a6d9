// The tables of a relay's records, and the migrations from earlier versions.
import SQLite

/// What the file has to look like.
enum RelayStoreSchema {
    /// In the order of the versions that brought them. Never changed: files have been through them.
    private static let steps: [(name: String, sql: String)] = [
        (
            "1",
            """
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
            """
        ),
        // Whatever was known was served by a start that named no channels.
        ("2", "ALTER TABLE channel ADD COLUMN served INTEGER NOT NULL DEFAULT 1"),
        // Settings of channels that no configuration names. The index is for the removal of invitations, whose members are looked for.
        (
            "3",
            """
            ALTER TABLE channel ADD COLUMN declared INTEGER NOT NULL DEFAULT 0;
            ALTER TABLE channel ADD COLUMN mode TEXT NOT NULL DEFAULT 'half-duplex';
            ALTER TABLE channel ADD COLUMN queue INTEGER NOT NULL DEFAULT 0;
            ALTER TABLE channel ADD COLUMN preemptionStep INTEGER;
            ALTER TABLE channel ADD COLUMN keptBursts INTEGER;
            ALTER TABLE channel ADD COLUMN keptMilliseconds INTEGER;
            CREATE INDEX memberOfInvitation ON member (invitation);
            CREATE TABLE retry (secret TEXT NOT NULL) STRICT;
            """
        ),
        // Each table that nodes of a cluster share has a primary key, by which changes name its rows.
        (
            "4",
            """
            ALTER TABLE start RENAME TO earlierStart;
            CREATE TABLE start (host TEXT PRIMARY KEY NOT NULL, port INTEGER NOT NULL) STRICT;
            INSERT INTO start SELECT host, port FROM earlierStart LIMIT 1;
            DROP TABLE earlierStart;
            ALTER TABLE retry RENAME TO earlierRetry;
            CREATE TABLE retry (secret TEXT PRIMARY KEY NOT NULL) STRICT;
            INSERT INTO retry SELECT secret FROM earlierRetry LIMIT 1;
            DROP TABLE earlierRetry;
            CREATE TABLE node (
                identifier TEXT PRIMARY KEY NOT NULL, cluster TEXT, epoch INTEGER NOT NULL, position INTEGER NOT NULL
            ) STRICT;
            """
        ),
    ]

    /// The tables that nodes of a cluster share, those that others refer to first.
    static let sharedTables = ["start", "channel", "invitation", "member", "retry"]

    /// Whether a later version has had the file.
    static func isNewer(_ db: Database) throws -> Bool {
        try !taken(db).isSubset(of: steps.map(\.name))
    }

    /// Applies the migrations that the file has not seen. It writes nothing when there are none, because the disk may
    /// be full.
    static func bringUp(_ database: DatabaseFile) throws {
        let taken = try database.read { try Self.taken($0) }
        guard !steps.allSatisfy({ taken.contains($0.name) }) else { return }
        // Outside of a transaction, which would not let it change. A step may break references that it mends.
        try database.withoutTransaction { try $0.execute("PRAGMA foreign_keys = OFF") }
        for step in steps where !taken.contains(step.name) {
            try database.write { db in
                try db.execute("CREATE TABLE IF NOT EXISTS \(table) (identifier TEXT NOT NULL PRIMARY KEY)")
                try db.execute(step.sql)
                guard try db.row("PRAGMA foreign_key_check") == nil else {
                    throw DatabaseError.corrupt("a row refers to a missing row")
                }
                try db.execute("INSERT INTO \(table) (identifier) VALUES (?)", [step.name])
            }
        }
        try database.withoutTransaction { try $0.execute("PRAGMA foreign_keys = ON") }
    }

    /// The name that GRDB, which wrote the first versions' files, gave the list of steps.
    private static let table = "grdb_migrations"

    private static func taken(_ db: Database) throws -> Set<String> {
        guard try db.count("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?", [table]) > 0 else {
            return []
        }
        return Set(
            try db.rows("SELECT identifier FROM \(table)").map { try KeptRow($0, of: table).value("identifier") })
    }
}
