// What changes of another node have changed, in words of a relay: who serves channels while it follows has to take these up.
import Cryptography
import RelayProtocol
import SQLite

/// The channels and members whose records may be others than before.
public struct RecordChanges: Sendable, Equatable {
    /// Channels that are new, changed or gone, or with an invitation that is (a channel's standing token is one of them). Every enrolment
    /// counts a use of an invitation, so its channel is among them.
    public private(set) var channels: Set<ChannelID> = []
    /// Members that are new, changed or gone, by their channels. None of the sets is empty.
    public private(set) var members: [ChannelID: Set<MemberID>] = [:]
    /// Whether every record may be another one: all were replaced, or too many changed to tell which. Neither channels nor members are
    /// named then.
    public private(set) var isEverything = false

    /// Changes; by default none. What is named besides everything is left out.
    public init(channels: Set<ChannelID> = [], members: [ChannelID: Set<MemberID>] = [:], isEverything: Bool = false) {
        self.isEverything = isEverything
        guard !isEverything else { return }
        self.channels = channels
        self.members = members.filter { !$0.value.isEmpty }
    }

    /// Whether nothing of interest has changed.
    public var isEmpty: Bool { !isEverything && channels.isEmpty && members.isEmpty }

    /// Adds what has changed besides, before or after.
    public mutating func formUnion(_ other: RecordChanges) {
        guard !isEverything else { return }
        guard !other.isEverything else { return self = other }
        channels.formUnion(other.channels)
        members.merge(other.members) { $0.union($1) }
    }
}

extension RecordChanges {
    /// Rows that are looked at in the changes of one transaction. Where there are more, everything counts as changed.
    static let rowsMaximum = 1_000_000

    /// Adds what the changes of a transaction are made to.
    ///
    /// - Parameters:
    ///   - changes: The changes.
    ///   - db: As it is before they are applied.
    /// - Throws: `RelayStoreError.differs` where the changes are not such as a node writes; `DatabaseError`.
    mutating func insertRows(
        of changes: [UInt8], appliedTo db: Database, rowsMaximum: Int = rowsMaximum
    ) throws {
        guard !isEverything else { return }
        let rows = try TouchedRows(of: changes)
        var count = 0
        while let row = try Self.next(rows) {
            count += 1
            guard count <= rowsMaximum else { return self = RecordChanges(isEverything: true) }
            switch row.table {
            case "channel": channels.insert(try Self.channel(row.key.first, row))
            case "invitation": try insertChannels(of: row, db)
            case "member":
                let id = try Self.identifier(row.key.last, "id", row) { text in
                    Hexadecimal.decode(text).flatMap { MemberID(bytes: $0) }
                }
                members[try Self.channel(row.key.first, row), default: []].insert(id)
            default: break
            }
        }
    }

    /// Where the channel is in a row of `invitation`. Columns of later versions are behind it.
    static let invitationChannelColumn = 1

    private mutating func insertChannels(of row: TouchedRow, _ db: Database) throws {
        let index = Self.invitationChannelColumn
        for values in [row.before, row.after] where values.indices.contains(index) {
            if let value = values[index] { channels.insert(try Self.channel(value, row)) }
        }
        // A row that is changed has no value for a column that stays.
        guard row.operation == .change else { return }
        // Without such a row the changes do not fit the file, as is seen when they are applied.
        if let found = try db.row("SELECT channel FROM invitation WHERE number = ?", row.key) {
            channels.insert(try RelayStore.channelID(KeptRow(found, of: "invitation")))
        }
    }

    private static func next(_ rows: TouchedRows) throws -> TouchedRow? {
        do throws(DatabaseError) {
            return try rows.next()
        } catch {
            // It is the changes that are damaged, and not the file.
            guard error.kind == .corrupt else { throw error }
            throw RelayStoreError.differs("a change of another node is damaged")
        }
    }

    private static func channel(_ value: Value?, _ row: TouchedRow) throws -> ChannelID {
        try identifier(value, row.table == "channel" ? "id" : "channel", row) { ChannelID($0) }
    }

    private static func identifier<ID>(
        _ value: Value?, _ column: String, _ row: TouchedRow, _ read: (String) -> ID?
    ) throws -> ID {
        guard let id = value.flatMap({ String($0) }).flatMap(read) else {
            throw RelayStoreError.differs(
                "a change of another node has an invalid '\(column)' for table '\(row.table)'")
        }
        return id
    }
}
