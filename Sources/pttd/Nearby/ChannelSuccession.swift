// The part of one member in the succession of hosts of a channel nearby.
import Cryptography
import Logging
import MonotonicTime
import Nearby
import Reactor
import RelayClient
import RelayProtocol

/// A channel that this machine is on and has not created: its rules, its link, and what this machine needs to host it. It is used on its
/// loop only.
final class ChannelSuccession {
    let followed: FollowedChannel
    let link: InvitationLink
    let client: RelayClient
    /// The secrets with which this machine can host the channel; nil until the host has sent them.
    private(set) var secrets: HostedChannel?
    private(set) var machine: SuccessionStateMachine
    /// The last host that was another machine: a network by Bluetooth leads to it.
    private var former: HostedChannel?
    /// The hosts that are announced.
    private var announced: [NearbyHostSighting] = []
    /// Where a network by Bluetooth leads; nil: there is none.
    private var bluetoothPlace: RelayPlace?
    /// The hosts that the rules know of.
    private var sightings: [NearbyHostSighting] = []
    private var timer: EventLoop.Timer?
    private let act: (SuccessionStateMachine.Action) -> Void

    /// - Parameter act: Carries out what the rules want, and may be called from within `handle`.
    init(
        _ client: RelayClient, to link: InvitationLink, secrets: HostedChannel?,
        act: @escaping (SuccessionStateMachine.Action) -> Void
    ) {
        followed = FollowedChannel(channel: link.channel, pin: link.pin)
        (self.link, self.client, self.act) = (link, client, act)
        (self.secrets, former) = (secrets, secrets)
        machine = SuccessionStateMachine(generation: secrets?.generation ?? 0, at: .now)
    }

    deinit { timer?.cancel() }

    /// Takes an event in, and has carried out what follows.
    func handle(_ event: SuccessionStateMachine.Event) {
        let actions = machine.handle(event, at: .now)
        timer?.cancel()
        timer = machine.nextDeadline.map { deadline in
            client.loop.schedule(at: deadline) { [weak self] in self?.handle(.deadline) }
        }
        for action in actions { act(action) }
    }

    /// The host has sent its secrets.
    ///
    /// - Parameters:
    ///   - turn: The number of members whose turn comes before this member's; nil: this member has none.
    ///   - isOwn: This machine is the host.
    func told(_ secrets: HostedChannel, turn: Int?, isOwn: Bool) {
        self.secrets = secrets
        if !isOwn { former = secrets }
        handle(.told(generation: secrets.generation, host: secrets.host, turn: turn))
        tellSightings()
    }

    /// These hosts are announced.
    func seen(_ hosts: [NearbyHostSighting]) {
        announced = hosts
        tellSightings()
    }

    /// A network by Bluetooth is there as this interface; nil: none is.
    func reached(over interface: String?) {
        bluetoothPlace = interface.flatMap { RelayPlace(host: link.host, port: link.port)?.inZone($0) }
        tellSightings()
    }

    private func tellSightings() {
        var all = announced
        // Nothing else may announce it over Bluetooth.
        if let bluetoothPlace, let former, !all.contains(where: { $0.host == former.host }) {
            all.append(
                NearbyHostSighting(host: former.host, generation: former.generation, places: [bluetoothPlace]))
        }
        guard all != sightings else { return }
        sightings = all
        handle(.seen(all))
    }

    /// Nothing is to be done any more.
    func end() {
        timer?.cancel()
        timer = nil
    }
}

extension NearbyChannels {
    /// A link to a channel is made, and not used yet. When the channel was joined nearby, this machine takes part in its succession; the
    /// creator's own machine comes back as its host in any case.
    func linkMade(_ client: RelayClient, to link: InvitationLink) {
        let id = link.channel
        successions.removeValue(forKey: id)?.end()
        // What this machine hosts in place of somebody else, it hosts by the rules of the link before.
        let orphan = successor(of: id)
        if let orphan { Task { await end(orphan) } }
        guard record.joined.contains("\(id)"), hosts[id] == nil || orphan != nil, link.mediaKey != nil else { return }
        let kept = record.membership(of: id).flatMap { $0.identity.pin == link.pin ? $0 : nil }
        let succession = ChannelSuccession(client, to: link, secrets: kept) { [weak self] action in
            self?.assumeIsolated { $0.carryOut(action, of: id) }
        }
        successions[id] = succession
        client.assumeIsolated { client in
            client.followHost { [weak self, weak client] event in
                self?.assumeIsolated { channels in
                    // Another link may have taken its place.
                    guard let succession = channels.successions[id], succession.client === client else { return }
                    channels.happened(event, to: succession)
                }
            }
        }
        Task {
            await follow()
            if let accessPoint = record.accessPoint(of: id) { await bluetooth?.keepNetwork(to: accessPoint) }
        }
    }

    /// A network by Bluetooth is there as this interface, or lost (nil).
    func networkChanged(_ interface: String?) {
        for succession in successions.values where record.accessPoint(of: succession.link.channel) != nil {
            succession.reached(over: interface)
        }
    }

