// A fleet on a channel nearby: how it comes together, what becomes of it when its host goes, and how it ends.
import MonotonicTime
import Nearby
import RelayProtocol
import RelayServer

@testable import Bridge
@testable import RelayClient

extension Fleet {
    /// After the last trouble all are on the creator's host so soon.
    static let gatheringLimit = Duration.seconds(15)
    /// A host that dies is replaced so soon, where nothing else goes wrong.
    static let takeOverLimit = Duration.seconds(3)
    /// A channel that is deleted is over for all so soon.
    private static let deletionLimit = Duration.seconds(2)

    /// The first device creates the channel, and the others join it one after the other.
    func gather() {
        devices[NearbySite.creator].process?.nearby?.create()
        for device in devices where device.number != NearbySite.creator {
            world.after(.milliseconds(300 + 150 * device.number)) { device.joinAgain() }
        }
    }

    /// A stranger announces the channel, as its oldest host, where nobody is.
    func strangerComes(for time: Duration) {
        guard let site, let host = HostID(bytes: [UInt8](repeating: 0, count: HostID.byteCount)),
            let place = RelayPlace(host: "stranger", port: 9)
        else { return }
        site.announce(HostAnnouncement(device: NearbySite.stranger, host: host, generation: 0, place: place))
        world.after(time) { site.withdraw(NearbySite.stranger, saysGoodbye: true) }
    }

    /// The host of the channel has died with its pttd. Where nothing is wrong with the others, one of them is the next host soon.
    func expectNextHost(after device: Device) {
        hostDiedAt = world.now
        guard let site, let dead = device.process?.nearby?.host, let first = dead.firstSuccessor else { return }
        let now = world.now
        let heirs = devices.filter { $0 !== device && $0.link?.connection?.relay === dead }
        // Each has been told its turn, and knows of no other host.
        guard heirs.contains(where: { $0.number == first }),
            heirs.allSatisfy({ $0.link.map { $0.isReady && $0.readySince + .seconds(1) < now } ?? false }),
            heirs.allSatisfy({ site.sightings(for: $0.number).allSatisfy { $0.places == [dead.place] } }),
            // Who has come back knows nothing of earlier lives of the host, and takes one that is still announced for another host.
            heirs.allSatisfy({ !$0.hasComeBack || site.sightings(for: $0.number).count <= 1 })
        else { return }
        let processes = heirs.map { $0.process }
        world.after(Self.takeOverLimit) { [self] in
            // The next host may have died, too: its heirs begin anew.
            guard hostDiedAt == now, site.isThere, site.announced[NearbySite.stranger] == nil,
                site.isQuiet(among: heirs.map(\.number) + [device.number], since: now - .seconds(6)),
                zip(heirs, processes).allSatisfy({ $0.process === $1 && $0.isToBeOnChannel && !$0.isEnding })
            else { return }
            // Where the network was in two parts until just now, the other part's host is there already: who hears of it goes there,
            // whether or not it can be reached, and needs no new one.
            let goesToAnother = heirs.contains { heir in
                site.sightings(for: heir.number).contains { $0.places != [dead.place] }
                    || heir.link?.isReady == true
                        && heir.link?.connection.map { $0.relay !== dead && $0.relay.isUp } == true
            }
            if lastHostAt < now, !goesToAnother {
                world.fail(
                    "L", "\(device.name) hosted the channel and died, and nobody hosts it \(Self.takeOverLimit) later")
            }
        }
    }

    /// What keeps the channel nearby from being at rest on its creator's host; nil: nothing.
    var siteUnrest: String? {
        guard let site else { return nil }
        guard devices[NearbySite.creator].process?.nearby?.host != nil else { return "the creator hosts nothing" }
        if relays.contains(where: { $0.isUp && $0 !== relay }) { return "there is more than one host" }
        if site.announced.count != 1 { return "\(site.announced.count) hosts are announced" }
        return nil
    }

    /// The creator deletes the channel: it is over for all.
    func end() {
        guard world.violation == nil, let site else { return }
        // Who has left is back.
        world.run(until: world.now + .seconds(2))
        for device in devices {
            if device.link?.isReady != true { world.fail("L", "\(device.name) is not back on the channel") }
        }
        world.note("-----", "the channel is deleted")
        devices[NearbySite.creator].process?.nearby?.delete()
        world.run(until: world.now + Self.deletionLimit)
        for device in devices {
            if device.process?.director.machine.active != nil {
                world.fail("L", "\(device.name) is still on a channel that its creator has deleted")
            }
            if device.process?.nearby?.machine != nil {
                world.fail("L", "\(device.name) still follows the hosts of a channel that its creator has deleted")
            }
        }
        // Long enough for each to have its turn, had it one.
        world.run(until: world.now + .seconds(6))
        if relays.contains(where: \.isUp) { world.fail("L", "a deleted channel is hosted") }
        if !site.announced.isEmpty { world.fail("L", "a deleted channel is announced") }
    }
}

extension Device {
    /// All ways by which it talks to relays.
    var paths: [NetworkPath] { fleet.site?.paths(of: number) ?? [path] }

    /// Whether a channel is to be active: of a channel nearby, while it is joined.
    var isToBeOnChannel: Bool {
        guard let site = fleet.site else { return true }
        return site.isThere && memory.isJoined
    }

    /// It has left the channel and joined it again, or its pttd has been started again.
    var hasComeBack: Bool { hasParted || processes.count > 1 }

    /// pttd ends in good order: its relay first, then all of it.
    func quit(for time: Duration) {
        guard let ending = process else { return }
        world.note(name, "pttd ends")
        ending.nearby?.stop()
        isEnding = true
        world.after(SuccessionStateMachine.leavingTime) { [self] in
            isEnding = false
            guard process === ending else { return }
            link?.close()
            kill(for: time)
        }
    }

    /// Leaves the channel nearby, and joins it again after a time.
    func part(for time: Duration) {
        // A pttd that ends does nothing more that it is asked for.
        guard !isEnding, let director = process?.director, let active = director.machine.active, memory.isJoined
        else { return }
        memory.isJoined = false
        hasParted = true
        director.step(.leave(active.uuid, caller: ":1.7"))
        world.after(time) { [self] in joinAgain() }
    }

    /// Joins the channel nearby, until it has.
    func joinAgain() {
        guard let process else { return world.after(.milliseconds(500)) { [self] in joinAgain() } }
        process.nearby?.joinNearby()
        // Its pttd may be killed while it asks.
        world.after(.seconds(6)) { [self] in if !memory.isJoined, fleet.site?.isThere == true { joinAgain() } }
    }
}
