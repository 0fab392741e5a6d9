// A channel nearby that this machine hosts: its secrets, and how they are kept over restarts.
import Cryptography
import FoundationEssentials
import Nearby
import QUIC
import RelayProtocol
import RelayServer

/// The data of a channel nearby. A machine that has all of it could host the channel.
struct HostedChannel: Sendable {
    /// The channel's identifier, made by chance.
    let id: ChannelID
    /// What its creator calls it.
    let name: DisplayName
    /// The secret that opens it. Secret.
    let token: InvitationToken
    /// The key that its speech is sealed with, which only members have. Secret.
    let mediaKey: MediaKey
    /// The key of the channel's host, which announcements name. It belongs to the channel, so an announcement reveals
    /// nothing about the machine. Secret.
    let identity: Identity
    /// The secrets of its relay's transport: members learn of a restart by them. Secret.
    let transportKeys: RelayTransportKeys
    /// The UDP port at which it is served, or was in the last run; 0: none yet.
    var port: UInt16 = 0
    /// The creator's name.
    let creator: DisplayName
    /// How somebody gets in. A code is secret.
    var admission = AdmissionRule.open
    /// How many hosts it has had before this one; 0 on the machine that created it.
    var generation: UInt32 = 0
    /// Tells this host of it from others.
    private(set) var host = HostID()

    /// A new channel.
    ///
    /// - Throws: `CryptographyError`.
    init(
        named name: DisplayName, by creator: DisplayName, admission: AdmissionRule
    ) throws(CryptographyError) {
        id = ChannelID()
        self.admission = admission
        self.name = name
        self.creator = creator
        token = InvitationToken()
        mediaKey = MediaKey(epoch: InvitationLink.mediaKeyEpoch)
        identity = try Identity(generating: name.text)
        transportKeys = .generate()
    }

    /// A channel that this machine is a member of, from its host's message; nil when the key in the message is not the
    /// host's own.
    init?(_ link: InvitationLink, _ told: ServerMessage.Succession) {
        guard let identity = try? Identity(pem: told.identity), identity.pin == link.pin, let key = link.mediaKey,
            let keys = RelayTransportKeys(bytes: told.transportKeys)
        else { return nil }
        (id, name, token, mediaKey) = (link.channel, link.channelName, link.token, key)
        (self.identity, transportKeys, creator, generation) = (identity, keys, told.creator, told.generation)
        (admission, host) = (told.admission, told.host)
    }

    /// The relay's part of it, on the machine that is that member.
    func configuration(of member: MemberID) -> RelayChannelConfiguration {
        var configuration = RelayChannelConfiguration(id: id, name: name, token: token, isEndToEnd: true)
        configuration.admission = .nearby(admission, relay: identity.pin, mediaKey: mediaKey)
        configuration.succession = ServerMessage.Succession(
            generation: generation, host: host, identity: identity.pem, transportKeys: transportKeys.bytes,
            creator: creator, admission: admission)
        configuration.hostMember = member
        configuration.retention = BurstRetention(bursts: 10, time: .seconds(600))
        return configuration
    }

    /// The same channel with a new host id.
    var withFreshHost: HostedChannel {
        var channel = self
        channel.host = HostID()
        return channel
    }

    /// How announcements tell of the way in.
    var announcedAdmission: NearbyAnnouncement.Admission {
        switch admission {
        case .open: .open
        case .code: .code
        case .ask: .ask
        }
    }