    /// The interface of the network by Bluetooth over which a channel is reached; nil: there is none.
    private func interface(to channel: ChannelID) -> String? {
        guard let accessPoint = record.accessPoint(of: channel) else { return nil }
        return bluetooth?.assumeIsolated { $0.interface(to: accessPoint) }
    }

    /// A network by Bluetooth is not wanted any more, unless another channel is reached over it.
    func endNetwork(to accessPoint: BluetoothAccessPoint) async {
        guard !successions.keys.contains(where: { record.accessPoint(of: $0) == accessPoint }) else { return }
        await bluetooth?.endNetwork(to: accessPoint)
    }

    /// Follows the hosts of the channels that this machine is on, and no others.
    func follow() async { await network?.follow(Set(successions.values.map(\.followed))) }

    /// The hosts that are announced.
    func seen(_ hosts: [FollowedChannel: [NearbyHostSighting]]) {
        for succession in successions.values { succession.seen(hosts[succession.followed] ?? []) }
    }

    private func happened(_ event: RelayHostEvent, to succession: ChannelSuccession) {
        switch event {
        case .ready: succession.handle(.linkReady)
        case .sent: succession.handle(.sent)
        case .lost(let error): succession.handle(.linkLost(isAnnounced: error == .goesDown))
        case .succession(let told, let own):
            guard let secrets = HostedChannel(succession.link, told) else {
                return logger.warning(
                    "the host of a channel nearby reports a key that is not its own",
                    metadata: ["channel": "\(succession.link.channelName)"])
            }
            if record.keep(membership: secrets) { keep() }
            succession.told(
                secrets, turn: told.order.firstIndex(of: own), isOwn: hosts[secrets.id]?.channel.host == told.host)
            // The network may be older than the link.
            succession.reached(over: interface(to: secrets.id))
        case .stopped:
            let id = succession.link.channel
            succession.end()
            successions[id] = nil
            if let host = successor(of: id) { Task { await end(host) } }
            Task {
                await follow()
                if let accessPoint = record.accessPoint(of: id) { await endNetwork(to: accessPoint) }
            }
        }
    }

    private func carryOut(_ action: SuccessionStateMachine.Action, of id: ChannelID) {
        guard let succession = successions[id] else { return }
        switch action {
        case .reach(let places): succession.client.assumeIsolated { $0.relayMoved(to: places) }
        case .verifyLink: succession.client.assumeIsolated { $0.verify() }
        case .serve(let generation): Task { await takeOver(id, as: generation) }
        case .check(let host, let places): Task { await check(host, at: places, of: id) }
        case .standDown(let place):
            guard let host = successor(of: id) else { return }
            logger.notice(
                "another machine hosts the channel nearby; the members are sent there",
                metadata: ["channel": "\(host.channel.name)", "relay": "\(place)"])
            Task { await end(host, movingTo: place) }
        }
    }

    /// The host of a channel that somebody else created.
    private func successor(of id: ChannelID) -> NearbyHost? {
        hosts[id].flatMap { $0.channel.generation > 0 ? $0 : nil }
    }

    private func takeOver(_ id: ChannelID, as generation: UInt32) async {
        guard let succession = successions[id] else { return }
        guard var channel = succession.secrets.map({ $0.withFreshHost }), hosts[id] == nil else {
            return succession.handle(.served(nil))
        }
        channel.generation = generation
        let host: NearbyHost
        do {
            host = try await serve(channel)
        } catch {
            logger.error(
                "this machine cannot take over as host of the channel nearby",
                metadata: ["channel": "\(channel.name)", "why": "\(error)"])
            return succession.handle(.served(nil))
        }
        guard successions[id] === succession else { return await end(host) }
        logger.notice(
            "the host of the channel nearby has left; this machine hosts it now",
            metadata: ["channel": "\(channel.name)", "generation": "\(generation)"])
        if let place = RelayPlace(host: "127.0.0.1", port: host.port) {
            await succession.client.relayMoved(to: [place])
        }
        succession.handle(.served(channel.host))
        await announce(id)
        publish()
    }

    private func check(_ host: HostID, at places: [RelayPlace], of id: ChannelID) async {
        guard let link = successions[id]?.link else { return }
        let question = InvitationQuestion(
            for: id, at: places, pin: link.pin, identity: identity, loop: loop, logger: logger)
        var isThere = true
        do throws(InvitationQuestionError) { _ = try await question.ask() } catch { isThere = error.isAnswer }
        successions[id]?.handle(.checked(host, isThere: isThere))
    }

    /// Hosts a channel no more that somebody else created.
    private func end(_ host: NearbyHost, movingTo place: RelayPlace? = nil) async {
        let id = host.channel.id
        if hosts[id]?.channel.host == host.channel.host {
            hosts[id] = nil
            forgetNewcomers(of: id)
        }
        await withdraw(id)
        publish()
        await host.stop(movingTo: place)
        if hosts[id] == nil { store.forgetPlaces(of: "\(id)") }
    }
}
