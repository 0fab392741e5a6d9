// One machine of the fleet: what outlives pttd, and what happens to it from outside.
import Cryptography
import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import RelayProtocol
import RelayServer

@testable import Accessories
@testable import Bridge
@testable import RelayClient

final class Device {
    /// How long after the last release the microphone may run: the way of the release, the tail, and what is on its way.
    static let releaseGrace = Duration.milliseconds(700)

    /// Who is told on a healthy network that another has the floor ends so soon.
    static let overrideLimit = Duration.milliseconds(300)
    /// Who is sent to another relay on a healthy network is there so soon.
    static let moveLimit = Duration.milliseconds(1_500)

    unowned let fleet: Fleet
    let number: Int
    let name: String
    let pin: PublicKeyPin
    /// Of its member's RTP clock.
    var timestampAtZero: UInt32 { 0x1234_5678 &* UInt32(number + 1) }
    let clock: MachineClock
    let path: NetworkPath
    private(set) var network: MachineNetwork!
    let buttons: [Button]
    let configured: [ChannelMembership]
    private(set) var programs: [ProgramOnBus] = []
    private(set) var locals: [LocalDevice] = []
    private(set) var bluez: SimulatedBlueZ!
    private(set) var process: Process?
    /// They are referred to by what is still under way.
    private(set) var processes: [Process] = []
    var connections: [Connection] = []
    let disk: SimulatedDisk
    let recordings: SimulatedRecordings
    /// With which key each relay made the newest ticket. pttd keeps them on the disk.
    var tickets: [RelayPlace: Int] = [:]
    /// The join that was sent to each relay last as early data, as somebody on the way has recorded it.
    var recorded: [RelayPlace: EarlyJoin] = [:]
    /// What it keeps of the channel nearby.
    var memory = NearbyMemory()
    /// Its pttd ends in good order.
    var isEnding = false
    /// The relay by which it hosts the channel that it has created.
    var ownRelay: SimulatedRelay?
    /// The hours of push to talk.
    private(set) var isOpen = true
    private(set) var microphoneBrokenUntil = Instant.zero
    private(set) var speakerBrokenUntil = Instant.zero
    /// Callers on the bus that hold the talk key.
    private var callers: [Int: Int] = [:]
    private(set) var rest: DeviceRest!
    private var lastUp = Instant.zero
    private var lastEdge = Instant.zero
    /// It has left the channel nearby once.
    var hasParted = false
    private var emergencyUp = Instant.zero
    /// Until when nobody can know that a button has come up.
    private var excusedUntil = Instant.zero

    let world: World

    init(fleet: Fleet, number: Int) {
        self.fleet = fleet
        world = fleet.world
        self.number = number
        name = "d\(number)"
        pin = PublicKeyPin((0..<PublicKeyPin.byteCount).map { UInt8(truncatingIfNeeded: $0 * 7 + number) })!
        clock = MachineClock(fleet.world, number: number)
        path = NetworkPath(fleet.world, use: "path \(number)")
        disk = SimulatedDisk(fleet.world)
        recordings = SimulatedRecordings(fleet.world, disk: disk, device: name)
        disk.suffers = { [recordings] in recordings.hasTrouble() }
        // A button that nobody touches only takes time.
        let hasStream = fleet.schedule.actions.contains { $0.verb == .hold && $0.device == number && $0.n == 2 }
        buttons = (0..<(hasStream ? 3 : 2)).map { Button(device: number, number: $0, library: fleet.library) }
        configured = (fleet.site == nil ? fleet.invitations : []).prefix(2).map { link in
            ChannelMembership(
                uuid: link.channel.uuid, descriptor: PTChannelDescriptor(name: link.channelName.text, image: nil),
                owner: nil, isConfigured: true, link: link)
        }
        bluez = SimulatedBlueZ(device: self)
        network = MachineNetwork(device: self)
        rest = DeviceRest(device: self)
        programs = (0..<2).map { ProgramOnBus(device: self, number: $0) }
        locals = (0..<2).map { LocalDevice(device: self, number: $0) }
        disk.kill = { [unowned self] in kill(for: .milliseconds(300)) }
    }

    // MARK: pttd

    func start() {
        let made = Process(device: self, life: processes.count)
        processes.append(made)
        process = made
        world.note(name, "pttd starts")
        // Its machine may have had no power.
        fleet.site?.reconcile()
        made.start()
        rest.daemonCame(made)
    }

    /// - Parameter losesPower: The whole machine goes, and says nothing.
    func kill(for time: Duration, losesPower: Bool = false) {
        guard let killed = process else { return }
        world.note(name, losesPower ? "the machine has no power" : "pttd is killed")
        killed.kill()
        recordings.writerIsGone()
        if killed.nearby?.host != nil { fleet.expectNextHost(after: self) }
        killed.nearby?.kill(saysGoodbye: !losesPower)
        if losesPower { fleet.site?.forgetAll(number) }
        process = nil
        bluez.clientLeft()
        for button in buttons {
            button.hasLostRelease = false
            button.isLost()
        }
        clock.after(time) { [self] in if process == nil { start() } }
    }

