// The records of a node of a cluster: what it writes is in the cluster's log before it counts, and what others have written is applied.
import Cryptography
import SQLite

/// The log of a cluster: every change of its records, in their order.
public protocol RecordLog: Sendable {
    /// Appends what a transaction changes. It blocks.
    ///
    /// - Parameter place: Where the file of the records is in the log; its end, unless another node has written.
    /// - Returns: The position of what was appended.
    /// - Throws: Why that was not possible. Nothing of the transaction is kept then.
    func append(_ changes: [UInt8], behind place: LogPlace) throws -> UInt64

    /// The log has a change that the file has not: it could not be kept after all.
    func isAhead(because error: any Error)
}

/// Where the file of a node's records is in the log of its cluster.
public struct LogPlace: Equatable, Sendable {
    /// Identifies the cluster: 16 bytes in hexadecimal.
    public var cluster: String
    /// The node that wrote last counts the nodes that have served.
    public var epoch: UInt64
    /// The last position whose record is in the file.
    public var position: UInt64

    /// A place.
    public init(cluster: String, epoch: UInt64, position: UInt64) {
        self.cluster = cluster
        self.epoch = epoch
        self.position = position
    }
}

extension RelayStore {
    /// What identifies this file among those of a cluster. It is made when it is first asked for.
    public func nodeIdentifier() throws(RelayStoreError) -> String {
        if let known = try read({ db -> String? in try db.value("SELECT identifier FROM node") }) { return known }
        return try writeAlone { db in
            let made = Hexadecimal.encode(SecureRandom.bytes(8))
            try db.execute("INSERT INTO node VALUES (?, NULL, 0, 0)", [made])
            return made
        }
    }

    /// Where the file is in the log of its cluster; nil: it has never been in one.
    public func logPlace() throws(RelayStoreError) -> LogPlace? { try read { db in try Self.logPlace(db) } }

    static func logPlace(_ db: Database) throws -> LogPlace? {
        guard let row = try db.row("SELECT * FROM node WHERE cluster NOTNULL") else { return nil }
        let kept = KeptRow(row, of: "node")
        return LogPlace(
            cluster: try kept.value("cluster"), epoch: try kept.value("epoch"),
            position: try kept.value("position"))
    }

    private static func set(_ place: LogPlace, _ db: Database) throws {
        try db.execute(
            "UPDATE node SET cluster = ?, epoch = ?, position = ?", [place.cluster, place.epoch, place.position])
    }

    /// Applies what other nodes have written, as one transaction.
    ///
    /// - Parameters:
    ///   - changes: The changes, in the order of the log.
    ///   - place: Where the file is in the log then.
    ///   - isBeginning: Whether they are changes to none. Then there must be no channels, or those of an earlier place in the same cluster,
    ///     which they replace.
    /// - Returns: Whose records they have changed; everything, if they are a beginning.
    /// - Throws: `RelayStoreError.differs` where the file does not fit the log.
    @discardableResult
    public func apply(
        _ changes: [[UInt8]], upTo place: LogPlace, isBeginning: Bool = false
    ) throws(RelayStoreError) -> RecordChanges {
        _ = try nodeIdentifier()
        return try writeAlone { db in
            let known = try Self.logPlace(db)
            if isBeginning {
                let isOfCluster = known.map { $0.cluster == place.cluster && $0.position < place.position } ?? false
                guard try isOfCluster || db.count("SELECT count(*) FROM channel") == 0 else {
                    throw RelayStoreError.differs("it has channels of its own")
                }
                // Of a start without a cluster that served nothing, or of what the log has no more.
                for table in RelayStoreSchema.sharedTables.reversed() { try db.execute("DELETE FROM \(table)") }
            } else if known?.cluster != place.cluster {
                throw RelayStoreError.differs("it is of another cluster")
            }
            var touched = RecordChanges(isEverything: isBeginning)
            for changes in changes {
                // Each before it is applied: it may change rows that the one before has made, and that a later one removes.
                try touched.insertRows(of: changes, appliedTo: db)
                do throws(DatabaseError) {
                    try db.apply(changes)
                } catch {
                    guard error.kind == .conflict else { throw error }
                    throw RelayStoreError.differs("a change of another node does not fit it")
                }
            }
            try Self.set(place, db)
            return touched
        }
    }

