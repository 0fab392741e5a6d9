// Whom Bluetooth hears, whose record is read, and when a sighting is over.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import Nearby

/// Machines in the air, and an adapter that does what the rules say.
struct BluetoothWorld {
    var finder = BluetoothFinder()
    var now = Instant.zero + .seconds(10)
    /// Who advertises what.
    var air: [BluetoothPeer: BluetoothRecord] = [:]
    var strength: [BluetoothPeer: Int] = [:]
    /// Whose reads fail, and whose are never answered.
    var failing: Set<BluetoothPeer> = []
    var hanging: Set<BluetoothPeer> = []
    fileprivate(set) var isScanning = false
    fileprivate(set) var reading: [UInt64: BluetoothPeer] = [:]
    private(set) var reads: [(peer: BluetoothPeer, at: Instant)] = []
    private(set) var forgotten: [BluetoothPeer] = []
    private(set) var list: [NearbyChannel] = []
    /// What the rules did and must not.
    private(set) var wrong: [String] = []

    init(isBrowsing: Bool = true) {
        handle(.radio(true))
        if isBrowsing { handle(.browse(true)) }
    }

    var names: [String] { list.map(\.announcement.name.text) }

    mutating func handle(_ event: BluetoothFinder.Event) { take(finder.handle(event, at: now)) }

    private mutating func take(_ actions: [BluetoothFinder.Action]) {
        for action in actions {
            switch action {
            case .startScan:
                if isScanning || !reading.isEmpty { wrong.append("a scan begins during a scan or a read") }
                isScanning = true
                handle(.scanBegan)
                hearAll()
            case .stopScan:
                if !isScanning { wrong.append("a scan ends that is none") }
                isScanning = false
                handle(.scanEnded)
            case .read(let peer, let ticket):
                if isScanning { wrong.append("a read begins during a scan") }
                reading[ticket] = peer
                reads.append((peer, now))
                if reading.count > BluetoothFinder.readsAtOnce { wrong.append("too many reads at once") }
            case .endRead(let peer, let ticket):
                if reading.removeValue(forKey: ticket) != peer { wrong.append("a read ends that is none") }
            case .forget(let peer): forgotten.append(peer)
            case .report(let channels): list = channels
            }
        }
    }

    mutating func hearAll() {
        guard isScanning else { return }
        for (peer, record) in air.sorted(by: { $0.key < $1.key }) {
            handle(.heard(peer, BluetoothSignal(tag: record.tag), strength: strength[peer] ?? -50))
        }
    }

    mutating func answerReads() {
        for (ticket, peer) in reading.sorted(by: { $0.key < $1.key }) where !hanging.contains(peer) {
            reading[ticket] = nil
            if failing.contains(peer) || air[peer] == nil {
                handle(.read(ticket: ticket, .failed))
            } else if let record = air[peer] {
                handle(
                    .read(ticket: ticket, .pages(record.pages.filter { !$0.isEmpty }, zones: ["wlan0", "eth0"])))
            }
        }
    }

    /// Lets time pass; who advertises is heard every second, and reads take half a second.
    mutating func pass(_ duration: Duration) {
        let end = now + duration
        while now < end {
            let next = min(end, now + .milliseconds(500))
            while let deadline = finder.nextDeadline, deadline <= next {
                now = max(now, deadline)
                take(finder.handleTimeout(at: now))
            }
            now = next
            answerReads()
            hearAll()
        }
    }
}

@Suite struct BluetoothFinderTests {
    private static let crane = BluetoothPeer(path: "/org/bluez/hci0/dev_00_00_00_00_00_01")

    private func peer(_ number: Int) -> BluetoothPeer {
        BluetoothPeer(path: "/org/bluez/hci0/dev_00_00_00_00_00_\(number)")
    }

    @Test func `nothing is done before somebody looks`() {
        var world = BluetoothWorld(isBrowsing: false)
        world.air[Self.crane] = makeRecord(["Crane 2"])
        world.pass(.seconds(60))
        #expect(!world.isScanning && world.reads.isEmpty && world.finder.nextDeadline == nil)
        world.handle(.heard(Self.crane, BluetoothSignal(tag: 1), strength: -40))
        #expect(world.finder.sizes.peers == 0)
    }

