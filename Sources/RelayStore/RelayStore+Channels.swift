// The channels of a relay, each with a standing invitation.
import Cryptography
import RelayProtocol
import SQLite

extension RelayStore {
    /// Every channel, in the order of their names.
    public func channels() throws(RelayStoreError) -> [ChannelRecord] {
        try read { db in try db.rows("SELECT * FROM channel ORDER BY name").map(Self.channel) }
    }

    /// The number of channels that are served.
    public func servedChannelCount() throws(RelayStoreError) -> Int {
        try read { db in try db.count("SELECT count(*) FROM channel WHERE served <> 0 OR added <> 0") }
    }

    /// Channels with the numbers of their members and invitations, in the order of their names: at most `limit`, after the one of that
    /// name.
    ///
    /// - Parameter now: Seconds since 1970.
    public func channelSummaries(
        after name: String? = nil, limit: Int, now: Int64
    ) throws(RelayStoreError) -> [ChannelSummary] {
        try read { db in
            try db.rows(
                Self.summaries + " WHERE name > ? ORDER BY name LIMIT ?", [now, name ?? "", limit]
            ).map(Self.summary)
        }
    }

    /// The same of one channel; nil: there is none.
    public func channelSummary(of id: ChannelID, now: Int64) throws(RelayStoreError) -> ChannelSummary? {
        try read { db in try db.row(Self.summaries + " WHERE id = ?", [now, id.description]).map(Self.summary) }
    }

    private static let summaries = """
        SELECT *,
            (SELECT count(*) FROM member WHERE channel = channel.id AND revokedAt ISNULL) AS members,
            (SELECT count(*) FROM invitation WHERE channel = channel.id AND \(isOpen)) AS open
        FROM channel
        """

    private static func summary(_ row: Row) throws -> ChannelSummary {
        let kept = KeptRow(row, of: "channel")
        return ChannelSummary(
            channel: try channel(row), members: try kept.value("members"), openInvitations: try kept.value("open"))
    }

    /// The channel of that name.
    public func channel(named name: String) throws(RelayStoreError) -> ChannelRecord {
        try read { db in try Self.channel(named: name, db) }
    }

    /// The same; nil: there is none.
    public func knownChannel(named name: String) throws(RelayStoreError) -> ChannelRecord? {
        try read { db in try Self.find(name, db) }
    }

    /// The channel of that identifier; nil: there is none.
    public func knownChannel(_ id: ChannelID) throws(RelayStoreError) -> ChannelRecord? {
        try read { db in try Self.find(id, db) }
    }

    /// The channel of that identifier.
    ///
    /// - Throws: `RelayStoreError.noChannel`.
    public func channel(_ id: ChannelID) throws(RelayStoreError) -> ChannelRecord {
        try read { db in try Self.channel(id, db) }
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
        isEndToEnd: Bool = false, isAdded: Bool = false, isServed: Bool = false,
        settings: ChannelSettings = ChannelSettings(), now: Int64
    ) throws(RelayStoreError) -> ChannelRecord {
        let channel = ChannelRecord(
            id: id, name: name, isEndToEnd: isEndToEnd, isAdded: isAdded, isServed: isServed, settings: settings)
        let limit = limits.channels
        return try write { db in
            try Self.checkRoom(for: 1, limit, db)
            guard try Self.find(name.text, db) == nil else { throw RelayStoreError.channelExists(name.text) }
            try Self.insert(channel, token, now, db)
            return channel
        }
    }

    /// Every channel by its name, those of the names among them: they are made where there are none.
    ///
    /// - Throws: `RelayStoreError.limit`, `.notWritten`.
    public func channels(
        including names: [DisplayName], now: Int64
    ) throws(RelayStoreError) -> [DisplayName: ChannelRecord] {
        var known = Dictionary(uniqueKeysWithValues: try channels().map { ($0.name, $0) })
        let new = names.filter { known[$0] == nil }
        if !new.isEmpty {
            let limit = limits.channels
            // All or none, and the disk is waited for once.
            let made = try write { db in
                try Self.checkRoom(for: new.count, limit, db)
                return try new.map { name in
                    let channel = ChannelRecord(
                        id: ChannelID(), name: name, isEndToEnd: false, isAdded: false, isServed: false)
                    try Self.insert(channel, InvitationToken(), now, db)
                    return channel
                }
            }
            for channel in made { known[channel.name] = channel }
        }
        return known
    }

    private static func checkRoom(for more: Int, _ limit: Int, _ db: Database) throws {
        guard try db.count("SELECT count(*) FROM channel") + more <= limit else {
            throw RelayStoreError.limit("the relay keeps at most \(limit) channels")
        }
    }

