// The whole fleet in one thread: a schedule goes in, what it violates comes out.
import Cryptography
import FoundationEssentials
import Glibc
import MonotonicTime
import PushToTalkCore
import RelayProtocol
import RelayServer
import Vocabulary

@testable import Accessories
@testable import Bridge
@testable import RelayClient

/// What came of one schedule.
public struct Outcome: Sendable {
    /// The first thing that was wrong; nil: nothing.
    public var violation: Violation?
    /// The story, when it was asked for.
    public var trace: [String]
    /// Steps that were checked.
    public var steps: Int
    /// Transmissions that began.
    public var transmissions: Int
    /// How long after the last trouble all was well again.
    public var recovery = Duration.zero
}

/// Devices and relays, and the world that they are in.
public final class Fleet {
    /// One transmission may last this long, which is less than in life: there is less to simulate.
    static let talkTimeLimit = Duration.seconds(10)
    /// All must be ready so long after the last trouble: a link's longest pause between attempts is half a minute.
    static let recoveryLimit = Duration.seconds(75)
    /// The lease of a relay that has gone without a word has to end before, twice if the next one has gone as well.
    static let clusterRecoveryLimit = recoveryLimit + .seconds(45)

    let world: World
    let library: ProfileLibrary
    let coverage: Coverage
    /// Of the two configured channels, and of one to visit.
    let invitations: [InvitationLink]
    /// Where the invitations lead, and another one with the same key and channels; or those of a cluster.
    private(set) var relays: [SimulatedRelay] = []
    /// Whose relays they are; nil: each is alone.
    private(set) var cluster: SimulatedCluster?
    private(set) var devices: [Device] = []
    let schedule: Schedule
    private var recovered = Duration.zero
    /// When a device began to host the channel nearby last.
    private(set) var lastHostAt = Instant.zero
    /// When a host of it died with its pttd last.
    var hostDiedAt = Instant.zero
    /// Where the channel is one nearby.
    private(set) var site: NearbySite?

    /// The shipped profiles, read once.
    private static let library = ProfileLibrary.load(directory: nil).library

    init(_ schedule: Schedule, isTracing: Bool, coverage: Coverage) {
        self.schedule = schedule
        self.coverage = coverage
        world = World(seed: schedule.seed, isTracing: isTracing)
        library = Self.library
        let names = ["Yard", "Workshop", "Visitors"]
        let ids =
            schedule.isCluster
            ? SimulatedCluster.channels(world.random("channels"))
            : names.indices.map { ChannelID("00000000-0000-4000-8000-00000000000\($0)")! }
        let channels = names.enumerated().map { index, name in
            RelayChannelConfiguration(
                id: ids[index], name: DisplayName(name)!,
                token: InvitationToken(Array(repeating: UInt8(index), count: 16))!,
                rules: FleetRules.all[schedule.rules])
        }
        invitations = channels.map { channel in
            try! InvitationLink(
                host: "relay", port: 1, channelName: channel.name, channel: channel.id, token: channel.token,
                pin: PublicKeyPin((0..<PublicKeyPin.byteCount).map { UInt8(truncatingIfNeeded: $0) })!)
        }
        if schedule.isNearby {
            site = NearbySite(fleet: self, devices: schedule.devices)
        } else if schedule.isCluster {
            let cluster = SimulatedCluster(world, fleet: self, channels: channels)
            relays = cluster.nodes.map(\.relay)
            self.cluster = cluster
        } else {
            relays = (0..<2).map { number in
                let place = RelayPlace(host: "relay", port: UInt16(1 + number))!
                return SimulatedRelay(world, fleet: self, number: number, place: place, channels: channels)
            }
        }
        devices = (0..<schedule.devices).map { Device(fleet: self, number: $0) }
        world.checks = { [unowned self] in
            for device in devices { device.process?.check() }
            for relay in relays { relay.check() }
            cluster?.check()
        }
    }

