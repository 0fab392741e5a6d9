// Channels nearby: carries out the requests of callers on the bus with the network's announcements, the relays of
// hosted channels and the director.
import Bridge
import Cryptography
import DaemonAPI
import FoundationEssentials
import Logging
import Nearby
import PTTBus
import PushToTalkCore
import Reactor
import RelayClient
import RelayProtocol
import RelayServer
import SystemUI

/// The channels that machines nearby announce, and those that this one hosts. It lives on the daemon's loop.
actor NearbyChannels: NearbyControls {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    let director: ChannelDirector
    private let api: DaemonAPI
    let store: NearbyStore
    let identity: Identity
    let creator: DisplayName
    let logger: Logger
    private(set) var network: NearbyNetwork?
    private(set) var bluetooth: NearbyBluetooth?
    var hosts: [ChannelID: NearbyHost] = [:]
    var record = NearbyRecord()
    /// Joins under way.
    private var entries = NearbyEntries()
    /// Of the channels that this machine is on, and has not created.
    var successions: [ChannelID: ChannelSuccession] = [:]
    /// What the network and Bluetooth have found, as one list.
    private(set) var found: [NearbyChannel] = []
    private var foundByNetwork: [NearbyChannel] = []
    private var foundByBluetooth: [NearbyChannel] = []
    /// What is announced now, for Bluetooth.
    private var announced: [ChannelID: BluetoothRecord.Channel] = [:]
    private var networkProblem = ""
    private var bluetoothProblem = ""
    private var isListShown = false
    /// Runs for some time after a press of a control that joins the next channel.
    var pressTimer: EventLoop.Timer?
    /// Such a press is under way.
    var isTurning = false
    /// The people who wait to be admitted to hosted channels, in the order of their requests.
    var newcomers: [NearbyNewcomer] = []
    /// Pending requests for invitations, by the bus name of the caller.
    var questions: [String: InvitationQuestion] = [:]
    /// What the desktop's menu is about.
    var desktop = NearbyDesktop()
    /// Creations under way, which count against the limit.
    private var creating = 0

    /// - Parameters:
    ///   - identity: The key by which hosts of other channels know this machine.
    ///   - creator: What announcements call this machine.
    init(
        director: ChannelDirector, api: DaemonAPI, store: NearbyStore, identity: Identity, creator: DisplayName,
        logger: Logger
    ) {
        loop = director.loop
        self.director = director
        self.api = api
        self.store = store
        self.identity = identity
        self.creator = creator
        self.logger = logger
    }

    // MARK: Start and end

    /// Serves the channels of the last run again.
    ///
    /// - Returns: The invitations to them, for this machine itself: a port may have changed.
    func restore() async -> [ChannelID: InvitationLink] {
        record = store.load()
        var links: [ChannelID: InvitationLink] = [:]
        for kept in record.hosted.prefix(NearbyRecord.hostedMaximum) {
            guard let channel = HostedChannel(kept, creator: creator) else {
                logger.error("a channel nearby is damaged; create it again", metadata: ["channel": "\(kept.name)"])
                continue
            }
            do {
                let host = try await serve(channel)
                links[channel.id] = try host.channel.link()
            } catch {
                logger.error(
                    "a channel nearby is not served", metadata: ["channel": "\(kept.name)", "why": "\(error)"])
            }
        }
        keep()
        return links
    }

    /// Begins to announce on this network, and by Bluetooth; nil: not by Bluetooth.
    func start(_ network: NearbyNetwork, _ bluetooth: NearbyBluetooth?) async {
        (self.network, self.bluetooth) = (network, bluetooth)
        await network.onHosts { [weak self] hosts in self?.assumeIsolated { $0.seen(hosts) } }
        await network.onProblem { [weak self] problem in self?.assumeIsolated { $0.changed(problem) } }
        publish()
        await network.start()
        // Somebody may have asked for the list before.
        await browse()
        await follow()
        for id in hosts.keys { await announce(id) }
        for id in successions.keys {
            if let accessPoint = record.accessPoint(of: id) { await bluetooth?.keepNetwork(to: accessPoint) }
        }
    }

    func stop() async {
        pressTimer?.cancel()
        pressTimer = nil
        for succession in successions.values { succession.end() }
        successions = [:]
        // Whoever looks for the channel finds the next host from now on.
        await network?.stop()
        await withTaskGroup(of: Void.self) { [bluetooth] group in
            // A bluetoothd that hangs keeps no member from hearing that its host leaves.
            group.addTask { await bluetooth?.stop() }
            for host in hosts.values { group.addTask { await host.stop() } }
        }
    }

    // MARK: What the network tells

    /// The channels that are announced now.
    func changed(_ channels: [NearbyChannel]) {
        foundByNetwork = channels
        found = NearbyChannel.merged(network: foundByNetwork, bluetooth: foundByBluetooth)
        publish()
    }

    /// The channels that Bluetooth has found.
    func changed(byBluetooth channels: [NearbyChannel]) {
        foundByBluetooth = channels
        changed(foundByNetwork)
    }

    /// What keeps channels from being found or announced.
    private func changed(_ problem: NearbyProblem?) {
        networkProblem = problem.map { "\($0)" } ?? ""
        publish()
    }

    /// What keeps Bluetooth from it; empty: nothing does.
    func changed(bluetoothProblem problem: String) {
        bluetoothProblem = problem
        publish()
    }

    /// What keeps channels from being found or announced at all. That Bluetooth is missing is none where there is a network.
    var problem: String {
        guard !networkProblem.isEmpty, bluetooth != nil else { return networkProblem }
        return bluetoothProblem.isEmpty
            ? "\(networkProblem). Until then channels are announced and found by Bluetooth only"
            : "\(networkProblem). Bluetooth is not available either: \(bluetoothProblem)"
    }

    func publish() {
        let descriptions = found.map { channel in
            var description = NearbyChannelDescription(channel)
            if channel.isOwn { description.code = hosts[channel.announcement.channel]?.channel.code?.digits ?? "" }
            return description
        }
        let own = hosts.values.filter { host in
            !found.contains { $0.isOwn && $0.announcement.channel == host.channel.id }
        }
        let unseen = own.map { NearbyChannelDescription($0.channel) }.sorted { $0.id < $1.id }
        let waiting = newcomers.compactMap { newcomer in
            hosts[newcomer.channel].map { NearbyNewcomerDescription(newcomer, $0.channel) }
        }
        let channels = descriptions + unseen
        api.assumeIsolated { [problem, bluetoothProblem] in
            $0.update(nearby: channels, newcomers: waiting, problem: problem, bluetoothProblem: bluetoothProblem)
        }
        let shown = SystemUINearby(channels, newcomers: waiting, joining: desktop.joining, problem: problem)
        desktop.ui?.assumeIsolated { $0.update(nearby: shown) }
    }

    // MARK: What is asked

    func setBrowsing(_ isOn: Bool) async {
        isListShown = isOn
        await browse()
    }

    /// Looks for channels while a list is shown, for some time after a press, and while a host is asked, which another one may follow.
    func browse() async {
        let isWanted = isListShown || desktop.isBrowsing || pressTimer != nil
        await network?.browse(isWanted || !questions.isEmpty)
        await bluetooth?.browse(isWanted)
    }

    func createChannel(
        _ name: String?, admission: NearbyAdmission, by caller: BusCaller
    ) async throws(PTChannelError) -> UUID {
        guard let name = name.map({ DisplayName($0) }) ?? creator else {
            throw PTChannelError(.unknown, explanation: "the name has control characters; give plain text")
        }
        guard hosts.count + creating < NearbyRecord.hostedMaximum else {
            throw PTChannelError(
                .channelLimitReached,
                explanation:
                    "this machine hosts \(NearbyRecord.hostedMaximum) channels; delete one ('pttctl nearby delete NAME')"
            )
        }
        creating += 1
        defer { creating -= 1 }
        let host: NearbyHost
        let link: InvitationLink
        do {
            host = try await serve(try HostedChannel(named: name, by: creator, admission: AdmissionRule(admission)))
            link = try host.channel.link()
        } catch {
            throw PTChannelError(.unknown, explanation: "the channel cannot be hosted: \(error)")
        }
        do throws(PTChannelError) {
            try await enter(link, by: caller)
        } catch {
            hosts[host.channel.id] = nil
            await host.delete()
            store.forgetPlaces(of: "\(host.channel.id)")
            throw error
        }
        record.hosted.append(.init(host.channel))
        keep()
        await announce(host.channel.id)
        publish()
        return host.channel.id.uuid
    }

    func joinChannel(_ id: String, code: String?, by caller: BusCaller) async throws(PTChannelError) -> UUID {
        if let host = host(of: id) {
            let link: InvitationLink
            do throws(InvitationLinkError) { link = try host.channel.link() } catch {
                throw PTChannelError(.unknown, explanation: "\(error)")
            }
            try await enter(link, by: caller)
            return host.channel.id.uuid
        }
        guard let channel = found.first(where: { NearbyChannelDescription.id($0) == id }) else {
            throw PTChannelError(
                .channelNotFound,
                explanation: "this channel is no longer nearby; 'pttctl nearby' shows the channels that are")
        }
        let link = try await invitation(to: channel, code: code, for: caller)
        do throws(PTChannelError) { try await enter(link, by: caller) } catch {
            if let accessPoint = record.accessPoint(of: link.channel) { await endNetwork(to: accessPoint) }
            throw error
        }
        return link.channel.uuid
    }

    func deleteChannel(_ id: String, by caller: BusCaller) async throws(PTChannelError) {
        guard let host = host(of: id) else {
            throw PTChannelError(
                .channelNotFound,
                explanation:
                    "this machine does not host this channel: only its creator can delete it; 'pttctl leave' leaves it")
        }
        guard host.channel.generation == 0 else {
            throw PTChannelError(
                .channelNotFound,
                explanation:
                    "this machine hosts the channel in place of \(host.channel.creator), who created it and can delete it; "
                    + "'pttctl leave' leaves it")
        }
        hosts[host.channel.id] = nil
        forgetNewcomers(of: host.channel.id)
        record.hosted.removeAll { $0.id == "\(host.channel.id)" }
        keep()
        await withdraw(host.channel.id)
        await host.delete()
        store.forgetPlaces(of: "\(host.channel.id)")
        logger.notice("channel nearby deleted", metadata: ["channel": "\(host.channel.name)"])
        publish()
    }

    // MARK: Parts of these

    /// The host of the channel that a request names.
    private func host(of id: String) -> NearbyHost? {
        hosts.values.first { NearbyChannelDescription.id($0.channel.id, $0.channel.identity.pin) == id }
    }

    /// Serves a channel from now on.
    func serve(_ channel: HostedChannel) async throws -> NearbyHost {
        let id = channel.id
        let places = store.places(of: "\(id)")
        let host = try await NearbyHost.start(
            channel, as: MemberID(identity.pin), places: places, logger: Logger(label: "pttd.nearby-relay")
        ) {
            [weak self, loop] change in
            loop.execute { [weak self] in self?.assumeIsolated { $0.happened(change, to: id) } }
        }
        hosts[id] = host
        return host
    }

    /// Makes it the active channel. An active channel nearby is left for it, because joining another one means that the
    /// user is done with it.
    private func enter(_ link: InvitationLink, by caller: BusCaller) async throws(PTChannelError) {
        let replaced = await director.activeJoined.flatMap { active in
            active != link.channel.uuid && record.joined.contains(active.uuidString.lowercased()) ? active : nil
        }
        entries.begin(link.channel, in: &record)
        do throws(PTChannelError) {
            try await join(link, replacing: replaced, by: caller)
        } catch {
            entries.end(link.channel, isJoined: false, in: &record)
            throw error
        }
        entries.end(link.channel, isJoined: true, in: &record)
        keep()
    }

    private func join(
        _ link: InvitationLink, replacing replaced: UUID?, by caller: BusCaller
    ) async throws(PTChannelError) {
        _ = try await director.join(
            JoinRequest(
                channel: nil, descriptor: PTChannelDescriptor(name: link.channelName.text, image: nil), link: link.text,
                media: .pttd, replacing: replaced, caller: caller))
    }

    func announce(_ id: ChannelID) async {
        guard let host = hosts[id] else { return }
        let announcement = NearbyAnnouncement(
            channel: id, name: host.channel.name, creator: host.channel.creator, version: RelayProtocolLimits.version,
            pin: host.channel.identity.pin, members: await host.memberCount(),
            admission: host.channel.announcedAdmission, generation: host.channel.generation, host: host.channel.host)
        // It may have been deleted meanwhile.
        guard hosts[id] != nil else { return }
        announced[id] = BluetoothRecord.Channel(announcement, port: host.port)
        await network?.announce(announcement, port: host.port)
        await announceByBluetooth()
    }

    /// Nobody finds the channel here any more.
    func withdraw(_ id: ChannelID) async {
        announced[id] = nil
        await network?.withdraw(id)
        await announceByBluetooth()
    }

    private func announceByBluetooth() async {
        let channels = announced.values.sorted {
            $0.announcement.channel.description < $1.announcement.channel.description
        }
        await bluetooth?.announce(channels)
    }

    func keep() {
        guard !(record.hosted.isEmpty && record.joined.isEmpty && !wasKept) else { return }
        wasKept = true
        store.save(record)
    }

    /// There is a file, or there was something to keep in it.
    private var wasKept = false
}

extension NearbyChannelDescription {
    /// How a channel is named in requests.
    static func id(_ channel: ChannelID, _ pin: PublicKeyPin) -> String { "\(channel).\("\(pin)".prefix(8))" }

    static func id(_ channel: NearbyChannel) -> String { id(channel.announcement.channel, channel.announcement.pin) }

    /// A channel that is announced.
    init(_ channel: NearbyChannel) {
        self.init()
        let announcement = channel.announcement
        id = Self.id(channel)
        uuid = "\(announcement.channel)"
        (name, creator) = (announcement.name.text, announcement.creator.text)
        (members, admission) = (announcement.members, announcement.admission.rawValue)
        isOwn = channel.isOwn
        foundBy = channel.means.sorted().map(\.rawValue)
        signalStrength = channel.signalStrength
    }

    /// A channel of this machine that nobody has seen announced yet.
    init(_ channel: HostedChannel) {
        self.init()
        id = Self.id(channel.id, channel.identity.pin)
        uuid = "\(channel.id)"
        (name, creator) = (channel.name.text, channel.creator.text)
        admission = channel.announcedAdmission.rawValue
        code = channel.code?.digits ?? ""
        isOwn = true
    }
}