    @Test func `a channel appears within ten seconds and one that vanished is gone within fifteen`() {
        // Whenever it begins and ends.
        for offset in 0..<40 {
            var world = BluetoothWorld()
            world.pass(.milliseconds(250) * offset)
            world.air[Self.crane] = makeRecord(["Crane 2"])
            world.pass(.seconds(10))
            #expect(world.names == ["Crane 2"])
            #expect(world.list.first?.means == [.bluetooth])
            #expect(world.list.first?.signalStrength == -50)
            world.pass(.milliseconds(130) * offset)
            world.air = [:]
            world.pass(.seconds(15))
            #expect(world.list.isEmpty, "offset \(offset)")
            #expect(world.forgotten == [Self.crane])
            #expect(world.wrong.isEmpty)
        }
    }

    @Test func `who stays is not lost`() {
        var world = BluetoothWorld()
        world.air[Self.crane] = makeRecord(["Crane 2"])
        world.pass(.seconds(10))
        for _ in 0..<600 {
            world.pass(.seconds(1))
            #expect(world.names == ["Crane 2"])
        }
        // Its record is read now and then, for its addresses may have changed.
        #expect((10...21).contains(world.reads.count))
    }

    @Test func `a record is read again when the advertisement tells another tag`() {
        var world = BluetoothWorld()
        world.air[Self.crane] = makeRecord(["Crane 2"])
        world.pass(.seconds(10))
        let before = world.reads.count
        world.air[Self.crane] = makeRecord(["Crane 2", "Yard"])
        world.pass(.seconds(10))
        #expect(world.names == ["Crane 2", "Yard"])
        #expect(world.reads.count == before + 1)
    }

    @Test func `whoever changes its tag all the time is read every five seconds at most`() {
        var world = BluetoothWorld()
        for members in 1...120 {
            world.air[Self.crane] = makeRecord(["Crane 2"], members: members)
            world.pass(.seconds(1))
        }
        #expect(world.reads.count <= 25)
        for (one, next) in zip(world.reads, world.reads.dropFirst()) {
            #expect(next.at - one.at >= BluetoothFinder.changePause)
        }
    }

    @Test func `reads that fail are tried less and less often and keep nobody from being heard`() {
        var world = BluetoothWorld()
        let bad = peer(9)
        world.air = [bad: makeRecord(["False"]), Self.crane: makeRecord(["Crane 2"])]
        world.failing = [bad]
        world.pass(.seconds(300))
        #expect(world.names == ["Crane 2"])
        let tries = world.reads.filter { $0.peer == bad }
        #expect((5...12).contains(tries.count))
        if let last = tries.last, tries.count > 1 {
            #expect(last.at - tries[tries.count - 2].at >= .seconds(60))
        }
    }

    @Test func `a read that hangs is ended and others appear all the same`() {
        var world = BluetoothWorld()
        let bad = peer(9)
        world.air = [bad: makeRecord(["False"])]
        world.hanging = [bad]
        world.pass(.seconds(2))
        world.air[Self.crane] = makeRecord(["Crane 2"])
        world.pass(.seconds(10) + BluetoothFinder.readTime)
        #expect(world.names == ["Crane 2"])
        #expect(world.wrong.isEmpty)
    }

    @Test func `a record that is doubted is read again soon and only then`() {
        var world = BluetoothWorld()
        world.air[Self.crane] = makeRecord(["Crane 2"])
        world.pass(.seconds(12))
        let before = world.reads.count
        world.handle(.doubted)
        world.handle(.doubted)
        world.pass(.seconds(5))
        #expect(world.reads.count == before + 1)
    }

    @Test func `a machine that vanishes during a read is gone in time too`() {
        var world = BluetoothWorld()
        world.air[Self.crane] = makeRecord(["Crane 2"])
        world.pass(.seconds(12))
        world.hanging = [Self.crane]
        world.handle(.doubted)
        while world.reading.isEmpty { world.pass(.milliseconds(500)) }
        world.air = [:]
        world.pass(.seconds(15))
        #expect(world.list.isEmpty)
    }

    @Test func `what makes no sense is no line`() {
        var world = BluetoothWorld()
        world.hanging = [Self.crane]
        world.handle(.heard(Self.crane, BluetoothSignal(tag: 1), strength: -50))
        world.pass(.seconds(2))
        guard let ticket = world.reading.keys.first else {
            Issue.record("nothing is read")
            return
        }
        world.handle(.read(ticket: ticket, .pages([[1, 2, 3]], zones: [])))
        #expect(world.list.isEmpty)
        #expect(world.finder.senseless == 1)
        // An answer that nobody waits for changes nothing.
        world.handle(.read(ticket: ticket, .pages(makeRecord(["x"]).pages, zones: [])))
        #expect(world.list.isEmpty)
    }

