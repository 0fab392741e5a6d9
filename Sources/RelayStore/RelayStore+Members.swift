// The members of a relay's channels: looked up, removed, let in again.
import Cryptography
import GRDB
import RelayProtocol

extension RelayStore {
    /// The members of a channel, those removed included, in the order of their identifiers: at most `limit`, after `after`.
    public func members(
        of channel: ChannelID, after: MemberID? = nil, limit: Int
    ) throws(RelayStoreError) -> [MemberRecord] {
        try read { db in
            try Row.fetchAll(
                db, sql: "SELECT * FROM member WHERE channel = ? AND id > ? ORDER BY id LIMIT ?",
                arguments: [channel.description, after?.description ?? "", limit]
            ).compactMap(Self.member)
        }
    }

    /// The number of members of a channel, without those removed.
    public func memberCount(of channel: ChannelID) throws(RelayStoreError) -> Int {
        try read { db in
            try Int.fetchOne(
                db, sql: "SELECT count(*) FROM member WHERE channel = ? AND revokedAt ISNULL",
                arguments: [channel.description]) ?? 0
        }
    }

    /// The member that an operator means: by its identifier, the beginning of it (4 digits or more), or its name.
    ///
    /// - Throws: `RelayStoreError.unknownMember` when it is none or could be several.
    public func member(_ text: String, of channel: ChannelID) throws(RelayStoreError) -> MemberRecord {
        let digits = text.lowercased()
        let isDigits = (4...2 * MemberID.byteCount).contains(digits.utf8.count) && digits.allSatisfy(\.isHexDigit)
        // Every identifier that begins with those digits lies between them and them followed by a later letter.
        let range = isDigits ? (digits, digits + "g") : ("", "")
        let found = try read { db in
            try Row.fetchAll(
                db, sql: "SELECT * FROM member WHERE channel = ? AND (name = ? OR id >= ? AND id < ?) LIMIT 5",
                arguments: [channel.description, text, range.0, range.1]
            ).compactMap(Self.member)
        }
        guard let member = found.first, found.count == 1 else {
            throw .unknownMember(text, candidates: found.map { "\($0.name) (\($0.id))" })
        }
        return member
    }

    /// Removes a member. Unless told otherwise the invitation it came by is withdrawn, so that the same link does not let
    /// another device of the same person in.
    ///
    /// - Parameter now: Seconds since 1970.
    public func revoke(
        _ member: MemberID, from channel: ChannelID, keepingInvitation: Bool = false, now: Int64
    ) throws(RelayStoreError) -> Revocation {
        try write { db in
            guard let record = try Self.member(member, of: channel, db) else {
                throw RelayStoreError.unknownMember(member.description, candidates: [])
            }
            try db.execute(
                sql: "UPDATE member SET revokedAt = ifnull(revokedAt, ?) WHERE channel = ? AND id = ?",
                arguments: [now, channel.description, member.description])
            let withdrawn = keepingInvitation ? nil : try Self.withdraw(record.invitation, of: channel, now, db)
            return Revocation(
                member: record, hasWithdrawnInvitation: withdrawn != nil, hasNewStandingInvitation: withdrawn == true,
                wasRevoked: record.revokedAt != nil)
        }
    }

    /// Lets a member that was removed come again, or changes what a member may do.
    ///
    /// - Parameters: `nil` leaves what it was.
    public func readmit(
        _ member: MemberID, to channel: ChannelID, priority: UInt8? = nil, isListenOnly: Bool? = nil
    ) throws(RelayStoreError) -> MemberRecord {
        try write { db in
            try db.execute(
                sql: """
                    UPDATE member SET revokedAt = NULL, priority = ifnull(?, priority),
                        listenOnly = ifnull(?, listenOnly) WHERE channel = ? AND id = ?
                    """,
                arguments: [priority.map { Int($0) }, isListenOnly, channel.description, member.description])
            guard let record = try Self.member(member, of: channel, db) else {
                throw RelayStoreError.unknownMember(member.description, candidates: [])
            }
            return record
        }
    }

    static func member(_ id: MemberID, of channel: ChannelID, _ db: Database) throws -> MemberRecord? {
        try Row.fetchOne(
            db, sql: "SELECT * FROM member WHERE channel = ? AND id = ?",
            arguments: [channel.description, id.description]
        ).flatMap(member)
    }

    private static func member(_ row: Row) -> MemberRecord? {
        guard let id = Hexadecimal.decode(row["id"] as String).flatMap({ MemberID(bytes: $0) }),
            let name = DisplayName(row["name"] as String)
        else { return nil }
        return MemberRecord(
            id: id, name: name, invitation: row["invitation"], priority: UInt8(clamping: row["priority"] as Int),
            isListenOnly: row["listenOnly"], enrolledAt: row["enrolledAt"], revokedAt: row["revokedAt"])
    }
}
