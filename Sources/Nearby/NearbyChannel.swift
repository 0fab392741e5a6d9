// What is found, and why nothing is.
import RelayProtocol

/// A channel nearby, as its host tells of it, with the places where the host was found.
///
/// Two entries may have the same name, and even the same channel: then their pins differ, and at most one of them is true.
public struct NearbyChannel: Hashable, Sendable {
    /// The most places of a channel.
    public static let placesMaximum = 8

    /// What the host tells. Everything in it is a stranger's word.
    public var announcement: NearbyAnnouncement
    /// Where the host's relay is, the best place first: IPv4, global IPv6, link-local IPv6 with its zone. Empty for a channel of
    /// this machine that no network carries.
    public var places: [RelayPlace]
    /// Whether this machine's `NearbyNetwork` announces it.
    public var isOwn: Bool

    /// A channel nearby.
    public init(announcement: NearbyAnnouncement, places: [RelayPlace], isOwn: Bool) {
        self.announcement = announcement
        self.places = places
        self.isOwn = isOwn
    }
}

/// Why channels are neither announced nor found, in words for whoever wants them.
public enum NearbyProblem: Error, Hashable, Sendable, CustomStringConvertible {
    /// There is no system bus, by which Avahi is spoken to.
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
        case .noBus: "channels nearby need the system bus, and there is none: start dbus"
        case .notInstalled: "avahi-daemon does not run: install avahi-daemon"
        case .notRunning: "avahi-daemon does not run: start it with \"systemctl start avahi-daemon\""
        case .refused(let reason):
            "avahi-daemon refuses to announce or to look for channels (\(reason)): see \"journalctl -u avahi-daemon\" "
                + "and /etc/avahi/avahi-daemon.conf"
        }
    }
}
