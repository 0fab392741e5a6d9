// Finds machines by Bluetooth: which ones are heard, when their records are read, and when a sighting expires. Pure.
import MonotonicTime
import RelayProtocol

/// A machine that advertises channels, as the adapter knows it.
public struct BluetoothPeer: Hashable, Comparable, Sendable, CustomStringConvertible {
    /// The adapter's name of it: BlueZ's object path.
    public let path: String

    /// The machine of that name.
    public init(path: String) { self.path = path }

    /// By their names.
    public static func < (lhs: Self, rhs: Self) -> Bool { lhs.path < rhs.path }
    /// The name.
    public var description: String { path }
}

/// Searches for machines while somebody browses: it scans, and between two scans it reads the records of machines that
/// are new or have changed.
///
/// A scan is short and is restarted at once. A controller may report a device only once per scan, so a present machine
/// is heard in each scan, and a machine that was not heard in three full scans is gone. No scan runs while a link is
/// set up, because it would disturb that. Neither happens while a talk button is held.
public struct BluetoothFinder: Sendable {
    /// What happens.
    public enum Event: Sendable {
        /// There is an adapter that is on, or there is none any more.
        case radio(Bool)
        /// Somebody looks at the list, or nobody does any more.
        case browse(Bool)
        /// A talk button is held, or none is any more.
        case held(Bool)
        /// What the records say is doubted: a user has joined a channel of one, and could not reach it.
        case doubted
        /// By these interfaces a link-local address of another machine may be reached from now on.
        case zones([String])
        /// A machine that offers the service was heard.
        case heard(BluetoothPeer, BluetoothSignal, strength: Int)
        /// The scan that was asked for runs.
        case scanBegan
        /// It has ended, as asked.
        case scanEnded
        /// It cannot be, or not any more.
        case scanRefused(String)
        /// What came of a read.
        case read(ticket: UInt64, Outcome)
    }

    /// What comes of a read.
    public enum Outcome: Sendable {
        /// The pages that were read.
        ///
        /// - zones: The machine's interfaces. A link-local address may be reached through any of them.
        case pages([[UInt8]], zones: [String])
        /// The machine can be reached, and has no such service.
        case nothingThere
        /// It cannot be reached.
        case failed
    }

    /// What is to be done.
    public enum Action: Hashable, Sendable {
        case startScan
        case stopScan
        /// Connect, read the pages, disconnect.
        case read(BluetoothPeer, ticket: UInt64)
        /// Give that up; its outcome is of no interest.
        case endRead(BluetoothPeer, ticket: UInt64)
        /// Have the system forget it, unless it is a paired device.
        case forget(BluetoothPeer)
        /// The list has changed.
        case report([NearbyChannel])
    }

    /// Machines that are known at a time. Those that were heard first stay.
    static let peersMaximum = 64
    /// How long a scan takes: a host advertises every 1.28 s.
    static let scanTime = Duration.seconds(3)
    /// The same while a record waits to be read.
    static let shortScanTime = Duration.seconds(1)
    /// How long a machine may go unheard in scans.
    static let searchMaximum = scanTime * 3
    /// The longest a machine may go unheard, reads between scans included, when it was searched for as long as one scan takes.
    static let silenceMaximum = Duration.seconds(12)
    /// Records that are read at once.
    static let readsAtOnce = 3
    /// How long a read may take, the connection included.
    static let readTime = Duration.seconds(9)
    /// So long bluetoothd may take to begin or end a scan; a scan that it answers for later is left to it.
    static let answerTime = Duration.seconds(12)
    /// The time between two reads of a record that seems to be the same: addresses may have changed.
    static let rereadPause = Duration.seconds(30)
    /// The least time between two reads of a record whose tag changes.
    static let changePause = Duration.seconds(5)
    /// A smaller change of the signal strength, in dB, is not reported.
    static let strengthStep = 4
    /// The valid range of signal strengths, in dBm.
    static let strengths = -127...20

    private enum Phase: Sendable {
        case idle
        case starting(until: Instant)
        case scanning(since: Instant)
        case stopping(after: Duration, until: Instant)
        case reading
        case refused(until: Instant)
    }

    private struct Sighting: Sendable {
        var order: UInt64
        var signal: BluetoothSignal
        var strength: Int
        var heardAt: Instant
        var wasHeard = true
        /// How long it was searched for since it was heard.
        var searched = Duration.zero
        var record: BluetoothRecord?
        var zones: [String] = []
        /// What the advertisement said when the record was read.
        var readSignal: BluetoothSignal?
        var readAt: Instant?
        var nextRead: Instant
        var failures = RetryPause()
    }

    private var phase = Phase.idle
    private var sightings: [BluetoothPeer: Sighting] = [:]
    private var reads: [UInt64: (peer: BluetoothPeer, until: Instant)] = [:]
    private var tickets = Tickets()
    private var refusals = RetryPause()
    private var hasRadio = false
    private var isBrowsing = false
    private var isHeld = false
    private var nextOrder: UInt64 = 0
    /// The reason of the last refused scan.
    public private(set) var refusal: String?
    /// Records that made no sense.
    public private(set) var senseless = 0
    /// Machines that were heard and not taken, because there are too many.
    public private(set) var leftOut = 0
    /// What was reported last.
    public private(set) var channels: [NearbyChannel] = []