    /// The relay that the invitations lead to; of a cluster, the one that serves the first channel; of a channel nearby, that of its creator.
    var relay: SimulatedRelay {
        if let cluster { return cluster.serving ?? relays[0] }
        return site == nil ? relays[0] : devices[NearbySite.creator].ownRelay ?? relays[0]
    }

    /// Whether a burst goes on over another relay when its own one is lost.
    var resumesBursts: Bool { site != nil || cluster != nil }

    /// The relay that a device finds there; nil: nobody.
    func relay(at place: RelayPlace, for device: Device) -> SimulatedRelay? {
        if cluster != nil { return relays.first { $0.place == place } }
        guard site != nil else { return relays.first { $0.place == place } ?? relay }
        let place = place.host == "127.0.0.1" ? RelayPlace(host: device.name, port: place.port) : place
        return relays.last { $0.place == place }
    }

    /// What a ticket of that relay is kept under: those of a cluster have one key.
    func ticketPlace(of relay: SimulatedRelay) -> RelayPlace { cluster == nil ? relay.place : relays[0].place }

    /// The relay at a place that a relay named, if it did.
    func relay(named place: RelayPlace?) -> SimulatedRelay? { relays.last { $0.place == place } }

    /// The way between a device and a relay.
    func path(of device: Device, to relay: SimulatedRelay) -> NetworkPath {
        guard let site, let machine = relay.machine else { return device.path }
        // Within the machine nothing goes wrong.
        return machine == device.number ? device.path : site.path(from: device.number, to: machine)
    }

    /// A device's pttd hosts the channel nearby from now on.
    func host(
        _ channel: RelayChannelConfiguration, on device: Device, reusing own: SimulatedRelay?
    ) -> SimulatedRelay {
        lastHostAt = world.now
        if let own {
            own.comeBack(with: [channel])
            return own
        }
        guard let site else { preconditionFailure("a fleet without a channel nearby has no hosts") }
        let made = SimulatedRelay(
            world, fleet: self, number: relays.count, place: site.nextPlace(on: device), on: device.number,
            channels: [channel])
        relays.append(made)
        if device.number == NearbySite.creator { device.ownRelay = made }
        return made
    }

    /// Runs a schedule to its end, or to the first violation.
    public static func run(
        _ schedule: Schedule, isTracing: Bool = false, coverage: Coverage = Coverage()
    ) -> Outcome {
        let fleet = Fleet(schedule, isTracing: isTracing, coverage: coverage)
        fleet.run()
        defer { fleet.world.end() }
        return Outcome(
            violation: fleet.world.violation, trace: fleet.world.trace, steps: fleet.world.steps,
            transmissions: fleet.devices.reduce(0) { $0 + $1.processes.reduce(0) { $0 + $1.begins } },
            recovery: fleet.recovered)
    }

    // MARK: The run

    private func run() {
        cluster?.start()
        for device in devices { device.start() }
        if site != nil { gather() }
        for action in schedule.actions {
            world.at(World.start + .milliseconds(action.at)) { [self] in carryOut(action) }
        }
        world.run(until: World.start + .milliseconds(max(2_000, schedule.end) + 100))
        recover()
        if schedule.isPeaceful { lookForWords() }
        prove()
        partCompany()
        lookAtRecordings()
        if site != nil { end() }
    }

    private func carryOut(_ action: ScheduledAction) {
        world.note("-----", "\(action)")
        switch action.verb {
        case .relaykill: relay(action.n).kill(for: action.duration)
        case .relaypower: relay(action.n).kill(for: action.duration, losesPower: true)
        case .relayhalt: relay(action.n).halt(for: action.duration)
        case .drain: drain(relay(action.n), for: action.duration, how: action.value)
        case .renew: relay(action.n).renewKeys()
        case .natsdown: cluster?.loseLeader(for: action.duration)
        case .natscut: cluster?.node(action.n).cutOff(for: action.duration, fromTableOnly: action.value == 1)
        case .split: site?.split(action.value, for: action.duration)
        case .stranger: strangerComes(for: action.duration)
        case .rules:
            cluster?.setRules(action.value % FleetRules.all.count)
            for relay in relays { relay.setRules(action.value % FleetRules.all.count) }
            world.after(action.duration) { [self] in
                cluster?.setRules(schedule.rules)
                for relay in relays { relay.setRules(schedule.rules) }
            }
        default: devices[action.device].carryOut(action)
        }
    }