    @Test func `a held button ends scans and reads and nothing is lost for it`() {
        var world = BluetoothWorld()
        world.air[Self.crane] = makeRecord(["Crane 2"])
        world.pass(.seconds(10))
        world.handle(.held(true))
        #expect(!world.isScanning && world.reading.isEmpty && world.finder.nextDeadline == nil)
        world.pass(.seconds(60))
        #expect(!world.isScanning && world.names == ["Crane 2"])
        world.handle(.held(false))
        #expect(world.isScanning || !world.reading.isEmpty)
        world.pass(.seconds(10))
        #expect(world.names == ["Crane 2"])
        // In the middle of a read.
        world.air[Self.crane] = makeRecord(["Crane 2", "Yard"])
        world.hanging = [Self.crane]
        world.pass(.seconds(8))
        #expect(!world.reading.isEmpty)
        world.handle(.held(true))
        #expect(world.reading.isEmpty)
        #expect(world.wrong.isEmpty)
    }

    @Test func `who looks no more is forgotten with all strangers`() {
        var world = BluetoothWorld()
        world.air = [peer(1): makeRecord(["A"]), peer(2): makeRecord(["B"])]
        world.pass(.seconds(10))
        #expect(world.list.count == 2)
        world.handle(.browse(false))
        #expect(world.list.isEmpty && !world.isScanning && world.finder.nextDeadline == nil)
        #expect(Set(world.forgotten) == [peer(1), peer(2)])
        #expect(world.finder.sizes.peers == 0)
    }

    @Test func `a radio that goes takes everything with it and begins anew`() {
        var world = BluetoothWorld()
        world.air[Self.crane] = makeRecord(["Crane 2"])
        world.pass(.seconds(10))
        world.handle(.radio(false))
        #expect(world.list.isEmpty && world.finder.nextDeadline == nil)
        #expect(!world.finder.isScanning)
    }

    @Test func `a scan that is refused is tried again at growing pauses and told`() {
        var finder = BluetoothFinder()
        var now = Instant.zero
        _ = finder.handle(.radio(true), at: now)
        var actions = finder.handle(.browse(true), at: now)
        var pauses: [Duration] = []
        for _ in 0..<8 {
            #expect(actions == [.startScan])
            _ = finder.handle(.scanRefused("busy"), at: now)
            #expect(finder.refusal == "busy")
            guard let deadline = finder.nextDeadline else { break }
            pauses.append(deadline - now)
            now = deadline
            actions = finder.handleTimeout(at: now)
        }
        #expect(pauses.first == .seconds(1) && pauses.last == .seconds(60) && pauses.count == 8)
        _ = finder.handle(.scanBegan, at: now)
        #expect(finder.refusal == nil)
    }

    @Test func `a bluetoothd that does not answer is asked again and told`() {
        var finder = BluetoothFinder()
        var now = Instant.zero
        _ = finder.handle(.radio(true), at: now)
        #expect(finder.handle(.browse(true), at: now) == [.startScan])
        #expect(finder.nextDeadline == now + BluetoothFinder.answerTime)
        now = now + BluetoothFinder.answerTime
        #expect(finder.handleTimeout(at: now).isEmpty)
        #expect(finder.refusal == "bluetoothd does not answer")
        // What it says of the first one is too late.
        #expect(finder.handle(.scanBegan, at: now).isEmpty)
        now = finder.nextDeadline ?? now
        #expect(finder.handleTimeout(at: now) == [.startScan])
        _ = finder.handle(.scanBegan, at: now)
        #expect(finder.refusal == nil)
        // The same for the end of a scan.
        now = now + BluetoothFinder.scanTime
        #expect(finder.handleTimeout(at: now) == [.stopScan])
        #expect(finder.nextDeadline == now + BluetoothFinder.answerTime)
        now = now + BluetoothFinder.answerTime
        #expect(finder.handleTimeout(at: now) == [.startScan])
    }

    @Test func `a new interface gives link local addresses a place at once`() {
        var world = BluetoothWorld()
        let linkLocal: [UInt8] = [0xFE, 0x80] + [UInt8](repeating: 0, count: 13) + [1]
        world.air[Self.crane] = makeRecord(["Crane 2"], addresses: [linkLocal])
        world.pass(.seconds(10))
        world.handle(.zones(["bnep0", "wlan0"]))
        #expect(world.list.first?.places.map(\.host) == ["fe80::1%bnep0", "fe80::1%wlan0"])
    }