    /// Rows in one change of `everything`.
    public static let rowsEach = 5_000

    /// All records, as changes to none in the order in which they are applied.
    ///
    /// - Parameter rowsEach: Rows in one of them.
    public func everything(rowsEach: Int = rowsEach) throws(RelayStoreError) -> [[UInt8]] {
        try read { db in try Self.everything(in: db, rowsEach) }
    }

    private static func everything(in db: Database, _ rowsEach: Int = rowsEach) throws -> [[UInt8]] {
        let copy = try DatabaseFile(path: ":memory:")
        try RelayStoreSchema.bringUp(copy)
        return try RelayStoreSchema.sharedTables.flatMap { table in
            try rows(of: table, db, copiedTo: copy, rowsEach)
        }
    }

    /// Has `append` put all records into the log; nothing else is written meanwhile. Afterwards the file is behind them.
    ///
    /// - Parameter append: Gets the records (see `everything`) and where the file is; returns the positions of what it has appended, or nil
    ///   where it has appended nothing.
    /// - Returns: What `append` has returned.
    /// - Throws: `RelayStoreError`.
    public func repeatEverything(
        _ append: @Sendable ([[UInt8]], LogPlace) throws -> ClosedRange<UInt64>?
    ) throws(RelayStoreError) -> ClosedRange<UInt64>? {
        try writeAlone { db in
            guard var place = try Self.logPlace(db) else { throw RelayStoreError.differs("it is of no cluster") }
            guard let positions = try append(try Self.everything(in: db), place) else { return nil }
            place.position = positions.upperBound
            try Self.set(place, db)
            return positions
        }
    }

    private static func rows(
        of table: String, _ db: Database, copiedTo copy: DatabaseFile, _ count: Int
    ) throws -> [[UInt8]] {
        var result: [[UInt8]] = []
        let key = try db.rows("SELECT name FROM pragma_table_info('\(table)') WHERE pk > 0 ORDER BY pk")
            .compactMap { row in row["name"].flatMap { String($0) } }.joined(separator: ", ")
        while true {
            let rows = try db.rows(
                "SELECT * FROM \(table) ORDER BY \(key) LIMIT ? OFFSET ?", [count, result.count * count])
            guard let first = rows.first else { return result }
            let places = Array(repeating: "?", count: first.values.count).joined(separator: ", ")
            let changes = try copy.write { copied in
                try copied.recording([table]) {
                    for row in rows { try copied.execute("INSERT INTO \(table) VALUES (\(places))", row.values) }
                }.1
            }
            result.append(changes)
        }
    }

    /// The file is at the beginning of a new cluster, whose first records are its own.
    public func begin(_ place: LogPlace) throws(RelayStoreError) {
        _ = try nodeIdentifier()
        try writeAlone { db in try Self.set(place, db) }
    }

    /// The file has no part in a cluster any more.
    public func leaveCluster() throws(RelayStoreError) {
        try writeAlone { db in try db.execute("UPDATE node SET cluster = NULL, epoch = 0, position = 0") }
    }

    /// A transaction whose changes are in `log` before they count.
    func write<T: Sendable>(_ body: @Sendable (Database) throws -> T, to log: any RecordLog) throws -> T {
        var isAppended = false
        do {
            return try database.write(recording: RelayStoreSchema.sharedTables, body) { db, changes in
                guard var place = try Self.logPlace(db) else { throw RelayStoreError.differs("it is of no cluster") }
                place.position = try log.append(changes, behind: place)
                isAppended = true
                try Self.set(place, db)
            }
        } catch {
            if isAppended { log.isAhead(because: error) }
            throw error
        }
    }
}
