// The records of some channels and members in one read: what a node that serves while it follows takes up (`RecordChanges`).
import RelayProtocol
import SQLite

extension RelayStore {
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
        try read { db in
            var all: [ChannelID: [MemberRecord]] = [:]
            try db.forEachRow(
                "SELECT * FROM member WHERE channel IN (SELECT value FROM json_each(?))", [Self.list(ids)]
            ) { row in
                all[try Self.channelID(KeptRow(row, of: "member")), default: []].append(try Self.member(row))
            }
            return all
        }
    }

    /// Identifiers as one argument, because the number of arguments has a limit. They are digits, letters and hyphens.
    private static func list(_ ids: some Sequence<some CustomStringConvertible>) -> String {
        "[" + ids.map { "\"\($0)\"" }.joined(separator: ",") + "]"
    }
}
