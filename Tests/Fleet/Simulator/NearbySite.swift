// The place where a channel nearby is: which machines reach each other, and what is announced to whom. Avahi is modelled:
// announcements appear and disappear after a while, a goodbye takes a second, and what a dead machine announced lingers.
import Cryptography
import MonotonicTime
import Nearby
import RelayProtocol
import RelayServer
import TestSupport

/// A host of the channel, as its machine announces it.
struct HostAnnouncement: Hashable {
    let device: Int
    let host: HostID
    let generation: UInt32
    let place: RelayPlace

    var sighting: NearbyHostSighting { NearbyHostSighting(host: host, generation: generation, places: [place]) }
}

/// The network of machines that are near each other, with the channel that the first one creates.
final class NearbySite {
    /// The device that creates the channel, and may delete it.
    static let creator = 0
    /// The number of a machine that announces what it does not have.
    static let stranger = -1
    /// The key of the channel's hosts. Making one takes time, and nothing in a run hangs on which it is.
    private static let identity = try! Identity(generating: "Crane 2")
    private static let identityPEM = identity.pem
    private static let transportKeys = [UInt8](repeating: 5, count: 96)
    /// What is known of a dead machine, or of one that is out of reach, is forgotten within this time.
    private static let lingering = 2_000...12_000
    /// An Avahi that was told goodbye forgets after a second.
    private static let goodbye = 1_000...1_060

    private struct Entry {
        let announcement: HostAnnouncement
        let since: Instant
        /// Nobody stands behind it as far as this machine could know.
        var isLeaving = false
        var changes = 0
    }

    private unowned let fleet: Fleet
    private let world: World
    private var random: SeededGenerator
    let channel: RelayChannelConfiguration
    let mediaKey = MediaKey(epoch: InvitationLink.mediaKeyEpoch, baseKey: [UInt8](repeating: 3, count: 32))!
    /// The channel has been created, or deleted again.
    private(set) var isThere = false
    /// Until when the first machine of a pair does not reach the second.
    private var apartUntil: [[Instant]]
    private var paths: [Int: NetworkPath] = [:]
    /// What each machine announces, by its number.
    private(set) var announced: [Int: HostAnnouncement] = [:]
    private var dead: Set<HostID> = []
    /// What each machine has heard.
    private var heard: [[HostID: Entry]]
    private var coming: [Set<HostID>]
    private var lastPort: UInt16 = 100

    init(fleet: Fleet, devices: Int) {
        self.fleet = fleet
        world = fleet.world
        random = fleet.world.random("site")
        var channel = RelayChannelConfiguration(
            id: ChannelID("00000000-0000-4000-8000-0000000000aa")!, name: DisplayName("Crane 2")!,
            token: InvitationToken([UInt8](repeating: 9, count: 16))!, isEndToEnd: true)
        channel.retention = BurstRetention(bursts: 10, time: .seconds(600))
        self.channel = channel
        apartUntil = Array(repeating: Array(repeating: .zero, count: devices), count: devices)
        heard = Array(repeating: [:], count: devices)
        coming = Array(repeating: [], count: devices)
    }

    // MARK: The channel

    /// The invitation with the host at that place.
    func link(at place: RelayPlace) -> InvitationLink {
        try! InvitationLink(
            host: place.host, port: place.port, channelName: channel.name, channel: channel.id, token: channel.token,
            pin: Self.identity.pin, mediaKey: mediaKey)
    }

    func create() { isThere = true }

    func delete() { isThere = false }

    /// What the creator's machine knows; another one has been told it by its host.
    func secrets(generation: UInt32, host: HostID) -> ServerMessage.Succession {
        ServerMessage.Succession(
            generation: generation, host: host, identity: Self.identityPEM, transportKeys: Self.transportKeys,
            creator: DisplayName("device 0")!)
    }

    /// A member is told what it needs to host the channel: that must be the channel's.
    func check(_ told: ServerMessage.Succession, toldTo name: String) {
        guard told.identity != Self.identityPEM || told.transportKeys != Self.transportKeys else { return }
        world.fail("L", "\(name) is told other secrets of the channel than its creator made")
    }

    /// The relay's part of the channel on a machine that hosts it.
    func configuration(_ secrets: ServerMessage.Succession, on device: Device) -> RelayChannelConfiguration {
        var configuration = channel
        configuration.admission = .nearby(secrets.admission, relay: Self.identity.pin, mediaKey: mediaKey)
        configuration.succession = secrets.with(order: [])
        configuration.hostMember = MemberID(device.pin)
        return configuration
    }

    func newHostID() -> HostID {
        HostID(bytes: (0..<HostID.byteCount).map { _ in UInt8.random(in: 0...255, using: &random) })!
    }

    /// Where a machine's next relay is: the creator's keeps its port.
    func nextPlace(on device: Device) -> RelayPlace {
        lastPort += 1
        return RelayPlace(host: device.name, port: device.number == Self.creator ? 100 : lastPort)!
    }

    // MARK: Who reaches whom

    /// The way from a member's machine to a host's.
    func path(from member: Int, to host: Int) -> NetworkPath {
        let key = member * 16 + host
        if let path = paths[key] { return path }
        let path = NetworkPath(world, use: "path \(member) \(host)")
        paths[key] = path
        return path
    }

