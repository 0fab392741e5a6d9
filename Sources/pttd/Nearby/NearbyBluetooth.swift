// Channels nearby by Bluetooth: the adapter between BlueZ and the rules of `Nearby`. No rule lives here.
import BlueZ
import DBus
import Logging
import MonotonicTime
import Nearby
import Reactor

/// Advertises the channels of this machine by Bluetooth Low Energy, and finds those of others while somebody looks.
///
/// It has a connection to the bus of its own, for bluetoothd counts discoveries and their filters by connection: what accessories look for is
/// not disturbed. There is none while nothing is announced or looked for.
actor NearbyBluetooth {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private let address: DBusAddress
    let settings: NearbySettings
    let logger: Logger
    private let handler: @Sendable ([NearbyChannel]) -> Void
    private let problemHandler: @Sendable (String) -> Void
    let networkHandler: @Sendable (String?) -> Void
    private var connection: DBusConnection?
    private(set) var client: BlueZClient?
    /// A connection is being made or ended.
    private var isTurning = false
    private var isStopped = false
    /// bluetoothd has had the time to report its adapters. Until then it may just be starting.
    private(set) var isRadioKnown = false
    var finder = BluetoothFinder()
    private var announcer = BluetoothAnnouncer()
    var network = BluetoothNetwork()
    /// The interface of the network that is there.
    var networkInterface: String?
    var networkWaiters: [CheckedContinuation<BluetoothNetwork.Outcome, Never>] = []
    /// The network that this machine offers.
    var offered: (adapter: AdapterIdentifier, accessPoint: BluetoothAccessPoint)?
    var isOffering = false
    /// The adapter on which bluetoothd did not let this machine offer one.
    var refusedOffer: AdapterIdentifier?
    private var timer: EventLoop.Timer?
    private var timerDue: Instant?
    private(set) var adapter: AdapterIdentifier?
    private var isBrowsing = false
    private var channels: [BluetoothRecord.Channel] = []
    /// What is handed out now, page by page, and when it was put together.
    private var handedOut: (pages: [[UInt8]], at: Instant)?
    private var problem = ""
    /// A read of a record.
    struct Read {
        /// Whether the device was connected before; nil: not known yet. The link is somebody else's then.
        var wasConnected: Bool?
        /// Nobody waits for it any more.
        var isOver = false
    }
    /// The reads under way, by ticket.
    private(set) var reads: [UInt64: Read] = [:]
    /// Reads that wait for a device's services.
    private var waiting: [DeviceIdentifier: CheckedContinuation<Void, Never>] = [:]
    /// Devices that BlueZ keeps because of a read.
    private var kept: Set<DeviceIdentifier> = []
    /// Why Bluetooth is not there; nil: it is.
    private var absence: BluetoothAbsence?

    private static let service = BluetoothUUID(BluetoothSignal.service)
    private static let pages = BluetoothSignal.pages.compactMap { BluetoothUUID($0) }
    private static let basePath: DBusObjectPath = "/pttd/nearby"
    /// One read of all pages takes less.
    private static let recordTime = Duration.seconds(1)
    /// The time after which bluetoothd has reported all its objects.
    private static let startTime = Duration.seconds(2)
    /// How long after BlueZ's `ServicesResolved` further objects may appear.
    private static let lateTime = Duration.milliseconds(300)

    /// - Parameters:
    ///   - address: BlueZ's bus.
    ///   - handler: Called on the loop whenever what Bluetooth finds has changed.
    ///   - problem: Called on the loop with what keeps Bluetooth from it, in words for the user; empty: nothing does.
    ///   - network: Called on the loop with the interface of a network by Bluetooth that is there; nil: it is lost.
    init(
        bus address: DBusAddress, settings: NearbySettings, loop: EventLoop, logger: Logger,
        handler: @escaping @Sendable ([NearbyChannel]) -> Void, problem: @escaping @Sendable (String) -> Void,
        network: @escaping @Sendable (String?) -> Void
    ) {
        (self.address, self.settings, self.loop, self.logger) = (address, settings, loop, logger)
        self.handler = handler
        problemHandler = problem
        networkHandler = network
    }

    isolated deinit { timer?.cancel() }

    /// Looks for channels, or ends that.
    func browse(_ isWanted: Bool) {
        isBrowsing = isWanted
        turn()
        carryOut(finder.handle(.browse(isWanted), at: .now))
    }

    /// The channels that this machine hosts, from now on.
    func announce(_ channels: [BluetoothRecord.Channel]) {
        guard channels != self.channels else { return }
        self.channels = channels
        turn()
        renew()
    }

    /// A user could not reach a channel that Bluetooth has found: addresses may have changed.
    func doubt() { carryOut(finder.handle(.doubted, at: .now)) }

    /// A talk button is held, or none is any more. On the loop.
    func held(_ isHeld: Bool) { carryOut(finder.handle(.held(isHeld), at: .now)) }

    /// Ends everything. bluetoothd has been informed when it returns.
    func stop() async {
        browse(false)
        channels = []
        renew()
        if let wish = network.wish { endNetwork(to: wish) }
        isStopped = true
        await close()
    }

    // MARK: The connection

    private var isWanted: Bool {
        settings.usesBluetooth && !isStopped && (isBrowsing || !channels.isEmpty || network.wish != nil)
    }

    /// Connects when that is wanted and disconnects when it is not.
    func turn() {
        guard !isTurning, isWanted != (connection != nil) else { return }
        isTurning = true
        Task {
            if isWanted { await open() } else { await close() }
            isTurning = false
            turn()
        }
    }

    private func open() async {
        let connection = DBusConnection(to: address, on: loop, logger: logger)
        let client = BlueZClient(on: connection, basePath: Self.basePath, logger: logger) { [weak self] event in
            self?.assumeIsolated { $0.received(event) }
        }
        (self.connection, self.client) = (connection, client)
        do {
            try await connection.connect(retrying: true)
            try await client.start()
            loop.schedule(after: Self.startTime) { [weak self, weak connection] in
                self?.assumeIsolated { if $0.connection === connection { $0.radioIsKnown() } }
            }
        } catch {
            logger.warning("channels nearby cannot use Bluetooth", metadata: ["reason": "\(error)"])
            radioIsKnown()
        }
    }

    private func radioIsKnown() {
        isRadioKnown = true
        updateRadio()
    }

    private func close() async {
        guard let connection else { return }
        if let adapter { await client?.withdraw(from: adapter) }
        await forgetAll()
        await client?.stop()
        await connection.close()
        (self.connection, client, adapter, absence) = (nil, nil, nil, nil)
        (offered, refusedOffer, isRadioKnown) = (nil, nil, false)
        carryOut(network.handle(.radio(false), at: .now))
        tellRadio(isOn: false)
    }

    private func tellRadio(isOn: Bool) {
        carryOut(finder.handle(.radio(isOn), at: .now))
        carryOut(announcer.handle(.radio(isOn), at: .now))
    }

    // MARK: What BlueZ tells

    private func received(_ event: BlueZEvent) {
        switch event {
        case .available, .unavailable, .adapterAdded, .adapterChanged, .adapterPowered, .adapterRemoved: updateRadio()
        case .deviceAdded(let device), .deviceChanged(let device): hear(device)
        case .deviceHeard(let identifier):
            if let device = client?.assumeIsolated({ $0.device(identifier) }) { hear(device) }
        case .servicesResolved(let device, true): waiting.removeValue(forKey: device)?.resume()
        case .deviceDisconnected(let device, _):
            waiting.removeValue(forKey: device)?.resume()
            networkLost(device)
        case .networkDisconnected(let device): networkLost(device)
        case .deviceRemoved(let device):
            kept.remove(device)
            waiting.removeValue(forKey: device)?.resume()
        default: return
        }
    }

    func updateRadio() {
        guard let client else { return }
        let adapters = client.assumeIsolated { $0.isAvailable ? $0.adapters : nil }
        let own = adapters?.filter { settings.names($0) }
        let chosen = own?.first { $0.isPowered }?.identifier
        let powered = adapters?.filter(\.isPowered) ?? []
        if let offered, !powered.contains(where: { $0.identifier == offered.adapter }) { self.offered = nil }
        if powered.isEmpty { networkInterface = nil }
        carryOut(network.handle(.radio(!powered.isEmpty), at: .now))
        if powered.isEmpty, isRadioKnown, !networkWaiters.isEmpty { tell(.failed(.noRadio)) }
        absence =
            adapters == nil
            ? .noService : chosen != nil ? nil : own?.isEmpty == true ? .noAdapter(settings.adapter) : .off
        if chosen != adapter {
            if adapter != nil { tellRadio(isOn: false) }
            adapter = chosen
            if chosen != nil { tellRadio(isOn: true) }
        }
        tellProblem()
    }

    private func hear(_ device: Device) {
        guard let service = Self.service, device.identifier.adapter == adapter, device.services.contains(service),
            let strength = device.rssi
        else { return }
        let signal = BluetoothSignal(manufacturerData: device.manufacturerData)
        let peer = BluetoothPeer(path: device.identifier.path.rawValue)
        carryOut(finder.handle(.heard(peer, signal, strength: Int(strength)), at: .now))
    }

    private func tellProblem() {
        let refusal = announcer.refusal ?? finder.refusal
        let new =
            !isWanted
            ? ""
            : absence.map { "\($0)" } ?? refusal.map { "bluetoothd refuses to announce or to look for channels: \($0)" }
                ?? ""
        guard new != problem else { return }
        problem = new
        if !new.isEmpty { logger.info("channels nearby do without Bluetooth", metadata: ["why": "\(new)"]) }
        problemHandler(new)
    }

    // MARK: What is handed out

    /// Puts together what is handed out: this machine's addresses are those of this moment.
    func renew() {
        guard !channels.isEmpty else {
            handedOut = nil
            withdrawNetwork()
            return carryOut(announcer.handle(.record(tag: nil), at: .now))
        }
        offerNetwork()
        let record = BluetoothRecord(
            addresses: LocalAddresses.all(with: offered == nil ? nil : settings.bridge), channels: channels,
            accessPoint: offered?.accessPoint)
        handedOut = (record.pages, .now)
        carryOut(announcer.handle(.record(tag: record.tag), at: .now))
    }

    /// A page, as somebody reads it.
    private func read(page index: Int) -> [UInt8] {
        if let handedOut, handedOut.at + Self.recordTime <= .now { renew() }
        guard let pages = handedOut?.pages, pages.indices.contains(index) else { return [] }
        return pages[index]
    }

    private func register(_ tag: UInt32, _ ticket: UInt64) {
        guard let client, let adapter, let service = Self.service else { return }
        let offered = LocalService(service, characteristics: Self.pages)
        Task {
            do throws(BlueZError) {
                try await client.offer(
                    offered, advertising: Self.advertisement(tag), on: adapter,
                    read: { [weak self] index in self?.assumeIsolated { $0.read(page: index) } ?? [] },
                    released: { [weak self] in
                        self?.assumeIsolated { $0.carryOut($0.announcer.handle(.released, at: .now)) }
                    })
                logger.info("channels announced by Bluetooth", metadata: ["adapter": "\(adapter)"])
                carryOut(announcer.handle(.done(ticket: ticket), at: .now))
            } catch {
                logger.warning("channels are not announced by Bluetooth", metadata: ["reason": "\(error)"])
                carryOut(announcer.handle(.refused(ticket: ticket, reason: "\(error)"), at: .now))
            }
        }
    }

    private static func advertisement(_ tag: UInt32) -> LocalAdvertisement {
        LocalAdvertisement(
            services: service.map { [$0] } ?? [],
            manufacturerData: [BluetoothSignal.company: BluetoothSignal(tag: tag).manufacturerData])
    }

    private func carryOut(_ actions: [BluetoothAnnouncer.Action]) {
        for action in actions {
            switch action {
            case .register(let tag, let ticket): register(tag, ticket)
            case .update(let tag): Task { await client?.update(Self.advertisement(tag)) }
            case .unregister:
                guard let adapter else { break }
                Task { await client?.withdraw(from: adapter) }
            }
        }
        schedule()
        tellProblem()
    }

    // MARK: What is found

    func carryOut(_ actions: [BluetoothFinder.Action]) {
        for action in actions {
            switch action {
            case .startScan: startScan()
            case .stopScan: stopScan()
            case .read(let peer, let ticket): Task { await read(peer, ticket) }
            case .endRead(let peer, let ticket): endRead(peer, ticket)
            case .forget(let peer):
                if let device = DeviceIdentifier(path: peer.path) { Task { await forget(device) } }
            case .report(let channels): handler(channels)
            }
        }
        schedule()
        tellProblem()
    }

    private func startScan() {
        guard let client, let adapter, let service = Self.service else { return }
        var filter = DiscoveryFilter()
        filter.services = [service]
        filter.reportsDuplicates = true
        Task { [filter] in
            do throws(BlueZError) {
                try await client.startDiscovery(on: adapter, filter: filter)
                carryOut(finder.handle(.scanBegan, at: .now))
            } catch {
                carryOut(finder.handle(.scanRefused("\(error)"), at: .now))
            }
        }
    }

    private func stopScan() {
        guard let client, let adapter else { return }
        Task {
            // Whatever BlueZ answers: the next scan shows whether there can be one.
            try? await client.stopDiscovery(on: adapter)
            carryOut(finder.handle(.scanEnded, at: .now))
        }
    }

    private func read(_ peer: BluetoothPeer, _ ticket: UInt64) async {
        guard let client, let device = DeviceIdentifier(path: peer.path) else {
            return carryOut(finder.handle(.read(ticket: ticket, .failed), at: .now))
        }
        reads[ticket] = Read()
        defer { reads[ticket] = nil }
        let wasConnected = await client.device(device)?.isConnected ?? false
        reads[ticket]?.wasConnected = wasConnected
        let outcome: BluetoothFinder.Outcome
        do throws(BlueZError) { outcome = try await pages(of: device, ticket, client) } catch {
            logger.debug("no record of channels", metadata: ["device": "\(device)", "reason": "\(error)"])
            outcome = .failed
        }
        carryOut(finder.handle(.read(ticket: ticket, outcome), at: .now))
        guard !wasConnected else { return }
        // bluetoothd takes two seconds to end a link.
        await forget(device)
        if await client.device(device)?.isConnected == true { await disconnect(device) }
    }

    private func pages(
        of device: DeviceIdentifier, _ ticket: UInt64, _ client: BlueZClient
    ) async throws(BlueZError) -> BluetoothFinder.Outcome {
        let isPaired = await client.device(device)?.isPaired
        guard reads[ticket]?.isOver == false else { return .failed }
        if isPaired == false { kept.insert(device) }
        try await client.connect(device)
        if await client.device(device)?.areServicesResolved == false, reads[ticket]?.isOver == false {
            await withCheckedContinuation { waiting.updateValue($0, forKey: device)?.resume() }
        }
        guard await client.device(device)?.areServicesResolved == true else { return .failed }
        var pages = await places(of: device, client)
        if pages.isEmpty {
            await loop.pause(for: Self.lateTime)
            pages = await places(of: device, client)
        }
        guard !pages.isEmpty else { return .nothingThere }
        var values: [[UInt8]] = []
        for page in pages {
            values.append(try await client.readValue(page))
            if values.count == values.first.flatMap({ BluetoothRecord.pageCount(in: $0) }) ?? 1 { break }
        }
        return .pages(values, zones: LocalAddresses.zones)
    }

    /// The characteristics of the pages, in the order of the pages.
    private func places(of device: DeviceIdentifier, _ client: BlueZClient) async -> [CharacteristicIdentifier] {
        let all = await client.characteristics(of: device).filter { $0.service == Self.service }
        return Self.pages.compactMap { page in all.first { $0.uuid == page }?.identifier }
    }

    private func endRead(_ peer: BluetoothPeer, _ ticket: UInt64) {
        guard let device = DeviceIdentifier(path: peer.path) else { return }
        waiting.removeValue(forKey: device)?.resume()
        reads[ticket]?.isOver = true
        // It ends a connection that is being made, too.
        if reads[ticket]?.wasConnected == false { Task { await disconnect(device) } }
    }

    /// Ends the link of a read, unless a network is on it: bluetoothd ends all that there is between the two machines.
    private func disconnect(_ device: DeviceIdentifier) async {
        guard let client, !carriesNetwork(device) else { return }
        try? await client.disconnect(device)
    }

    /// BlueZ keeps a device that was connected, with services that may be others after a restart of its bluetoothd; this machine has no
    /// use for it.
    private func forget(_ device: DeviceIdentifier) async {
        guard let client, kept.remove(device) != nil, let known = await client.device(device), !known.isPaired,
            !known.isTrusted
        else { return }
        try? await client.removeDevice(device)
    }

    private func forgetAll() async { for device in kept.sorted() { await forget(device) } }

    func schedule() {
        let deadline = [finder.nextDeadline, announcer.nextDeadline, network.nextDeadline].compactMap { $0 }.min()
        if let deadline, timerDue == deadline, timer?.isPending == true { return }
        timer?.cancel()
        timerDue = deadline
        timer = deadline.map {
            loop.schedule(at: $0) { [weak self] in
                self?.assumeIsolated { bluetooth in
                    bluetooth.carryOut(bluetooth.finder.handleTimeout(at: .now))
                    bluetooth.carryOut(bluetooth.announcer.handleTimeout(at: .now))
                    bluetooth.carryOut(bluetooth.network.handleTimeout(at: .now))
                }
            }
        }
    }
}

/// Why there is no Bluetooth for channels nearby, and what to do.
enum BluetoothAbsence: Equatable, CustomStringConvertible {
    case noService
    case noAdapter(String?)
    case off

    var description: String {
        switch self {
        case .noService: "bluetoothd is not running: install bluez, or start it with \"systemctl start bluetooth\""
        case .noAdapter(nil): "this machine has no Bluetooth adapter"
        case .noAdapter(let name?):
            "the Bluetooth adapter \(name), named in [nearby] of pttd.toml, is missing: see \"bluetoothctl list\""
        case .off: "Bluetooth is off: switch it on with \"bluetoothctl power on\""
        }
    }
}
