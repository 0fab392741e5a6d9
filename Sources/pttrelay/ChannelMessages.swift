// What the requests and answers of the commands and of the API say of channels, and of what changes.
import Cryptography
import FoundationEssentials
import RelayProtocol
import RelayStore

/// Which channel is meant.
enum ChannelReference: Codable, Equatable, ExpressibleByStringLiteral {
    case named(String)
    /// Its identifier, as text.
    case id(String)

    init(stringLiteral name: String) { self = .named(name) }
}

/// What is to be different on a channel; nil: as it was, or of a new channel as usual.
struct ChannelChange: Codable, Equatable {
    var name: String?
    var mode: ChannelSettings.Mode?
    var hasQueue: Bool?
    /// 0: no priority takes the floor.
    var preemptionStep: UInt8?
    var keptBursts: Int?
    var keptMilliseconds: Int64?

    /// The settings with what is different.
    func applied(to settings: ChannelSettings) -> ChannelSettings {
        var result = settings
        if let mode { result.mode = mode }
        if let hasQueue { result.hasQueue = hasQueue }
        if let preemptionStep { result.preemptionStep = preemptionStep == 0 ? nil : preemptionStep }
        if let keptBursts { result.keptBursts = keptBursts }
        if let keptMilliseconds { result.keptMilliseconds = keptMilliseconds }
        return result
    }
}

/// What is to be different of a member; nil: as it was.
struct MemberChange: Codable, Equatable {
    /// The name in lists.
    var name: String?
    var priority: UInt8?
    var isListenOnly: Bool?
}

extension AdministrationResponse {
    struct ChannelLine: Codable, Equatable {
        var name: String
        var id: String
        var members: Int
        /// Members that are connected now; nil: the relay does not run, or does not serve the channel.
        var connected: Int?
        /// In a cluster: where the one is that serves the channel; nil: none does, or there is no cluster.
        var servedAt: String? = nil
        var openInvitations: Int
        var isEndToEnd: Bool
        var isServed: Bool
        /// Whether the configuration has its settings.
        var isDeclared: Bool
        var mode: ChannelSettings.Mode
        var hasQueue: Bool
        var preemptionStep: UInt8?
        var keptBursts: Int
        var keptMilliseconds: Int64
        /// Those who talk; nil in lists.
        var talkers: [Talker]?

        /// Says whether what an operator chooses is the same: two lines with one tag differ in numbers only.
        var tag: String {
            AdministrationResponse.tag([
                name, id, "\(isEndToEnd)", "\(isServed)", "\(isDeclared)", mode.rawValue, "\(hasQueue)",
                "\(preemptionStep ?? 0)", "\(keptBursts)", "\(keptMilliseconds)",
            ])
        }
    }

    /// How the relay is.
    struct Status: Codable, Equatable {
        /// Whether members can join.
        var isServing: Bool
        var isDraining: Bool
        var uptimeSeconds: Int64
        var connections: Int
        var channels: Int
        /// Members that are connected, of all channels.
        var members: Int
        /// Those who talk; the first ones if there are very many.
        var talkers: [Talker]
        /// Whether other relays of its cluster have not said how many are on them; nil: there are none.
        var isPartial: Bool?

        /// Another relay of the cluster is so.
        mutating func add(_ other: Status) {
            connections += other.connections
            channels += other.channels
            members += other.members
            talkers = Array((talkers + other.talkers).prefix(AdministrationLimits.talkersPerResponse))
        }
    }

    struct Talker: Codable, Equatable {
        var channel: String
        var channelName: String
        var member: String
        var name: String
    }

    /// A short text that is another one when any of the words is.
    static func tag(_ words: [String]) -> String {
        let bytes = words.flatMap { Array("\($0.utf8.count):\($0)".utf8) }
        return Hexadecimal.encode(Array(sha256(bytes).prefix(8)))
    }
}

extension AdministrationResponse.MemberLine {
    /// See `ChannelLine.tag`.
    var tag: String {
        AdministrationResponse.tag([
            id, name, "\(invitation)", "\(priority)", "\(isListenOnly)", "\(revokedAt ?? 0)",
        ])
    }
}
