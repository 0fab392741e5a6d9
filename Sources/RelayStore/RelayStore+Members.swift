// The members of a relay's channels: lookup, removal and readmission.
import Cryptography
import RelayProtocol
import SQLite

extension RelayStore {
    /// The members of a channel, those removed included, in the order of their identifiers: at most `limit`, after `after`.
    public func members(
        of channel: ChannelID, after: MemberID? = nil, limit: Int
    ) throws(RelayStoreError) -> [MemberRecord] {
        try read { db in
            try db.rows(
                "SELECT * FROM member WHERE channel = ? AND id > ? ORDER BY id LIMIT ?",
                [channel.description, after?.description ?? "", limit]
            ).map(Self.member)
        }
    }

    /// Every member of every channel, those removed included.
    public func members() throws(RelayStoreError) -> [ChannelID: [MemberRecord]] {
        try membersByChannel("", [])
    }

    /// Members of a channel, those removed included, in the order of their identifiers. Those that it does not have are left out.
    public func members(
        _ ids: Set<MemberID>, of channel: ChannelID
    ) throws(RelayStoreError) -> [MemberRecord] {
        try read { db in
            try db.rows(
                """
                SELECT * FROM member WHERE channel = ? AND id IN (SELECT value FROM json_each(?)) ORDER BY id
                """, [channel.description, Self.list(ids)]
            ).map(Self.member)
        }
    }

    /// Every member of some channels, those removed included. Channels without any are left out.
    public func members(ofChannels ids: Set<ChannelID>) throws(RelayStoreError) -> [ChannelID: [MemberRecord]] {
        try membersByChannel("WHERE channel IN (SELECT value FROM json_each(?))", [Self.list(ids)])
    }

    /// Identifiers as one argument, because the number of arguments has a limit. They are digits, letters and hyphens.
    private static func list(_ ids: some Sequence<some CustomStringConvertible>) -> String {
        "[" + ids.map { "\"\($0)\"" }.joined(separator: ",") + "]"
    }

    private func membersByChannel(
        _ condition: String, _ arguments: [String]
    ) throws(RelayStoreError) -> [ChannelID: [MemberRecord]] {
        try read { db in
            var all: [ChannelID: [MemberRecord]] = [:]
            try db.forEachRow("SELECT * FROM member \(condition)", arguments) { row in
                all[try Self.channelID(KeptRow(row, of: "member")), default: []].append(try Self.member(row))
            }
            return all
        }
    }

    /// The member of that identifier.
    ///
    /// - Throws: `RelayStoreError.unknownMember`.
    public func member(_ id: MemberID, of channel: ChannelID) throws(RelayStoreError) -> MemberRecord {
        try read { db in try Self.known(id, of: channel, db) }
    }

    /// The number of members of a channel, without those removed.
    public func memberCount(of channel: ChannelID) throws(RelayStoreError) -> Int {
        try read { db in
            try db.count(
                "SELECT count(*) FROM member WHERE channel = ? AND revokedAt ISNULL",
                [channel.description])
        }
    }

    /// The member that an operator means: by its identifier, the beginning of it (4 digits or more), the name it
    /// enrolled by, or the one it is connected with now. A complete identifier takes precedence over names.
    ///
    /// - Parameter connected: The connected members and their names.
    /// - Throws: `RelayStoreError.unknownMember` when no member or several members match.
    public func member(
        _ text: String, of channel: ChannelID, connected: [MemberID: DisplayName] = [:]
    ) throws(RelayStoreError) -> MemberRecord {
        let candidates = Self.candidatesMaximum
        let called = connected.filter { $0.value.text == text }.keys.sorted { $0.description < $1.description }
        let found = try read { db in
            if let id = Hexadecimal.decode(text.lowercased()).flatMap({ MemberID(bytes: $0) }) {
                return try Self.member(id, of: channel, db).map { [$0] } ?? []
            }
            var found = try Self.members(called: text, of: channel, db)
            for id in called.prefix(candidates) where !found.contains(where: { $0.id == id }) {
                if let member = try Self.member(id, of: channel, db) { found.append(member) }
            }
            return found
        }
        guard let member = found.first, found.count == 1 else {
            throw .unknownMember(
                text,
                candidates: found.prefix(candidates).map { member in
                    let now = connected[member.id].flatMap { $0 == member.name ? nil : ", now \($0)" }
                    return "\(member.name)\(now ?? "") (\(member.id))"
                })
        }
        return member
    }

    /// The members of a channel that have enrolled by this name, or whose identifier begins with it: as many as an error lists.
    public func members(called text: String, of channel: ChannelID) throws(RelayStoreError) -> [MemberID] {
        try read { db in try Self.members(called: text, of: channel, db) }.map(\.id)
    }

