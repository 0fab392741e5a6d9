// Invitations, and the devices that become members by them.
import Cryptography
import RelayProtocol
import SQLite

extension RelayStore {
    /// Makes an invitation. Only the hash of its secret is kept.
    ///
    /// - Returns: Its number.
    /// - Throws: `RelayStoreError.limit`, `.notWritten`.
    @discardableResult
    public func invite(
        to channel: ChannelID, token: InvitationToken, terms: InvitationTerms, now: Int64
    ) throws(RelayStoreError) -> Int64 {
        let limit = limits.invitationsPerChannel
        return try write { db in
            guard try Self.openInvitationCount(of: channel, now, db) < limit else {
                throw RelayStoreError.limit(
                    "the channel has \(limit) open invitations; withdraw some with 'pttrelay revoke CHANNEL --invitation N'"
                )
            }
            return try Self.insert(token, isStanding: false, terms, channel, now, db)
        }
    }

    /// The number of invitations by which devices can enrol at `now`, in seconds since 1970.
    public func openInvitationCount(of channel: ChannelID, now: Int64) throws(RelayStoreError) -> Int {
        try read { db in try Self.openInvitationCount(of: channel, now, db) }
    }

    private static func openInvitationCount(of channel: ChannelID, _ now: Int64, _ db: Database) throws -> Int {
        try db.count("SELECT count(*) FROM invitation WHERE channel = ? AND \(isOpen)", [channel.description, now])
    }

    /// Whether devices can enrol by an invitation at a time, which is its argument.
    static let isOpen = """
        withdrawnAt ISNULL AND (uses ISNULL OR used < uses) AND (expiresAt ISNULL OR expiresAt > ?)
        """

    /// A channel's invitations, latest first, at most `limit`, and before the one of that number.
    public func invitations(
        to channel: ChannelID, before number: Int64 = .max, limit: Int
    ) throws(RelayStoreError) -> [InvitationRecord] {
        try read { db in
            try db.rows(
                "SELECT * FROM invitation WHERE channel = ? AND number < ? ORDER BY number DESC LIMIT ?",
                [channel.description, number, limit]
            ).map(Self.invitation)
        }
    }

    /// One of a channel's invitations, withdrawn or not.
    ///
    /// - Throws: `RelayStoreError.unknownInvitation`.
    public func invitation(_ number: Int64, to channel: ChannelID) throws(RelayStoreError) -> InvitationRecord {
        try read { db in
            guard let found = try Self.find(number, channel, db) else {
                throw RelayStoreError.unknownInvitation(number)
            }
            return found
        }
    }

    static func find(_ number: Int64, _ channel: ChannelID, _ db: Database) throws -> InvitationRecord? {
        try db.row("SELECT * FROM invitation WHERE number = ? AND channel = ?", [number, channel.description])
            .map(invitation)
    }

    /// The invitation that has that secret; nil: the channel has none such.
    public func invitation(
        with token: InvitationToken, to channel: ChannelID
    ) throws(RelayStoreError) -> InvitationRecord? {
        try read { db in try Self.find(Self.digest(token), channel, db) }
    }

    private static func find(_ digest: String, _ channel: ChannelID, _ db: Database) throws -> InvitationRecord? {
        try db.row("SELECT * FROM invitation WHERE digest = ? AND channel = ?", [digest, channel.description])
            .map(invitation)
    }

    /// Withdraws an invitation: no further device enrols with it. Its members stay. A standing one is replaced by a fresh one.
    ///
    /// - Throws: `RelayStoreError.unknownInvitation`, `.notWritten`.
    public func withdraw(_ number: Int64, of channel: ChannelID, now: Int64) throws(RelayStoreError) {
        try write { db in
            guard try Self.withdraw(number, of: channel, now, db) != nil else {
                throw RelayStoreError.unknownInvitation(number)
            }
        }
    }