    /// The relay that an action is about.
    private func relay(_ number: Int) -> SimulatedRelay { cluster?.node(number).relay ?? relays[number % 2] }

    private func drain(_ relay: SimulatedRelay, for time: Duration, how: Int) {
        if let node = relay.node { return node.handOver(for: time) }
        let successor = relays[1 - relay.number]
        // One that is named and does not answer is gone for as long as the other one is.
        if how == 2 { successor.kill(for: time + SimulatedRelay.drainTime + .seconds(5)) }
        relay.drain(to: how == 0 ? nil : successor.place, for: time)
    }

    // MARK: Liveness

    /// Everything gets ready by itself: but for buttons, which advertise when they are pressed.
    private func recover() {
        guard world.violation == nil else { return }
        world.note("-----", "the trouble is over")
        if site == nil { for device in devices { device.comeHome() } }
        if site == nil, cluster == nil { relays[1].retire(to: relay.place) }
        let limit =
            site != nil ? Self.gatheringLimit : cluster != nil ? Self.clusterRecoveryLimit : Self.recoveryLimit
        let end = world.now + limit
        while world.violation == nil {
            for device in devices { for button in device.buttons { device.bluez.advertise(button) } }
            world.run(until: world.now + .milliseconds(500))
            let missing = devices.compactMap { $0.notReady } + [siteUnrest, cluster?.unrest].compactMap(\.self)
            if missing.isEmpty {
                recovered = world.now - (end - limit)
                break
            }
            if world.now > end { return world.fail("L", "not ready again: \(missing.joined(separator: "; "))") }
        }
        // A button whose release nobody was told of is down for pttd: its next press is no edge.
        for device in devices {
            for button in device.buttons where button.hasLostRelease {
                device.hold(button.number, .talk, for: .milliseconds(150))
                device.hold(button.number, .emergency, for: .milliseconds(150))
            }
        }
        // What is still being heard is heard to its end.
        world.run(until: world.now + .seconds(2))
        for device in devices { if let what = device.notReady { world.fail("L", "not at rest: \(what)") } }
        // Who was cut off in its last words has the floor until the relay has heard nothing for so long.
        if !relay.watch.isIdle { world.run(until: world.now + FloorControlStateMachine.Timers().mediaTimeout) }
        if !relay.watch.isIdle { world.fail("I2", "somebody has the floor, and nobody talks") }
    }

    /// While shares move and nothing else happens, each press is heard by all to the last sample.
    private func lookForWords() {
        guard world.violation == nil else { return }
        for talker in devices {
            guard let process = talker.process else { return }
            let presses = schedule.actions.count { $0.device == talker.number }
            if process.ledger.said.count != presses {
                world.fail("L", "\(talker.name) presses \(presses) times, and talks \(process.ledger.said.count) times")
            }
            for (burst, said) in process.ledger.said.sorted(by: { $0.key < $1.key }) {
                let key = BurstKey(device: talker.number, life: process.life, burst: burst)
                for listener in devices where listener !== talker {
                    let heard = listener.process?.ledger.hearings[key]?.samples ?? 0
                    if heard == said { continue }
                    return world.fail(
                        "L", "\(listener.name) heard \(heard) of \(said) samples of \(talker.name) while shares moved")
                }
            }
        }
    }