    @Test func `a flood of advertisers is bounded and the first ones stay`() {
        var world = BluetoothWorld()
        world.air[Self.crane] = makeRecord(["Crane 2"])
        world.pass(.seconds(10))
        for number in 1_000..<3_000 {
            world.handle(.heard(peer(number), BluetoothSignal(tag: 1), strength: -30))
        }
        #expect(world.finder.sizes.peers == BluetoothFinder.peersMaximum)
        #expect(world.finder.leftOut == 2_001 - BluetoothFinder.peersMaximum)
        world.pass(.seconds(30))
        #expect(world.names == ["Crane 2"])
        #expect(world.finder.sizes.peers == 1)
    }

    @Test func `of two that tell of one channel the nearer counts`() {
        var world = BluetoothWorld()
        world.air = [
            peer(1): makeRecord(["Crane 2"], addresses: [[10, 0, 0, 1]]),
            peer(2): makeRecord(["Crane 2"], addresses: [[10, 0, 0, 2]]),
        ]
        world.strength = [peer(1): -80, peer(2): -40]
        world.pass(.seconds(10))
        #expect(world.list.count == 1)
        #expect(world.list.first?.signalStrength == -40)
        #expect(world.list.first?.places.map(\.host) == ["10.0.0.2", "10.0.0.1"])
    }

    @Test func `addresses become places where they can be`() {
        var world = BluetoothWorld()
        let linkLocal: [UInt8] = [0xFE, 0x80] + [UInt8](repeating: 0, count: 13) + [1]
        let loopback = [UInt8](repeating: 0, count: 15) + [1]
        world.air[Self.crane] = makeRecord(
            ["Crane 2"],
            addresses: [linkLocal, [127, 0, 0, 1], loopback, [224, 0, 0, 1], [0, 0, 0, 0], [192, 168, 1, 5]])
        world.pass(.seconds(10))
        #expect(world.list.first?.places.map(\.host) == ["192.168.1.5", "fe80::1%wlan0", "fe80::1%eth0"])
    }

    @Test func `strengths that nobody hears are not believed`() {
        var world = BluetoothWorld()
        for strength in [127, 21, -128, 1_000, -1_000] {
            world.handle(.heard(Self.crane, BluetoothSignal(tag: 1), strength: strength))
        }
        #expect(world.finder.sizes.peers == 0)
    }

    /// Machines that come, go, change, fail and hang, adapters that go, buttons that are held: fifty thousand steps.
    @Test(arguments: [1, 2, 3] as [UInt64]) func `whatever happens the list is true and the air is shared`(seed: UInt64)
    {
        var random = SeededGenerator(seed: seed)
        var world = BluetoothWorld()
        var isHeld = false
        var isBrowsing = true
        var lastSeen: [String: Instant] = [:]
        for step in 0..<17_000 {
            let who = peer(Int.random(in: 0..<12, using: &random))
            switch Int.random(in: 0..<40, using: &random) {
            case 0..<4:
                world.air[who] = makeRecord(["\(who.path.suffix(2))"], members: Int.random(in: 0..<9, using: &random))
            case 4..<7: world.air[who] = nil
            case 7: if world.failing.remove(who) == nil { world.failing.insert(who) }
            case 8: if world.hanging.remove(who) == nil { world.hanging.insert(who) }
            case 9:
                isHeld.toggle()
                world.handle(.held(isHeld))
            case 10:
                isBrowsing.toggle()
                world.handle(.browse(isBrowsing))
            case 11:
                world.handle(.radio(false))
                // The adapter is new: nothing of before goes on.
                world.adapterGone()
                world.handle(.radio(true))
            default: world.pass(.milliseconds(500) * Int.random(in: 1..<6, using: &random))
            }
            for record in world.air.values {
                for channel in record.channels { lastSeen[channel.announcement.name.text] = world.now }
            }
            #expect(world.wrong.isEmpty, "step \(step)")
            #expect(world.finder.sizes.peers <= BluetoothFinder.peersMaximum)
            if isHeld || !isBrowsing {
                #expect(!world.isScanning && world.reading.isEmpty)
                #expect(world.finder.nextDeadline == nil)
            }
            if !isBrowsing { #expect(world.list.isEmpty) }
            for name in world.names { #expect(lastSeen[name] != nil, "only what was told is listed") }
            if !world.wrong.isEmpty { return }
        }
        // In the end everybody who is there, and nobody else, is listed.
        world.failing = []
        world.hanging = []
        if isHeld { world.handle(.held(false)) }
        if !isBrowsing { world.handle(.browse(true)) }
        world.pass(.seconds(120))
        #expect(Set(world.names) == Set(world.air.values.flatMap { $0.channels.map(\.announcement.name.text) }))
    }
}

extension BluetoothWorld {
    mutating func adapterGone() {
        isScanning = false
        reading = [:]
    }
}
