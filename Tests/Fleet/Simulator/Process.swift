// One life of pttd on a device, from its start to its end or to the SIGKILL.
import MonotonicTime
import PushToTalkCore
import Vocabulary

@testable import Bridge

final class Process {
    /// A press that is older counts for nothing: it waited in a bluetoothd that hung, and that is noticed after 3 s at most.
    static let pressAge = Duration.milliseconds(3_500)

    unowned let device: Device
    /// Which life of pttd on this device it is, from 0.
    let life: Int
    let startedAt: Instant
    private(set) var isAlive = true
    private(set) var ledger: Ledger!
    private(set) var accessories: ProcessAccessories!
    private(set) var channel: ProcessChannel!
    private(set) var director: ProcessDirector!
    private(set) var recorder: ProcessRecorder!
    /// Where there is a channel nearby.
    private(set) var nearby: ProcessNearby?
    /// The presses that this pttd was told of since its last transmission began, and those that transmissions were begun for.
    private var freshEdges: Set<Instant> = []
    private var usedEdges: Set<Instant> = []
    /// When it read of a press that was made before the button was connected.
    private var readAt: [Instant: Instant] = [:]
    var talker = TalkerWatch()
    /// Pushes that have come, and of which it has not been told what became.
    var pushes: Set<String> = []
    var pushesMade = 0
    private(set) var begins = 0
    /// Links that were made: each has random numbers of its own.
    var linksMade = 0

    let world: World
    var name: String { device.name }

    init(device: Device, life: Int) {
        self.device = device
        world = device.world
        self.life = life
        startedAt = device.world.now
        ledger = Ledger(process: self)
        recorder = ProcessRecorder(process: self)
        channel = ProcessChannel(process: self)
        director = ProcessDirector(process: self, channel: channel)
        accessories = ProcessAccessories(process: self)
        nearby = device.fleet.site.map { ProcessNearby(process: self, site: $0) }
    }

    func start() {
        let hosted = nearby?.start()
        let kept = device.disk.expected
        let found = director.start(hosted: hosted)
        if kept != found { world.fail("L", "\(name) finds another channel to restore than was kept") }
        if let found, device.isOpen, director.machine.active?.uuid != found.channelUUID {
            world.fail("L", "\(name) does not restore the channel that it was on")
        }
        later { [self] in device.bluez.clientCame() }
        for program in device.programs { program.daemonCame() }
        for local in device.locals { local.daemonCame() }
    }

    /// SIGKILL: nothing more happens.
    func kill() { isAlive = false }

    /// The next turn of the loop.
    func later(_ work: @escaping () -> Void) {
        device.clock.after(.zero) { [self] in if isAlive { work() } }
    }

    /// It is told of a press that was made then; by what it reads over a new link, perhaps long afterwards.
    func heard(_ edge: Instant, isRead: Bool = false) {
        guard edge >= startedAt, !usedEdges.contains(edge) else { return }
        freshEdges.insert(edge)
        if isRead { readAt[edge] = world.now }
    }

    // MARK: Invariants

    /// A transmission begins: somebody has pressed, since this pttd runs and since its last transmission began (I1).
    func began(_ source: PTChannelTransmitRequestSource) {
        begins += 1
        let newest = freshEdges.max()
        let isStillDown = device.buttons.contains { button in
            button.isDown && button.edge.map(freshEdges.contains) == true
        }
        usedEdges.formUnion(freshEdges)
        freshEdges = []
        // What waited for the floor, and an emergency that insists for as long as anything is held, begin later than their press.
        if channel.machine.transmission?.captureStart == .afterGoAhead || device.isEmergencyDown { return }
        if director.bridge?.machine.emergencyRetry != nil { return }
        // An emergency control counts after a while, and may have come up untold by then.
        let isUrgent = director.bridge?.machine.key.isUrgent == true
        if isUrgent, device.isEmergencyUpNews || device.buttons.contains(where: \.hasLostRelease) { return }
        if device.buttons.contains(where: \.countsAsUp) { return }
        guard let newest else { return world.fail("I1", "\(name) begins to transmit, and nobody has pressed anew") }
        if !isStillDown, world.now > (readAt[newest] ?? newest) + Self.pressAge {
            world.fail("I1", "\(name) begins to transmit for an old press")
        }
    }

    /// What must hold after every step.
    func check() {
        let device = device
        // While the machine sleeps it does nothing that could be wrong.
        guard device.clock.asleepSince == nil else { return }
        let (now, shown) = (world.now, device.clock.now)
        let microphone = channel.microphone
        if microphone.isRunning || channel.machine.waiting != nil {
            if let since = device.releasedSince, now > since + Device.releaseGrace {
                let what = microphone.isRunning ? "records" : "waits for the floor"
                world.fail("I1", "\(name) \(what), and nobody has held anything for \(now - since)")
            }
        }
        if let wrong = talker.check(self, at: shown) { world.fail(wrong.invariant, "\(name): \(wrong.text)") }
        if microphone.isRunning, let since = device.rest.isTakenSince, now > since + .milliseconds(5) {
            world.fail("I1", "\(name) records while something else has the audio")
        }
        if let begunAt = channel.machine.transmission?.begunAt, shown > begunAt + Fleet.talkTimeLimit + .milliseconds(5)
        {
            world.fail("I2", "\(name) transmits for \(shown - begunAt)")
        }
        if let bridge = director.bridge {
            if let wrong = bridge.link.resumption.check(at: shown) { world.fail("I2", "\(name): \(wrong)") }
            if bridge.link.openBursts.count > 6 { world.fail("I8", "\(name): \(bridge.link.openBursts.count) bursts") }
            // Who slept, or was cut off, through the ends of bursts takes them for going on, until nothing has come of them for a while.
            let mayHearMore = now < max(device.clock.wokeAt, device.path.troubledUntil) + .seconds(5)
            if bridge.machine.speakers.count > max(1, bridge.machine.talkersAllowed), !mayHearMore {
                world.fail("I8", "\(name) hears \(bridge.machine.speakers.count) at once")
            }
        }
    }
}