    /// A finder without a radio.
    public init() {}

    /// For tests: how much is kept.
    var sizes: (peers: Int, reads: Int) { (sightings.count, reads.count) }
    /// For tests: a scan was asked for and has not ended.
    var isScanning: Bool {
        switch phase {
        case .starting, .scanning, .stopping: true
        case .idle, .reading, .refused: false
        }
    }

    private var isWanted: Bool { hasRadio && isBrowsing && !isHeld }

    /// When `handleTimeout` has something to do; nil: not before the next event.
    public var nextDeadline: Instant? {
        switch phase {
        case .scanning(let since):
            min(since + Self.scanTime, max(since + Self.shortScanTime, nextRead ?? since + Self.scanTime))
        case .reading: reads.values.map(\.until).min()
        case .refused(let until), .starting(let until), .stopping(_, let until): until
        case .idle: nil
        }
    }

    /// Takes in what happened.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        var actions: [Action] = []
        switch event {
        case .radio(let isThere):
            guard isThere != hasRadio else { return [] }
            hasRadio = isThere
            if !isThere {
                // Scans, links and what the system knew of others are gone with it.
                (phase, sightings, reads, refusals, refusal) = (.idle, [:], [:], RetryPause(), nil)
            }
        case .browse(let isWanted):
            guard isWanted != isBrowsing else { return [] }
            isBrowsing = isWanted
            if !isWanted {
                interrupt(at: now, &actions)
                for peer in sightings.keys.sorted() { actions.append(.forget(peer)) }
                (sightings, leftOut, refusal) = ([:], 0, nil)
            }
        case .held(let isHeld):
            guard isHeld != self.isHeld else { return [] }
            self.isHeld = isHeld
            if isHeld { interrupt(at: now, &actions) }
        case .doubted:
            for (peer, sighting) in sightings {
                let soonest = sighting.readAt.map { $0 + Self.changePause } ?? now
                sightings[peer]?.nextRead = min(sighting.nextRead, max(soonest, now))
            }
        case .zones(let zones):
            for peer in sightings.keys { sightings[peer]?.zones = zones }
        case .heard(let peer, let signal, let strength): heard(peer, signal, strength, at: now)
        case .scanBegan:
            guard case .starting = phase else { return [] }
            phase = .scanning(since: now)
            (refusals, refusal) = (RetryPause(), nil)
            for peer in sightings.keys { sightings[peer]?.wasHeard = false }
            if !isWanted { interrupt(at: now, &actions) }
        case .scanEnded:
            guard case .stopping(let duration, _) = phase else { return [] }
            phase = .idle
            countUnheard(in: duration, at: now, &actions)
        case .scanRefused(let reason):
            guard isScanning else { return [] }
            refusal = reason
            phase = .refused(until: now + refusals.next())
        case .read(let ticket, let outcome):
            guard let read = reads.removeValue(forKey: ticket) else { return [] }
            took(outcome, of: read.peer, at: now)
        }
        proceed(at: now, &actions)
        return actions
    }

    /// Does what is due.
    public mutating func handleTimeout(at now: Instant) -> [Action] {
        var actions: [Action] = []
        if case .scanning(let since) = phase, let due = nextDeadline, due <= now {
            phase = .stopping(after: now - since, until: now + Self.answerTime)
            actions.append(.stopScan)
        }
        switch phase {
        case .refused(let until) where until <= now, .stopping(_, let until) where until <= now: phase = .idle
        case .starting(let until) where until <= now:
            refusal = "bluetoothd does not answer"
            phase = .refused(until: now + refusals.next())
        default: break
        }
        for (ticket, read) in reads.sorted(by: { $0.key < $1.key }) where read.until <= now {
            reads[ticket] = nil
            actions.append(.endRead(read.peer, ticket: ticket))
            took(.failed, of: read.peer, at: now)
        }
        proceed(at: now, &actions)
        return actions
    }

    // MARK: Parts of these

    /// Ends scans and reads; nobody counts as unheard for it.
    private mutating func interrupt(at now: Instant, _ actions: inout [Action]) {
        if case .scanning = phase {
            phase = .stopping(after: .zero, until: now + Self.answerTime)
            actions.append(.stopScan)
        }
        for (ticket, read) in reads.sorted(by: { $0.key < $1.key }) {
            actions.append(.endRead(read.peer, ticket: ticket))
        }
        reads = [:]
    }

    private mutating func heard(_ peer: BluetoothPeer, _ signal: BluetoothSignal, _ strength: Int, at now: Instant) {
        guard isBrowsing, hasRadio, Self.strengths.contains(strength) else { return }
        guard var sighting = sightings[peer] else {
            guard sightings.count < Self.peersMaximum else { return leftOut += 1 }
            sightings[peer] = Sighting(
                order: nextOrder, signal: signal, strength: strength, heardAt: now, nextRead: now)
            nextOrder += 1
            return
        }
        sighting.signal = signal
        if abs(sighting.strength - strength) >= Self.strengthStep { sighting.strength = strength }
        (sighting.heardAt, sighting.wasHeard, sighting.searched) = (now, true, .zero)
        if let readAt = sighting.readAt, sighting.readSignal != signal {
            sighting.nextRead = min(sighting.nextRead, max(readAt + Self.changePause, now))
        }
        sightings[peer] = sighting
    }

    private mutating func countUnheard(in duration: Duration, at now: Instant, _ actions: inout [Action]) {
        for (peer, sighting) in sightings.sorted(by: { $0.key < $1.key }) where !sighting.wasHeard {
            let searched = sighting.searched + duration
            sightings[peer]?.searched = searched
            let isSilent = searched >= Self.scanTime && now - sighting.heardAt > Self.silenceMaximum
            guard searched >= Self.searchMaximum || isSilent else { continue }
            sightings[peer] = nil
            actions.append(.forget(peer))
        }
    }

    private mutating func took(_ outcome: Outcome, of peer: BluetoothPeer, at now: Instant) {
        guard var sighting = sightings[peer] else { return }
        switch outcome {
        case .pages(let pages, let zones):
            do throws(BluetoothRecordError) {
                sighting.record = try BluetoothRecord(pages: pages)
                sighting.zones = zones
                sighting.failures = RetryPause()
                sighting.nextRead = now + Self.rereadPause
            } catch {
                if error != .torn {
                    senseless += 1
                    sighting.record = nil
                }
                sighting.nextRead = now + sighting.failures.next()
            }
        case .nothingThere:
            sighting.record = nil
            sighting.nextRead = now + sighting.failures.next()
        case .failed: sighting.nextRead = now + sighting.failures.next()
        }
        (sighting.readSignal, sighting.readAt) = (sighting.signal, now)
        sightings[peer] = sighting
    }

    /// The machines that were heard in this scan or the last one and wait to be read, the longest first.
    private func due(at now: Instant) -> [BluetoothPeer] {
        sightings.filter { $0.value.wasHeard && $0.value.nextRead <= now }
            .sorted { ($0.value.nextRead, $0.value.order) < ($1.value.nextRead, $1.value.order) }.map(\.key)
    }

    private var nextRead: Instant? { sightings.values.filter { $0.wasHeard }.map(\.nextRead).min() }

    private mutating func proceed(at now: Instant, _ actions: inout [Action]) {
        if case .reading = phase, reads.isEmpty {
            phase = .idle
            // After reads there is a scan, so that whoever cannot be read keeps nobody from being heard.
            begin(at: now, &actions)
        }
        if case .idle = phase, isWanted {
            for peer in due(at: now).prefix(Self.readsAtOnce) {
                let ticket = tickets.next()
                reads[ticket] = (peer, now + Self.readTime)
                actions.append(.read(peer, ticket: ticket))
                phase = .reading
            }
            begin(at: now, &actions)
        }
        let new = list()
        guard new != channels else { return }
        channels = new
        actions.append(.report(new))
    }

    private mutating func begin(at now: Instant, _ actions: inout [Action]) {
        guard case .idle = phase, isWanted else { return }
        phase = .starting(until: now + Self.answerTime)
        actions.append(.startScan)
    }

    /// The current list. Of several machines with the same channel, the one with the strongest signal counts.
    private func list() -> [NearbyChannel] {
        var found: [FollowedChannel: NearbyChannel] = [:]
        for sighting in sightings.values.sorted(by: { ($1.strength, $0.order) < ($0.strength, $1.order) }) {
            guard let record = sighting.record else { continue }
            for channel in record.channels {
                let key = FollowedChannel(channel: channel.announcement.channel, pin: channel.announcement.pin)
                let isFirst = found[key] == nil
                guard !isFirst || found.count < NearbyStateMachine.channelsMaximum else { continue }
                let places = Self.places(of: record.addresses, port: channel.port, zones: sighting.zones)
                var entry =
                    found[key]
                    ?? NearbyChannel(
                        announcement: channel.announcement, places: [], isOwn: false, means: [.bluetooth],
                        signalStrength: sighting.strength, accessPoint: record.accessPoint)
                entry.places = NearbyChannel.joined(entry.places, places)
                found[key] = entry
            }
        }
        return found.values.sorted(by: NearbyChannel.isBefore)
    }

    private static func places(of addresses: [[UInt8]], port: UInt16, zones: [String]) -> [RelayPlace] {
        let kinds = addresses.flatMap { address -> [NearbyPlace] in
            guard let text = LocalAddresses.text(address) else { return [] }
            if let place = NearbyPlace(address: text, port: port, zone: nil) { return [place] }
            return zones.compactMap { zone in NearbyPlace(address: text, port: port, zone: zone) }
        }
        return NearbyPlace.Kind.allCases.flatMap { kind in kinds.filter { $0.kind == kind } }.map(\.place)
    }
}