    // MARK: What people do

    /// For pttd, something is held whose release the kernel tells.
    var holdsWithoutBluetoothd: Bool {
        locals.contains(where: \.isDown) || buttons.contains { $0.isStream && ($0.isDown || $0.hasLostRelease) }
    }

    var isEmergencyDown: Bool { buttons.contains { $0.isDown(.emergency) } }

    /// pttd may not know yet that an emergency control has come up.
    var isEmergencyUpNews: Bool { world.now < max(emergencyUp + .milliseconds(50), excusedUntil) }

    private var isAnythingDown: Bool {
        buttons.contains(where: \.isDown) || callers.values.contains { $0 > 0 }
            || programs.contains(where: \.isTransmitting) || locals.contains(where: \.isDown)
    }

    /// Something that was held is let go.
    func wentUp() { lastUp = world.now }

    /// Since when it is certain that nobody holds anything, and pttd can know it.
    var releasedSince: Instant? {
        guard !isAnythingDown, !buttons.contains(where: \.hasLostRelease) else { return nil }
        return max(max(lastUp, excusedUntil), process?.startedAt ?? .zero)
    }

    func excuse(until time: Instant) { excusedUntil = max(excusedUntil, time) }

    /// What a halted bluetoothd has to tell waits until it goes on.
    private func excuseHang() { excuse(until: max(world.now, clock.worldTime(of: bluez.hungUntil))) }

    func hold(_ number: Int, _ key: Button.Key, for time: Duration) {
        let button = buttons[number]
        touch(button, key, true)
        world.after(time) { [self] in touch(button, key, false) }
    }

    /// The instant of a press. No two of a device have the same one, since each press counts once.
    func newEdge() -> Instant {
        lastEdge = max(world.now, lastEdge + .nanoseconds(1))
        return lastEdge
    }

    private func touch(_ button: Button, _ key: Button.Key, _ isPress: Bool) {
        guard button.touch(key, isPress, at: isPress ? newEdge() : world.now) else { return }
        button.toldAt = world.now
        world.note(name, "finger \(isPress ? "holds" : "leaves") \(key) of button \(button.number)")
        if !isPress { lastUp = world.now }
        if !isPress, key == .emergency { emergencyUp = world.now }
        let isTold = bluez.notify(button, button.value(isRepetition: false))
        if isTold { button.hasLostRelease = false } else if !isPress { lostRelease(button) }
        excuseHang()
    }

    /// Nobody tells that it came up. While it is connected, only its next value does.
    private func lostRelease(_ button: Button) {
        world.note(name, "button \(button.number) comes up untold")
        if bluez.isConnected(button) { button.hasLostRelease = true }
    }

    /// The link of a button is gone, as BlueZ tells.
    func linkIsGone(_ button: Button) {
        if button.hasLostRelease { excuseHang() }
        button.hasLostRelease = false
        let quietSince = max(button.toldAt, clock.worldTime(of: bluez.hungUntil))
        if button.isHeldThroughLoss, world.now >= quietSince + PressDoubt.silence { button.countsAsUp = true }
        button.isLost()
    }

    private func beat(_ button: Button, until end: Instant) {
        guard world.now < end else { return }
        // A family that repeats nothing does not begin with what was held before.
        let isFromBefore = button.isHeldThroughLoss || button.edge.map { $0 < process?.startedAt ?? .zero } ?? false
        // And one that repeats does so within the time after which its silence means that it is up.
        // By the clock of the machine, which may be faster.
        let isLate = world.now > button.toldAt + PressDoubt.silence - .milliseconds(5)
        let isOdd = button.isDown && (isLate || button.family == .value && isFromBefore)
        if !isOdd { button.toldAt = world.now }
        if !isOdd, bluez.notify(button, button.value(isRepetition: true)) {
            if button.hasLostRelease { excuseHang() }
            button.hasLostRelease = false
        }
        world.after(.milliseconds(200)) { [self] in beat(button, until: end) }
    }

    private func talk(_ caller: Int, for time: Duration, letsGo: Bool) {
        callers[caller, default: 0] += 1
        process?.heard(newEdge())
        let holder = TalkKey.Holder.caller(":1.\(caller)")
        process?.director.bridge?.press(holder) { _ in }
        world.note(name, "caller \(caller) presses")
        clock.after(time) { [self] in
            callers[caller, default: 0] -= 1
            lastUp = world.now
            world.note(name, "caller \(caller) \(letsGo ? "lets go" : "is gone")")
            // Either comes over the bus.
            clock.after(.milliseconds(2)) { [self] in process?.director.bridge?.release(holder) }
        }
    }

    // MARK: What happens to it