    /// Makes the device a member if the invitation allows it. One that is a member already stays what it is, and costs the
    /// invitation nothing.
    ///
    /// - Parameter now: Seconds since 1970.
    public func enrol(
        _ member: MemberID, named name: DisplayName, with token: InvitationToken, in channel: ChannelID, now: Int64
    ) throws(RelayStoreError) -> EnrolmentOutcome {
        let limit = limits.membersPerChannel
        // Most who are not invited at all are refused without a write.
        let digest = Self.digest(token)
        return try write { db in
            if let known = try Self.member(member, of: channel, db) {
                return known.revokedAt == nil ? .member(known) : .refused(.revoked)
            }
            guard let invitation = try Self.find(digest, channel, db) else { return .refused(.unknown) }
            guard invitation.withdrawnAt == nil else { return .refused(.withdrawn) }
            if let objection = invitation.terms.objection(used: invitation.used, now: now) {
                return .refused(objection)
            }
            let count = try db.count("SELECT count(*) FROM member WHERE channel = ?", [channel.description])
            guard count < limit else { return .refused(.full) }
            let record = MemberRecord(
                id: member, name: name, invitation: invitation.number, priority: invitation.terms.priority,
                isListenOnly: invitation.terms.isListenOnly, enrolledAt: now, revokedAt: nil)
            try db.execute("UPDATE invitation SET used = used + 1 WHERE number = ?", [invitation.number])
            try db.execute(
                "INSERT INTO member VALUES (?, ?, ?, ?, ?, ?, ?, NULL)",
                [
                    channel.description, member.description, name.text, record.invitation, record.priority,
                    record.isListenOnly, now,
                ])
            return .member(record)
        }
    }

    @discardableResult
    static func insert(
        _ token: InvitationToken, isStanding: Bool, _ terms: InvitationTerms, _ channel: ChannelID, _ now: Int64,
        _ db: Database
    ) throws -> Int64 {
        try db.execute(
            """
            INSERT INTO invitation (channel, digest, standing, expiresAt, uses, priority, listenOnly, madeAt)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?)
            """,
            [
                channel.description, digest(token), isStanding ? Base64URL.encode(token.bytes) : nil, terms.expiresAt,
                terms.uses, terms.priority, terms.isListenOnly, now,
            ])
        return db.lastInsertedRowID
    }

    /// - Returns: Whether it was the standing invitation; nil when there is no open invitation of this number.
    static func withdraw(_ number: Int64, of channel: ChannelID, _ now: Int64, _ db: Database) throws -> Bool? {
        guard let found = try find(number, channel, db), found.withdrawnAt == nil else { return nil }
        try db.execute("UPDATE invitation SET withdrawnAt = ?, standing = NULL WHERE number = ?", [now, number])
        guard found.standingToken != nil else { return false }
        try insert(InvitationToken(), isStanding: true, InvitationTerms(), channel, now, db)
        return true
    }

    private static func digest(_ token: InvitationToken) -> String { Hexadecimal.encode(sha256(token.bytes)) }

    static func invitation(_ row: Row) throws -> InvitationRecord {
        let kept = KeptRow(row, of: "invitation")
        return InvitationRecord(
            number: try kept.value("number"),
            terms: InvitationTerms(
                expiresAt: try kept.value("expiresAt"), uses: try kept.value("uses"),
                priority: try kept.value("priority"), isListenOnly: try kept.value("listenOnly")),
            used: try kept.value("used"), madeAt: try kept.value("madeAt"), withdrawnAt: try kept.value("withdrawnAt"),
            standingToken: row["standing"] == .null ? nil : try kept.value("standing", token))
    }

    static func token(_ text: String) -> InvitationToken? { Base64URL.decode(text).flatMap { InvitationToken($0) } }

    // MARK: Repeated requests

    /// A secret of these records, by which the same request gives the same identifiers and tokens again, so that no token has to be
    /// kept. Made when it is asked for first.
    public func retrySecret() throws(RelayStoreError) -> [UInt8] {
        if let known = try read({ db in try Self.retrySecret(db) }) { return known }
        return try write { db in
            if let known = try Self.retrySecret(db) { return known }
            let secret = SecureRandom.bytes(32)
            try db.execute("INSERT INTO retry (secret) VALUES (?)", [Hexadecimal.encode(secret)])
            return secret
        }
    }

    private static func retrySecret(_ db: Database) throws -> [UInt8]? {
        try db.row("SELECT secret FROM retry").map {
            try KeptRow($0, of: "retry").value("secret") { Hexadecimal.decode($0) }
        }
    }
}