    /// All ways over the network of one machine, in order.
    func paths(of device: Int) -> [NetworkPath] {
        fleet.devices.filter { $0.number != device }.flatMap {
            [path(from: device, to: $0.number), path(from: $0.number, to: device)]
        }
    }

    /// Whether anything has gone wrong since then on any way between these machines.
    func isQuiet(among devices: [Int], since time: Instant) -> Bool {
        devices.allSatisfy { one in
            devices.allSatisfy { one == $0 || path(from: one, to: $0).troubledUntil < time }
        }
    }

    func reaches(_ one: Int, _ other: Int) -> Bool {
        one == other || one < 0 || other < 0 || world.now >= apartUntil[one][other]
    }

    private func part(_ one: Int, _ other: Int, for time: Duration) {
        guard one != other else { return }
        for (from, to) in [(one, other), (other, one)] {
            apartUntil[from][to] = max(apartUntil[from][to], world.now + time)
            path(from: from, to: to).block(up: true, down: true, for: time)
        }
    }

    /// Nobody reaches that machine for a time.
    func cut(_ device: Int, for time: Duration) {
        for other in fleet.devices { part(device, other.number, for: time) }
        networkHasChanged(for: time)
    }

    /// The network falls into two parts, by the bits of `mask`.
    func split(_ mask: Int, for time: Duration) {
        for one in fleet.devices {
            for other in fleet.devices where other.number > one.number {
                if (mask >> one.number) & 1 != (mask >> other.number) & 1 { part(one.number, other.number, for: time) }
            }
        }
        networkHasChanged(for: time)
    }

    private func networkHasChanged(for time: Duration) {
        reconcile()
        world.after(time + .milliseconds(1)) { [self] in reconcile() }
    }

    // MARK: Announcements

    /// The hosts that a machine has heard of, its own not among them.
    func sightings(for device: Int) -> [NearbyHostSighting] {
        heard[device].values.map(\.announcement.sighting).sorted { $0.host < $1.host }
    }

    /// The only host that a machine has heard of, for longer than a host may take to let it in.
    func onlyHost(for device: Int) -> HostAnnouncement? {
        guard heard[device].count == 1, let entry = heard[device].values.first, !entry.isLeaving,
            entry.since + SuccessionStateMachine.joinTimeout < world.now
        else { return nil }
        return entry.announcement
    }

    func announce(_ announcement: HostAnnouncement) {
        announced[announcement.device] = announcement
        world.note(
            name(announcement.device), "announces generation \(announcement.generation), host \(announcement.host)")
        if !isThere { world.fail("L", "\(name(announcement.device)) announces a channel that nobody has created") }
        reconcile()
    }

    /// The machine says that it announces nothing more; or it is dead, and says nothing.
    func withdraw(_ device: Int, saysGoodbye: Bool) {
        guard let announcement = announced.removeValue(forKey: device) else { return }
        if !saysGoodbye { dead.insert(announcement.host) }
        reconcile()
    }

    /// The machine has lost its power: it has heard of nobody.
    func forgetAll(_ device: Int) { heard[device] = [:] }

    private func name(_ device: Int) -> String { device < 0 ? "a stranger" : "d\(device)" }

    /// Has everybody hear of what has changed, each after a while.
    func reconcile() {
        for observer in fleet.devices.indices { reconcile(observer) }
    }

    private func reconcile(_ observer: Int) {
        for host in heard[observer].keys.sorted() {
            guard let entry = heard[observer][host] else { continue }
            let machine = entry.announcement.device
            let isCurrent = announced[machine]?.host == host
            let isLeaving = !isCurrent || !reaches(observer, machine)
            guard isLeaving != entry.isLeaving else { continue }
            heard[observer][host]?.isLeaving = isLeaving
            heard[observer][host]?.changes += 1
            guard isLeaving else { continue }
            let hearsGoodbye = !isCurrent && !dead.contains(host) && reaches(observer, machine)
            let time = Int.random(in: hearsGoodbye ? Self.goodbye : Self.lingering, using: &random)
            forget(host, by: observer, after: .milliseconds(time), changes: entry.changes + 1)
        }
        for device in announced.keys.sorted() where device != observer && reaches(observer, device) {
            guard let announcement = announced[device], heard[observer][announcement.host] == nil,
                coming[observer].insert(announcement.host).inserted
            else { continue }
            // Now and then a query is due before anything is said.
            let time = Int.random(in: random.chance(80) ? 20...300 : 300...2_000, using: &random)
            world.after(.milliseconds(time)) { [self] in
                coming[observer].remove(announcement.host)
                guard announced[device] == announcement, reaches(observer, device) else { return }
                heard[observer][announcement.host] = Entry(announcement: announcement, since: world.now)
                tell(observer)
            }
        }
    }

    private func forget(_ host: HostID, by observer: Int, after time: Duration, changes: Int) {
        world.after(time) { [self] in
            guard let entry = heard[observer][host], entry.isLeaving, entry.changes == changes else { return }
            heard[observer][host] = nil
            tell(observer)
            reconcile(observer)
        }
    }

    private func tell(_ observer: Int) { fleet.devices[observer].process?.nearby?.seen(sightings(for: observer)) }
}
