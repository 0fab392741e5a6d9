// The found channels, and the problems that prevent finding them.
import Cryptography
import RelayProtocol

/// A channel nearby, as its host announces it, with the addresses where the host was found.
///
/// Two entries may have the same name, and even the same channel: then their pins differ, and at most one of them is
/// true.
public struct NearbyChannel: Hashable, Sendable {
    /// The most places of a channel.
    public static let placesMaximum = 8

    /// The host's announcement. All of it is untrusted.
    public var announcement: NearbyAnnouncement
    /// Where the host's relay is, the best place first: IPv4, global IPv6, link-local IPv6 with its zone. Empty for a channel of
    /// this machine that no network carries.
    public var places: [RelayPlace]
    /// Whether this machine's `NearbyNetwork` announces it.
    public var isOwn: Bool
    /// How it was found; empty for a channel of this machine that nothing has found.
    public var means: Set<NearbyMeans>
    /// How strongly Bluetooth hears the nearest machine that hosts it, in dBm; nil: not by Bluetooth.
    public var signalStrength: Int?
    /// Where the machine that hosts it offers a network by Bluetooth; nil: nowhere.
    public var accessPoint: BluetoothAccessPoint?

    /// A channel nearby.
    public init(
        announcement: NearbyAnnouncement, places: [RelayPlace], isOwn: Bool, means: Set<NearbyMeans> = [.network],
        signalStrength: Int? = nil, accessPoint: BluetoothAccessPoint? = nil
    ) {
        self.accessPoint = accessPoint
        self.announcement = announcement
        self.places = places
        self.isOwn = isOwn
        self.means = means
        self.signalStrength = signalStrength
    }
}

/// By which means a channel nearby is found.
public enum NearbyMeans: String, Hashable, Sendable, CaseIterable, Comparable {
    /// DNS-SD on the local network.
    case network
    /// Bluetooth Low Energy.
    case bluetooth

    /// The network first.
    public static func < (lhs: Self, rhs: Self) -> Bool { lhs == .network && rhs == .bluetooth }
}

extension NearbyChannel {
    /// Merges the channels found on the network and by Bluetooth. A channel that both have found is one entry with the
    /// network's announcement, which is newer. Other machines' channels beyond `NearbyStateMachine.channelsMaximum` are
    /// dropped, those of Bluetooth first.
    public static func merged(network: [NearbyChannel], bluetooth: [NearbyChannel]) -> [NearbyChannel] {
        var merged = network
        var indices: [FollowedChannel: Int] = [:]
        for (index, channel) in merged.enumerated() { indices[channel.key] = index }
        var foreign = network.count { !$0.isOwn }
        for channel in bluetooth {
            if let index = indices[channel.key] {
                merged[index].means.formUnion(channel.means)
                merged[index].signalStrength = channel.signalStrength
                merged[index].accessPoint = channel.accessPoint
                merged[index].places = joined(merged[index].places, channel.places)
            } else if foreign < NearbyStateMachine.channelsMaximum {
                foreign += 1
                merged.append(channel)
            }
        }
        return merged.sorted(by: isBefore)
    }

    /// The channel with its key: two entries of the same are one line.
    private var key: FollowedChannel { FollowedChannel(channel: announcement.channel, pin: announcement.pin) }

    /// The first places, and of the second those that are new and fit.
    static func joined(_ first: [RelayPlace], _ second: [RelayPlace]) -> [RelayPlace] {
        Array((first + second.filter { !first.contains($0) }).prefix(placesMaximum))
    }

    /// By name, then by id, then by pin.
    static func isBefore(_ lhs: NearbyChannel, _ rhs: NearbyChannel) -> Bool {
        let (left, right) = (lhs.announcement, rhs.announcement)
        if left.name != right.name { return left.name.text < right.name.text }
        if left.channel != right.channel { return left.channel.bytes.lexicographicallyPrecedes(right.channel.bytes) }
        return left.pin.bytes.lexicographicallyPrecedes(right.pin.bytes)
    }
}

/// A channel whose hosts are followed.
public struct FollowedChannel: Hashable, Sendable {
    /// The channel.
    public var channel: ChannelID
    /// The key that all its hosts have.
    public var pin: PublicKeyPin

    /// The channel whose hosts have that key.
    public init(channel: ChannelID, pin: PublicKeyPin) {
        self.channel = channel
        self.pin = pin
    }
}

/// A machine that announces that it hosts a followed channel. Only its key, which the channel's members have, proves it.
public struct NearbyHostSighting: Hashable, Sendable {
    /// Maximum number of reported hosts per channel.
    public static let hostsMaximum = 8

    /// Which host it is.
    public var host: HostID
    /// How many hosts the channel has had before it.
    public var generation: UInt32
    /// Where its relay is, the best place first; 1 to 8.
    public var places: [RelayPlace]

    /// A host that is announced.
    public init(host: HostID, generation: UInt32, places: [RelayPlace]) {
        self.host = host
        self.generation = generation
        self.places = places
    }
}

/// Why channels are neither announced nor found, in words for the user.
public enum NearbyProblem: Error, Hashable, Sendable, CustomStringConvertible {
    /// There is no system bus, which is needed to reach Avahi.
    case noBus
    /// Avahi is not installed.
    case notInstalled
    /// Avahi is installed, and does not run.
    case notRunning
    /// Avahi, or the bus, refuses what is asked of it.
    case refused(String)

    /// A sentence for people.
    public var description: String {
        switch self {
        case .noBus: "channels nearby need the system bus, which is not running: start dbus"
        case .notInstalled: "avahi-daemon is not running: install avahi-daemon"
        case .notRunning: "avahi-daemon is not running: start it with \"systemctl start avahi-daemon\""
        case .refused(let reason):
            "avahi-daemon refuses to announce or to look for channels (\(reason)): see \"journalctl -u avahi-daemon\" "
                + "and /etc/avahi/avahi-daemon.conf"
        }
    }
}