    /// A press in the healthy fleet is heard by all, in order, to the last sample.
    private func prove() {
        for talker in devices {
            guard world.violation == nil, let process = talker.process else { return }
            let before = process.ledger.said.keys.max() ?? 0
            world.note("-----", "\(talker.name) is to be heard by all")
            let taken = relay.watch.floorsTaken
            talker.hold(talker.number % 2, .talk, for: .milliseconds(700))
            world.run(until: world.now + .milliseconds(4_500))
            if relay.watch.floorsTaken != taken { world.fail("L", "the relay takes the floor of a healthy fleet") }
            guard world.violation == nil else { return }
            guard let (burst, said) = process.ledger.said.max(by: { $0.key < $1.key }), burst > before else {
                return world.fail("L", "\(talker.name) pressed in a healthy fleet, and said nothing")
            }
            // 700 ms and the tail, but for the time to connect, open and begin.
            guard said >= 48 * 650 else {
                return world.fail("L", "of 900 ms of \(talker.name) only \(said / 48) ms were recorded")
            }
            let key = BurstKey(device: talker.number, life: process.life, burst: burst)
            for listener in devices where listener !== talker {
                let heard = listener.process?.ledger.hearings[key]?.samples ?? 0
                if heard != said {
                    world.fail("L", "\(listener.name) heard \(heard) of \(said) samples of \(talker.name)")
                }
            }
        }
    }
}

extension Fleet {
    /// What was said and heard while nothing was wrong with pttd and its disk is kept.
    private func lookAtRecordings() {
        world.run(until: world.now + .seconds(2))
        for device in devices {
            if let what = device.recordings.missing(ended: world.now - .seconds(2)) {
                world.fail("L", "\(device.name): \(what)")
            }
        }
    }

    /// One leaves the channel in the healthy fleet: the others are told.
    private func partCompany() {
        guard world.violation == nil, let leaver = devices.last else { return }
        if site == nil { leaver.setHours(isOpen: false) } else { leaver.part(for: .milliseconds(1_500)) }
        world.run(until: world.now + .seconds(1))
        let left = MemberID(leaver.pin).description
        for device in devices.dropLast() where device.process?.director.bridge?.link.members.contains(left) == true {
            world.fail("L", "\(device.name) is not told that \(leaver.name) has left")
        }
    }
}

extension Device {
    /// What keeps it from being ready; nil: nothing.
    var notReady: String? {
        guard let process else { return "\(name): pttd does not run" }
        guard let bridge = process.director.bridge else { return "\(name): no channel" }
        guard bridge.uuid == configured.first?.uuid ?? fleet.site?.channel.id.uuid else {
            return "\(name): another channel"
        }
        guard bridge.link.isReady, let connection = bridge.link.connection, connection.isOpenAtRelay else {
            return "\(name): no link"
        }
        guard !connection.isStalled else { return "\(name): its connection did not move" }
        guard connection.relay === fleet.relay, connection.relay.isListening else {
            return "\(name): with another relay"
        }
        let machine = process.channel.machine
        guard machine.channel?.serviceStatus == .ready else { return "\(name): \(bridge.machine.serviceDetail)" }
        guard machine.transmission == nil, machine.waiting == nil else { return "\(name): transmits" }
        guard !machine.isCapturing, !process.channel.microphone.isRunning else { return "\(name): records" }
        guard machine.activeRemoteParticipant == nil else { return "\(name): still hears somebody" }
        guard machine.audioSession == .inactive else { return "\(name): the session is \(machine.audioSession)" }
        guard bridge.link.openBursts.isEmpty else { return "\(name): bursts without an end" }
        guard !bridge.machine.key.isHeld else { return "\(name): the key is held" }
        guard bridge.link.core.floor?.outlook?.normal == .idle else { return "\(name): takes the floor for taken" }
        let everyone = Set(fleet.devices.map { MemberID($0.pin).description })
        guard bridge.link.members == everyone else { return "\(name): does not know who is on the channel" }
        guard process.pushes.isEmpty else { return "\(name): pushes without an end" }
        guard fleet.site != nil || disk.expected == nil else { return "\(name): would restore a channel that was left" }
        for button in buttons where !process.accessories.isReady(button) {
            return "\(name): \(process.accessories.report)"
        }
        return nil
    }
}
