// A channel nearby that this machine hosts: its secrets, and how they are kept over restarts.
import Cryptography
import FoundationEssentials
import RelayProtocol
import RelayServer

/// What makes a channel nearby: whoever has all of it could host the channel.
struct HostedChannel: Sendable {
    /// The channel's identifier, made by chance.
    let id: ChannelID
    /// What its creator calls it.
    let name: DisplayName
    /// The secret that opens it. Secret.
    let token: InvitationToken
    /// The key that its speech is sealed with, which only members have. Secret.
    let mediaKey: MediaKey
    /// The key that the channel's host shows, which announcements name. It is the channel's own, so that an announcement tells nothing of
    /// the machine. Secret.
    let identity: Identity
    /// The secrets of its relay's transport: members learn of a restart by them. Secret.
    let transportKeys: RelayTransportKeys
    /// The UDP port at which it is served, or was in the last run; 0: none yet.
    var port: UInt16 = 0

    /// A new channel.
    ///
    /// - Throws: `CryptographyError`.
    init(named name: DisplayName) throws(CryptographyError) {
        id = ChannelID()
        self.name = name
        token = InvitationToken()
        mediaKey = MediaKey(epoch: InvitationLink.mediaKeyEpoch)
        identity = try Identity(generating: name.text)
        transportKeys = .generate()
    }

    /// The relay's part of it.
    var configuration: RelayChannelConfiguration {
        var configuration = RelayChannelConfiguration(id: id, name: name, token: token, isEndToEnd: true)
        configuration.admission = .open(mediaKey: mediaKey)
        configuration.retention = BurstRetention(bursts: 10, time: .seconds(600))
        return configuration
    }

    /// The invitation for this machine itself.
    func link() throws(InvitationLinkError) -> InvitationLink {
        try InvitationLink(
            host: "127.0.0.1", port: port, channelName: name, channel: id, token: token, pin: identity.pin,
            mediaKey: mediaKey)
    }
}

/// The channels nearby as a file keeps them.
struct NearbyRecord: Codable, Sendable {
    /// The form of this record.
    static let version = 1
    /// The most channels that one machine hosts.
    static let hostedMaximum = 8
    /// The most channels that are known as ones that were joined nearby; the oldest are forgotten.
    static let joinedMaximum = 32
    /// The longest file.
    static let byteCountMaximum = 65_536

    /// One hosted channel.
    struct Hosted: Codable, Sendable {
        var id: String
        var name: String
        var token: String
        var mediaKey: String
        var identity: String
        var transportKeys: String
        var port: UInt16
    }

    var version = Self.version
    var hosted: [Hosted] = []
    /// The UUIDs of channels that were joined nearby, the oldest first.
    var joined: [String] = []
}

extension NearbyRecord.Hosted {
    init(_ channel: HostedChannel) {
        self.init(
            id: "\(channel.id)", name: channel.name.text, token: Base64URL.encode(channel.token.bytes),
            mediaKey: Base64URL.encode(channel.mediaKey.baseKey), identity: channel.identity.pem,
            transportKeys: Base64URL.encode(channel.transportKeys.bytes), port: channel.port)
    }
}

extension HostedChannel {
    /// The channel that a file has kept; nil when any of it is damaged.
    init?(_ kept: NearbyRecord.Hosted) {
        guard let id = ChannelID(kept.id), let name = DisplayName(kept.name),
            let token = Base64URL.decode(kept.token).flatMap({ InvitationToken($0) }),
            let key = Base64URL.decode(kept.mediaKey)
                .flatMap({ MediaKey(epoch: InvitationLink.mediaKeyEpoch, baseKey: $0) }),
            let identity = try? Identity(pem: kept.identity),
            let keys = Base64URL.decode(kept.transportKeys).flatMap({ RelayTransportKeys(bytes: $0) })
        else { return nil }
        (self.id, self.name, self.token, mediaKey, self.identity) = (id, name, token, key, identity)
        (transportKeys, port) = (keys, kept.port)
    }
}
