// What a relay of a cluster tells of itself, so that the operator's page of any of them shows it. Pure.
import MonotonicTime
import RelayProtocol
import RelayServer

/// One look at a relay of a cluster, within a number of bytes.
public struct OperatorRelay: Codable, Equatable, Sendable {
    var version: String
    /// Seconds.
    var uptime: Double
    var isDraining: Bool
    var connections: Int
    var packetsOut: Int
    var packetsDropped: Int
    var forwarding: OperatorStatus.Forwarding
    /// See `OperatorStatus.Channel`; of all channels.
    var up: Int
    var upLost: Int
    var down: Int
    var downLost: Int
    /// All its channels, and the members on them.
    var channelCount: Int
    var memberCount: Int
    /// The channels that there is room for, those first where somebody talks, and those with most members.
    var channels: [OperatorStatus.Channel]
    /// Members of each of these, also those that there is no room for.
    var memberCounts: [Int]

    /// The bytes that an answer may have at most, however few relays share the room on the page. They go through NATS as one message.
    public static let byteCountMaximum = 192 << 10
    /// The same at least.
    public static let byteCountMinimum = 8 << 10
    /// The bytes of all relays together.
    private static let pageByteCount = 1 << 20

    /// The bytes that each of so many relays may tell.
    public static func byteCount(relays: Int) -> Int {
        min(byteCountMaximum, max(byteCountMinimum, pageByteCount / max(1, relays)))
    }

    /// The look as JSON has at most `byteCount` bytes; the nearest bound stands in for a number that no relay asks for.
    public init(_ relay: RelayStatistics, version: String, byteCount: Int) {
        let numbers = OperatorStatus(relay, version: version, channels: [])
        self.version = version
        uptime = numbers.uptime
        isDraining = numbers.isDraining
        connections = numbers.connections
        packetsOut = numbers.packetsOut
        packetsDropped = numbers.packetsDropped
        forwarding = numbers.forwarding
        up = relay.channels.reduce(0) { $0 + $1.counters.packets }
        upLost = relay.channels.reduce(0) { $0 + $1.counters.packetsLostUp }
        down = relay.channels.reduce(0) { $0 + $1.counters.packetsHeard }
        downLost = relay.channels.reduce(0) { $0 + $1.counters.packetsLostDown }
        channelCount = relay.channels.count
        memberCount = relay.channels.reduce(0) { $0 + $1.members.count }
        let room = min(Self.byteCountMaximum, max(Self.byteCountMinimum, byteCount)) - Self.headByteCount
        let busiest = Self.busiest(relay.channels)
        // Half of it for channels, so that no crowd hides them, and the rest for their members.
        var left = room / 2
        let shown = busiest.prefix { channel in
            left -= Self.byteCount(of: channel)
            return left >= 0
        }
        memberCounts = shown.map(\.members.count)
        left = room / 2
        channels = shown.map { channel in
            OperatorStatus.Channel(channel) { member in
                let need = Self.memberByteCount + Self.jsonByteCount(member.name.text)
                guard left >= need else { return false }
                left -= need
                return true
            }
        }
    }

    private static func busiest(_ channels: [RelayStatistics.Channel]) -> [RelayStatistics.Channel] {
        let ranks = channels.map { channel in
            (talks: channel.members.contains(where: \.isTalking) ? 0 : 1, members: -channel.members.count)
        }
        return channels.indices.sorted { first, second in
            let (one, other) = (ranks[first], ranks[second])
            if (one.talks, one.members) != (other.talks, other.members) {
                return (one.talks, one.members) < (other.talks, other.members)
            }
            return channels[first].name.text < channels[second].name.text
        }.map { channels[$0] }
    }

    // MARK: Bytes of JSON

    /// What comes before the channels, with the longest numbers.
    private static let headByteCount = 3_072
    /// A channel without its name, members and numbers, and a member without its name.
    private static let channelByteCount = 110
    private static let memberByteCount = 90

    /// Bytes of a channel without its members.
    private static func byteCount(of channel: RelayStatistics.Channel) -> Int {
        let bare = OperatorStatus.Channel(channel) { _ in false }
        let numbers = [
            bare.waiting, bare.grants, bare.denials, bare.bursts, bare.up, bare.upLost, bare.down, bare.downLost,
            channel.members.count,
        ]
        return numbers.reduce(channelByteCount + jsonByteCount(bare.name)) { $0 + "\($1)".utf8.count }
    }

    /// Bytes of a text in JSON: some characters have a backslash in front of them.
    static func jsonByteCount(_ text: String) -> Int {
        text.utf8.reduce(0) { count, byte in
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): count + 2
            case ..<0x20, 0x7F: count + 6
            default: count + 1
            }
        }
    }
}