    /// The code of a locked channel.
    var code: InvitationCode? {
        if case .code(let code) = admission { code } else { nil }
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
    /// The longest file: as many channels as may be kept, each with the longest key that a host may tell, which is twice as long in JSON.
    static let byteCountMaximum = 1 << 20

    /// One hosted channel.
    struct Hosted: Codable, Sendable, Equatable {
        var id: String
        var name: String
        var token: String
        var mediaKey: String
        var identity: String
        var transportKeys: String
        var port: UInt16
        /// The creator's name; nil: this machine.
        var creator: String?
        /// The newest generation of its hosts that is known; nil: 0.
        var generation: UInt32?
        /// Its code; nil: none.
        var code: String?
        /// Whether the host's user is asked about newcomers; nil: no.
        var asks: Bool?
    }

    var version = Self.version
    var hosted: [Hosted] = []
    /// The UUIDs of channels that were joined nearby, the oldest first.
    var joined: [String] = []
    /// What this machine needs to host channels that it joined, the oldest first; nil: nothing.
    var memberships: [Hosted]?
    /// The Bluetooth addresses of machines by whose network the channels in `joined` were reached, by UUID; nil: none.
    var accessPoints: [String: String]?

    /// This machine has joined that channel now.
    mutating func join(_ channel: ChannelID) {
        forget(channel, besidesMembership: true)
        joined.append("\(channel)")
        guard joined.count > Self.joinedMaximum else { return }
        for oldest in joined.prefix(joined.count - Self.joinedMaximum) {
            if let oldest = ChannelID(oldest) { forget(oldest) }
        }
    }

    /// It is none that was joined nearby.
    mutating func forget(_ channel: ChannelID, besidesMembership: Bool = false) {
        joined.removeAll { $0 == "\(channel)" }
        guard !besidesMembership else { return }
        memberships?.removeAll { $0.id == "\(channel)" }
        accessPoints?["\(channel)"] = nil
    }

    /// The machine by whose network that channel is reached; nil: by none of Bluetooth.
    func accessPoint(of channel: ChannelID) -> BluetoothAccessPoint? {
        accessPoints?["\(channel)"].flatMap { BluetoothAccessPoint($0) }
    }

    /// Keeps by whose network a channel is reached.
    mutating func keep(_ accessPoint: BluetoothAccessPoint?, of channel: ChannelID) {
        var all = accessPoints ?? [:]
        all["\(channel)"] = accessPoint.map { "\($0)" }
        accessPoints = all.isEmpty ? nil : all
    }

    /// What is known of a channel that was joined.
    func membership(of channel: ChannelID) -> HostedChannel? {
        memberships?.first { $0.id == "\(channel)" }.flatMap { HostedChannel($0) }
    }

    /// Keeps what this machine needs to host a channel that it joined.
    ///
    /// - Returns: Whether that is news.
    mutating func keep(membership channel: HostedChannel) -> Bool {
        let new = Hosted(channel)
        guard memberships?.contains(new) != true else { return false }
        memberships = (memberships ?? []).filter { $0.id != new.id }.suffix(Self.joinedMaximum - 1) + [new]
        return true
    }
}

extension NearbyRecord.Hosted {
    init(_ channel: HostedChannel) {
        self.init(
            id: "\(channel.id)", name: channel.name.text, token: Base64URL.encode(channel.token.bytes),
            mediaKey: Base64URL.encode(channel.mediaKey.baseKey), identity: channel.identity.pem,
            transportKeys: Base64URL.encode(channel.transportKeys.bytes), port: channel.port,
            creator: channel.creator.text, generation: channel.generation, code: channel.code?.digits,
            asks: channel.admission == .ask ? true : nil)
    }
}

extension HostedChannel {
    /// The channel that a file has kept; nil when any of it is damaged.
    init?(_ kept: NearbyRecord.Hosted, creator: DisplayName? = nil) {
        guard let id = ChannelID(kept.id), let name = DisplayName(kept.name),
            let token = Base64URL.decode(kept.token).flatMap({ InvitationToken($0) }),
            let creator = kept.creator.flatMap({ DisplayName($0) }) ?? creator ?? DisplayName("pttd"),
            let key = Base64URL.decode(kept.mediaKey)
                .flatMap({ MediaKey(epoch: InvitationLink.mediaKeyEpoch, baseKey: $0) }),
            let identity = try? Identity(pem: kept.identity),
            let keys = Base64URL.decode(kept.transportKeys).flatMap({ RelayTransportKeys(bytes: $0) })
        else { return nil }
        (self.id, self.name, self.token, mediaKey, self.identity) = (id, name, token, key, identity)
        (transportKeys, port, self.creator, generation) = (keys, kept.port, creator, kept.generation ?? 0)
        admission = kept.asks == true ? .ask : .open
        // A locked channel whose code cannot be read does not become an open one.
        guard let code = kept.code else { return }
        guard let code = InvitationCode(code) else { return nil }
        admission = .code(code)
    }
}