    private static func insert(
        _ channel: ChannelRecord, _ token: InvitationToken, _ now: Int64, _ db: Database
    ) throws {
        try db.execute(
            """
            INSERT INTO channel (
                id, name, endToEnd, added, served, mode, queue, preemptionStep, keptBursts, keptMilliseconds
            ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            """,
            [channel.id.description, channel.name.text, channel.isEndToEnd, channel.isAdded, channel.isServed]
                + values(channel.settings))
        if !channel.isEndToEnd {
            try insert(token, isStanding: true, InvitationTerms(), channel.id, now, db)
        }
    }

    private static func values(_ settings: ChannelSettings) -> [(any DatabaseValue)?] {
        [
            settings.mode.rawValue, settings.hasQueue, settings.preemptionStep, settings.keptBursts,
            settings.keptMilliseconds,
        ]
    }

    /// Gives a channel another name and other settings. From now on it is served whatever the configuration names, if it is served.
    ///
    /// - Throws: `RelayStoreError.noChannel`, `.channelExists`, `.notWritten`.
    public func changeChannel(
        _ id: ChannelID, name: DisplayName, settings: ChannelSettings, isServed: Bool
    ) throws(RelayStoreError) -> ChannelRecord {
        try write { db in
            let known = try Self.channel(id, db)
            if let other = try Self.find(name.text, db), other.id != known.id {
                throw RelayStoreError.channelExists(name.text)
            }
            try db.execute(
                """
                UPDATE channel SET name = ?, added = ?, served = ?, mode = ?, queue = ?, preemptionStep = ?,
                    keptBursts = ?, keptMilliseconds = ? WHERE id = ?
                """,
                [name.text, isServed, isServed] + Self.values(settings) + [id.description])
            return try Self.channel(id, db)
        }
    }

    /// Removes a channel with its invitations and members. Nobody who had a link to it is let in any more.
    ///
    /// - Throws: `RelayStoreError.noChannel`, `.notWritten`.
    public func removeChannel(_ id: ChannelID) throws(RelayStoreError) {
        try write { db in
            _ = try Self.channel(id, db)
            for table in ["member WHERE channel", "invitation WHERE channel", "channel WHERE id"] {
                try db.execute("DELETE FROM \(table) = ?", [id.description])
            }
        }
    }

    /// Records which channels are served, for a start without channels in the configuration, and which of them it declares. It writes only
    /// changes.
    ///
    /// - Throws: `RelayStoreError.notWritten`.
    public func setServed(
        _ channels: Set<ChannelID>, declared: Set<ChannelID> = []
    ) throws(RelayStoreError) {
        let changed = try self.channels().filter {
            $0.isServed != channels.contains($0.id) || $0.isDeclared != declared.contains($0.id)
        }
        guard !changed.isEmpty else { return }
        try write { db in
            for channel in changed {
                try db.execute(
                    "UPDATE channel SET served = ?, declared = ? WHERE id = ?",
                    [channels.contains(channel.id), declared.contains(channel.id), channel.id.description])
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

    /// The same of all channels.
    public func standingTokens() throws(RelayStoreError) -> [ChannelID: InvitationToken] {
        try read { db in
            var tokens: [ChannelID: InvitationToken] = [:]
            try db.forEachRow(
                "SELECT channel, standing FROM invitation WHERE standing NOTNULL AND withdrawnAt ISNULL"
            ) { row in
                let kept = KeptRow(row, of: "invitation")
                tokens[try Self.channelID(kept)] = try kept.value("standing", Self.token)
            }
            return tokens
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

    private static func channel(_ id: ChannelID, _ db: Database) throws -> ChannelRecord {
        guard let found = try find(id, db) else { throw RelayStoreError.noChannel(id) }
        return found
    }

    private static func find(_ id: ChannelID, _ db: Database) throws -> ChannelRecord? {
        try db.row("SELECT * FROM channel WHERE id = ?", [id.description]).map(channel)
    }

    private static func find(_ name: String, _ db: Database) throws -> ChannelRecord? {
        try db.row("SELECT * FROM channel WHERE name = ?", [name]).map(channel)
    }

    /// The channel that a row of another table belongs to.
    static func channelID(_ row: KeptRow) throws -> ChannelID {
        try row.value("channel") { ChannelID($0) }
    }

    static func channel(_ row: Row) throws -> ChannelRecord {
        let kept = KeptRow(row, of: "channel")
        var settings = ChannelSettings()
        settings.mode = try kept.value("mode") { ChannelSettings.Mode(rawValue: $0) }
        settings.hasQueue = try kept.value("queue")
        settings.preemptionStep = try kept.value("preemptionStep")
        settings.keptBursts = try kept.value("keptBursts")
        settings.keptMilliseconds = try kept.value("keptMilliseconds")
        return ChannelRecord(
            id: try kept.value("id") { ChannelID($0) },
            name: try kept.value("name") { DisplayName($0) },
            isEndToEnd: try kept.value("endToEnd"), isAdded: try kept.value("added"),
            isServed: try kept.value("served"),
            isDeclared: try kept.value("declared"), settings: settings)
    }
}
