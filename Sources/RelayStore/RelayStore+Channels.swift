// The channels of a relay, each with a standing invitation.
import Cryptography
import RelayProtocol
import SQLite

extension RelayStore {
    /// Every channel, in the order of their names.
    public func channels() throws(RelayStoreError) -> [ChannelRecord] {
        try read { db in try db.rows("SELECT * FROM channel ORDER BY name").map(Self.channel) }
    }

    /// The channel of that name.
    public func channel(named name: String) throws(RelayStoreError) -> ChannelRecord {
        try read { db in try Self.channel(named: name, db) }
    }

    /// Makes a channel, with a standing invitation unless its media key is its members' own: that one is in no invitation
    /// that a relay could print.
    ///
    /// - Parameters:
    ///   - id: As it was called elsewhere, with the secret of its standing invitation; by default fresh ones.
    ///   - isServed: Whether it was served there when it ran last.
    ///   - now: Seconds since 1970.
    /// - Throws: `RelayStoreError.channelExists`, `.limit`, `.notWritten`.
    @discardableResult
    public func addChannel(
        _ name: DisplayName, id: ChannelID = ChannelID(), token: InvitationToken = InvitationToken(),
        isEndToEnd: Bool = false, isAdded: Bool = false, isServed: Bool = false, now: Int64
    ) throws(RelayStoreError) -> ChannelRecord {
        let limit = limits.channels
        return try write { db in
            guard try db.count("SELECT count(*) FROM channel") < limit else {
                throw RelayStoreError.limit("the relay keeps at most \(limit) channels")
            }
            guard try Self.find(name.text, db) == nil else { throw RelayStoreError.channelExists(name.text) }
            try db.execute(
                "INSERT INTO channel (id, name, endToEnd, added, served) VALUES (?, ?, ?, ?, ?)",
                [id.description, name.text, isEndToEnd, isAdded, isServed])
            if !isEndToEnd { try Self.insert(token, isStanding: true, InvitationTerms(), id, now, db) }
            return ChannelRecord(
                id: id, name: name, isEndToEnd: isEndToEnd, isAdded: isAdded, isServed: isServed)
        }
    }

    /// Records which channels are served, for a start without channels in the configuration. It writes only changes.
    ///
    /// - Throws: `RelayStoreError.notWritten`.
    public func setServed(_ channels: Set<ChannelID>) throws(RelayStoreError) {
        guard Set(try self.channels().filter(\.isServed).map(\.id)) != channels else { return }
        try write { db in
            try db.execute("UPDATE channel SET served = 0 WHERE served <> 0")
            for channel in channels {
                try db.execute("UPDATE channel SET served = 1 WHERE id = ?", [channel.description])
            }
        }
    }

    /// The secret of the channel's standing invitation; nil when it has none.
    public func standingToken(of channel: ChannelID) throws(RelayStoreError) -> InvitationToken? {
        try read { db in
            try db.row(
                "SELECT * FROM invitation WHERE channel = ? AND standing NOTNULL AND withdrawnAt ISNULL",
                [channel.description]
            ).flatMap { try Self.invitation($0).standingToken }
        }
    }

    static func channel(named name: String, _ db: Database) throws -> ChannelRecord {
        if let found = try find(name, db) { return found }
        throw RelayStoreError.unknownChannel(
            name,
            known: try db.rows("SELECT name FROM channel ORDER BY name LIMIT 10").compactMap {
                String($0["name"] ?? .null)
            })
    }

    private static func find(_ name: String, _ db: Database) throws -> ChannelRecord? {
        try db.row("SELECT * FROM channel WHERE name = ?", [name]).map(channel)
    }

    static func channel(_ row: Row) throws -> ChannelRecord {
        let kept = KeptRow(row, of: "channel")
        return ChannelRecord(
            id: try kept.value("id") { (text: String) in ChannelID(text) },
            name: try kept.value("name") { (text: String) in DisplayName(text) },
            isEndToEnd: try kept.flag("endToEnd"), isAdded: try kept.flag("added"), isServed: try kept.flag("served"))
    }
}