    func carryOut(_ action: ScheduledAction) {
        // Nobody uses a machine that sleeps, and nothing happens on it.
        if clock.asleepSince != nil, action.verb.isOnMachine { return }
        let time = action.duration
        let n = action.n % 2
        let button = buttons[min(max(0, action.n), buttons.count - 1)]
        switch action.verb {
        case .hold: hold(button.number, .talk, for: time)
        case .emergency: hold(1, .emergency, for: time)
        case .key: locals[n].hold(for: time)
        case .pull: locals[n].pull(for: time)
        case .mute: buttons[n].mutedUntil = max(buttons[n].mutedUntil, world.now + time)
        case .beat: beat(buttons[n], until: world.now + time)
        // While it is held, a value that means nothing may count as its end.
        case .noise: if !button.isDown { bluez.notify(button, button.noise(action.value)) }
        case .away:
            excuse(until: world.now + .milliseconds(action.value))
            bluez.lose(button, for: time, noticedAfter: .milliseconds(action.value))
        case .bluetoothd: bluez.stop(for: time)
        case .hang:
            bluez.hang(for: time)
            excuseHang()
        case .adapter: bluez.switchOff(for: time)
        case .talk: talk(n, for: time, letsGo: true)
        case .vanish: talk(n, for: time, letsGo: false)
        case .kill: kill(for: time)
        case .sleep: rest.sleep(for: time, isTold: action.value == 0)
        case .call: rest.call(for: time)
        case .microphone: microphoneBrokenUntil = max(microphoneBrokenUntil, world.now + time)
        case .speaker: speakerBrokenUntil = max(speakerBrokenUntil, world.now + time)
        case .clock:
            setHours(isOpen: false)
            clock.after(time) { [self] in setHours(isOpen: true) }
        case .loss: for path in paths { path.lose(min(90, action.value), for: time) }
        case .jitter: for path in paths { path.delay(.milliseconds(action.value), for: time) }
        case .doubles: for path in paths { path.double(min(100, action.value), for: time) }
        case .deaf: for path in paths { path.block(up: false, down: true, for: time) }
        case .dumb: for path in paths { path.block(up: true, down: false, for: time) }
        case .cut:
            guard let site = fleet.site else { return path.block(up: true, down: true, for: time) }
            site.cut(number, for: time)
        case .move: network.move(action.value % 5, for: time)
        case .replay: replay()
        case .reset: if let connection = connections.last { reset(connection) }
        case .garbage: process?.director.bridge?.link.receiveGarbage([0x80, 0x78] + Array(repeating: 7, count: 60))
        case .channel: process?.director.step(.change(n == 0 ? .up : .down, isPress: true))
        case .visit: visit(for: time)
        case .program: use(programs[n], how: action.value % 4, for: time)
        case .disk: useDisk(SimulatedDisk.Trouble(rawValue: action.value % 4) ?? .full, isEarly: n == 1, for: time)
        case .power: kill(for: time, losesPower: true)
        case .quit: quit(for: time)
        case .part: part(for: time)
        case .relaykill, .relayhalt, .relaypower, .natsdown, .natscut, .drain, .renew, .rules, .split, .stranger: break
        }
    }

    func setHours(isOpen: Bool) {
        guard isOpen != self.isOpen else { return }
        self.isOpen = isOpen
        process?.director.step(.hoursChanged(isOpen: isOpen))
    }

    private func visit(for time: Duration) {
        let link = fleet.invitations[2]
        process?.director.step(
            .join(
                ChannelJoin(
                    caller: ":1.9", uuid: link.channel.uuid, descriptor: PTChannelDescriptor(name: "", image: nil),
                    link: link)))
        clock.after(time) { [self] in process?.director.step(.leave(link.channel.uuid, caller: ":1.9")) }
    }

    /// The disk has a trouble while a channel is joined (early), or changed and left.
    private func useDisk(_ trouble: SimulatedDisk.Trouble, isEarly: Bool, for time: Duration) {
        if isEarly { disk.suffer(trouble, for: time) }
        visit(for: .milliseconds(200) + time / 2)
        clock.after(.milliseconds(100)) { [self] in
            if !isEarly { disk.suffer(trouble, for: time) }
            guard let process, let channel = process.channel.machine.channel,
                channel.uuid == fleet.invitations[2].channel.uuid
            else { return }
            let descriptor = PTChannelDescriptor(name: "Visitors \(time)", image: nil)
            process.channel.request(.setChannelDescriptor(descriptor, channelUUID: channel.uuid)) { _ in }
        }
    }

    /// All is over: the device is to be on the first configured channel.
    func comeHome() {
        guard let director = process?.director else { return }
        if let active = director.machine.active, !active.isConfigured {
            director.step(.leave(active.uuid, caller: ":1.9"))
        }
        director.step(.change(.name(configured[0].descriptor.name), isPress: false))
    }
}