    private static func members(called text: String, of channel: ChannelID, _ db: Database) throws -> [MemberRecord] {
        let digits = text.lowercased()
        let isDigits = (4...2 * MemberID.byteCount).contains(digits.utf8.count) && digits.allSatisfy(\.isHexDigit)
        // Every identifier that begins with those digits lies between them and them followed by a later letter.
        let range = isDigits ? (digits, digits + "g") : ("", "")
        return try db.rows(
            "SELECT * FROM member WHERE channel = ? AND (name = ? OR id >= ? AND id < ?) LIMIT ?",
            [channel.description, text, range.0, range.1, candidatesMaximum]
        ).map(member)
    }

    /// The most members that an error lists.
    private static let candidatesMaximum = 5

    /// Removes a member. Unless requested otherwise, its invitation is withdrawn, so that the same link does not admit
    /// another device of the same person.
    ///
    /// - Parameter now: Seconds since 1970.
    public func revoke(
        _ member: MemberID, from channel: ChannelID, keepingInvitation: Bool = false, now: Int64
    ) throws(RelayStoreError) -> Revocation {
        try write { db in
            let record = try Self.known(member, of: channel, db)
            try db.execute(
                "UPDATE member SET revokedAt = ifnull(revokedAt, ?) WHERE channel = ? AND id = ?",
                [now, channel.description, member.description])
            let withdrawn = keepingInvitation ? nil : try Self.withdraw(record.invitation, of: channel, now, db)
            return Revocation(
                member: record, hasWithdrawnInvitation: withdrawn != nil, hasNewStandingInvitation: withdrawn == true,
                wasRevoked: record.revokedAt != nil)
        }
    }

    /// Withdraws an invitation, unless it is already, and removes everybody who came by it.
    ///
    /// - Parameter now: Seconds since 1970.
    /// - Throws: `RelayStoreError.unknownInvitation`, `.notWritten`.
    public func revokeMembers(
        invitedBy number: Int64, to channel: ChannelID, now: Int64
    ) throws(RelayStoreError) -> InvitationRevocation {
        try write { db in
            let members = try Self.members(invitedBy: number, to: channel, db)
            try db.execute(
                "UPDATE member SET revokedAt = ? WHERE channel = ? AND invitation = ? AND revokedAt ISNULL",
                [now, channel.description, number])
            let withdrawn = try Self.withdraw(number, of: channel, now, db)
            return InvitationRevocation(
                members: members, hasWithdrawnInvitation: withdrawn != nil, hasNewStandingInvitation: withdrawn == true)
        }
    }

    /// The members that enrolled with an invitation, without removed ones.
    ///
    /// - Throws: `RelayStoreError.unknownInvitation`.
    public func members(invitedBy number: Int64, to channel: ChannelID) throws(RelayStoreError) -> [MemberID] {
        try read { db in try Self.members(invitedBy: number, to: channel, db) }
    }

    private static func members(invitedBy number: Int64, to channel: ChannelID, _ db: Database) throws -> [MemberID] {
        guard try find(number, channel, db) != nil else { throw RelayStoreError.unknownInvitation(number) }
        return try db.rows(
            "SELECT * FROM member WHERE channel = ? AND invitation = ? AND revokedAt ISNULL ORDER BY id",
            [channel.description, number]
        ).map { try member($0).id }
    }

    /// Lets a member that was removed come again, or changes what a member may do and is called in lists.
    ///
    /// - Parameters: `nil` leaves what it was.
    public func readmit(
        _ member: MemberID, to channel: ChannelID, name: DisplayName? = nil, priority: UInt8? = nil,
        isListenOnly: Bool? = nil
    ) throws(RelayStoreError) -> MemberRecord {
        try write { db in
            try db.execute(
                """
                UPDATE member SET revokedAt = NULL, name = ifnull(?, name), priority = ifnull(?, priority),
                    listenOnly = ifnull(?, listenOnly) WHERE channel = ? AND id = ?
                """,
                [name?.text, priority, isListenOnly, channel.description, member.description])
            return try Self.known(member, of: channel, db)
        }
    }

    private static func known(_ id: MemberID, of channel: ChannelID, _ db: Database) throws -> MemberRecord {
        guard let member = try member(id, of: channel, db) else {
            throw RelayStoreError.unknownMember(id.description, candidates: [])
        }
        return member
    }

    static func member(_ id: MemberID, of channel: ChannelID, _ db: Database) throws -> MemberRecord? {
        try db.row(
            "SELECT * FROM member WHERE channel = ? AND id = ?",
            [channel.description, id.description]
        ).map(member)
    }

    static func member(_ row: Row) throws -> MemberRecord {
        let kept = KeptRow(row, of: "member")
        return MemberRecord(
            id: try kept.value("id") { Hexadecimal.decode($0).flatMap { MemberID(bytes: $0) } },
            name: try kept.value("name") { DisplayName($0) },
            invitation: try kept.value("invitation"), priority: try kept.value("priority"),
            isListenOnly: try kept.value("listenOnly"), enrolledAt: try kept.value("enrolledAt"),
            revokedAt: try kept.value("revokedAt"))
    }
}
