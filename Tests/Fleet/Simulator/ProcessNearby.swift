// The channel nearby in one pttd: the shipped rules of succession, with what `NearbyChannels` and `NearbyHost` do around them.
import MonotonicTime
import Nearby
import PushToTalkCore
import RelayProtocol

@testable import Bridge
@testable import RelayClient
@testable import RelayServer

/// What a machine keeps of a channel nearby over the lives of pttd.
struct NearbyMemory {
    /// It was joined, and not left again.
    var isJoined = false
    /// What a host told last.
    var secrets: ServerMessage.Succession?
}

final class ProcessNearby {
    private unowned let process: Process
    let site: NearbySite
    private var device: Device { process.device }
    private let world: World
    private let clock: MachineClock
    /// The relay of this machine, while it hosts the channel.
    private(set) var host: SimulatedRelay?
    /// Those that drain: they go with pttd, too.
    private var leaving: [SimulatedRelay] = []
    private var hosted: HostAnnouncement?
    private(set) var machine: SuccessionStateMachine?
    private weak var link: SimulatedLink?
    private var secrets: ServerMessage.Succession?
    private lazy var alarm = Alarm(clock, of: self) { $0.handle(.deadline) }
    private var isAnnouncing = false

    init(process: Process, site: NearbySite) {
        self.process = process
        world = process.world
        clock = process.device.clock
        self.site = site
    }

    private var isCreator: Bool { device.number == NearbySite.creator }

    // MARK: Start and end

    /// The creator's machine serves the channel again.
    ///
    /// - Returns: The invitation to it, for this machine itself.
    func start() -> InvitationLink? {
        guard isCreator, site.isThere else { return nil }
        serveAsCreator()
        return site.link(at: loopback(host))
    }

    /// `pttctl nearby create`.
    func create() {
        site.create()
        serveAsCreator()
        join(site.link(at: loopback(host)))
    }

    private func serveAsCreator() {
        let host = site.newHostID()
        serve(site.secrets(generation: 0, host: host), reusing: device.ownRelay)
        announceSoon()
    }

    /// pttd ends in good order: whoever looks for the channel finds the next host from now on.
    func stop() {
        endSuccession()
        site.withdraw(device.number, saysGoodbye: true)
        endHost(movingTo: nil)
    }

    /// pttd is killed, or its machine.
    func kill(saysGoodbye: Bool) {
        host?.kill()
        for relay in leaving { relay.kill() }
        (host, hosted) = (nil, nil)
        site.withdraw(device.number, saysGoodbye: saysGoodbye)
    }

    /// `pttctl nearby delete`.
    func delete() {
        guard let host else { return }
        site.delete()
        (self.host, hosted) = (nil, nil)
        site.withdraw(device.number, saysGoodbye: true)
        host.end("its creator has deleted it")
    }

    // MARK: Joining and leaving

    /// `pttctl nearby join`, again and again until a host lets it in.
    func joinNearby(attempt: Int = 0) {
        guard process.isAlive, !device.memory.isJoined, process.director.machine.active == nil else { return }
        if let host { return join(site.link(at: loopback(host))) }
        let found = site.sightings(for: device.number).sorted { $0.generation < $1.generation }
        guard !found.isEmpty else {
            return clock.after(.milliseconds(300)) { [self] in joinNearby() }
        }
        let place = found[attempt % found.count].places[0]
        ask(at: place) { [self] message in
            guard case .invitation(let invitation) = message else {
                return clock.after(.milliseconds(300)) { [self] in joinNearby(attempt: attempt + 1) }
            }
            if invitation.token != site.channel.token || invitation.mediaKey != site.mediaKey {
                world.fail("L", "\(process.name) is given another invitation than the creator's")
            }
            if process.isAlive, process.director.machine.active == nil { join(site.link(at: place)) }
        }
    }

    private func join(_ link: InvitationLink) {
        device.memory.isJoined = true
        let refusal = process.director.step(
            .join(
                ChannelJoin(
                    caller: ":1.7", uuid: link.channel.uuid, descriptor: PTChannelDescriptor(name: "", image: nil),
                    link: link)))
        if let refusal { world.fail("L", "\(process.name) does not join the channel: \(refusal.explanation)") }
    }

    private func loopback(_ relay: SimulatedRelay?) -> RelayPlace {
        RelayPlace(host: "127.0.0.1", port: relay?.place.port ?? 1)!
    }

    // MARK: Succession

    /// A link to the channel is made, and not used yet.
    func linkMade(_ link: SimulatedLink) {
        endSuccession()
        self.link = link
        if let hosted, hosted.generation > 0 {
            site.withdraw(device.number, saysGoodbye: true)
            endHost(movingTo: nil)
        }
        guard device.memory.isJoined, host == nil else { return }
        secrets = device.memory.secrets
        machine = SuccessionStateMachine(generation: secrets?.generation ?? 0, at: clock.now)
        link.followHost { [unowned self, unowned link] event in
            if process.isAlive, self.link === link, machine != nil { happened(event) }
        }
        clock.after(.milliseconds(50)) { [self] in seen(site.sightings(for: device.number)) }
    }

    private func endSuccession() {
        machine = nil
        link = nil
    }

    func seen(_ hosts: [NearbyHostSighting]) {
        if process.isAlive, machine != nil { handle(.seen(hosts)) }
    }

    private func happened(_ event: RelayHostEvent) {
        switch event {
        case .ready: handle(.linkReady)
        case .sent: handle(.sent)
        case .lost(let error): handle(.linkLost(isAnnounced: error == .goesDown))
        case .succession(let told, let own):
            site.check(told, toldTo: process.name)
            secrets = told
            device.memory.secrets = told
            handle(.told(generation: told.generation, host: told.host, turn: told.order.firstIndex(of: own)))
        case .stopped:
            endSuccession()
            if let hosted, hosted.generation > 0 {
                site.withdraw(device.number, saysGoodbye: true)
                endHost(movingTo: nil)
            }
        }
    }

    private func handle(_ event: SuccessionStateMachine.Event) {
        guard process.isAlive, var machine else { return }
        device.fleet.coverage.record("succession", state: stateName, event: event)
        let actions = machine.handle(event, at: clock.now)
        self.machine = machine
        alarm.set(machine.nextDeadline)
        for action in actions { carryOut(action) }
    }

    private var stateName: String {
        guard let machine else { return "none" }
        if machine.isHost { return "host" }
        return link?.isReady == true ? "member" : "lost"
    }

    private func carryOut(_ action: SuccessionStateMachine.Action) {
        world.note(process.name, "succession: \(action)")
        switch action {
        case .reach(let places): link?.relayMoved(to: places)
        case .verifyLink: link?.verify()
        case .serve(let generation):
            checkNeed()
            takeOver(as: generation)
        case .check(let host, let places): check(host, at: places)
        case .standDown(let place):
            if device.fleet.relay(at: place, for: device) == nil {
                world.fail("L", "\(process.name) sends its members to \(place), where no host has been")
            }
            site.withdraw(device.number, saysGoodbye: true)
            endHost(movingTo: place)
        }
    }

    /// Who hears of a host and reaches it goes there, and hosts nothing itself.
    private func checkNeed() {
        guard let other = site.onlyHost(for: device.number), let link,
            let relay = device.fleet.relay(at: other.place, for: device)
        else { return }
        let since = world.now - .seconds(6)
        guard relay.isUntroubled(since: since), site.isQuiet(among: [device.number, other.device], since: since),
            link.lostAt < world.now - SuccessionStateMachine.joinTimeout
        else { return }
        world.fail("L", "\(process.name) hosts the channel, and hears of \(other.place), which it reaches")
    }

    private func takeOver(as generation: UInt32) {
        guard let link else { return }
        clock.after(device.path.milliseconds(5...60)) { [self] in
            guard process.isAlive, self.link === link else { return }
            guard var told = secrets, host == nil else { return handle(.served(nil)) }
            (told.generation, told.host) = (generation, site.newHostID())
            serve(told)
            link.relayMoved(to: [loopback(host)])
            handle(.served(told.host))
            announceSoon()
        }
    }

    private func serve(_ told: ServerMessage.Succession, reusing own: SimulatedRelay? = nil) {
        let relay = device.fleet.host(site.configuration(told, on: device), on: device, reusing: own)
        host = relay
        hosted = HostAnnouncement(
            device: device.number, host: told.host, generation: told.generation, place: relay.place)
    }

    private func announceSoon() {
        guard let hosted else { return }
        clock.after(device.path.milliseconds(5...100)) { [self] in
            if process.isAlive, self.hosted == hosted { site.announce(hosted) }
        }
    }

    private func endHost(movingTo place: RelayPlace?) {
        guard let ended = host else { return }
        (host, hosted) = (nil, nil)
        leaving.append(ended)
        let time = place == nil ? SuccessionStateMachine.leavingTime : SuccessionStateMachine.movingTime
        ended.drain(to: place, within: time, for: .zero)
    }

    // MARK: Questions

    private func check(_ host: HostID, at places: [RelayPlace]) {
        guard let place = places.first, let link else { return }
        ask(at: place) { [self] message in
            if process.isAlive, self.link === link { handle(.checked(host, isThere: message != nil)) }
        }
    }

    /// Asks the relay at a place for the invitation; nil: nobody answers there with the channel's key.
    private func ask(at place: RelayPlace, answer: @escaping (ServerMessage?) -> Void) {
        var isAnswered = false
        func finish(_ message: ServerMessage?) {
            guard !isAnswered else { return }
            isAnswered = true
            answer(message)
        }
        clock.after(InvitationQuestionStateMachine.answerTimeout) { finish(nil) }
        guard let relay = device.fleet.relay(at: place, for: device) else { return }
        let path = device.fleet.path(of: device, to: relay)
        world.at(path.reliable(up: true)) { [self] in
            guard process.isAlive, !isAnswered else { return }
            relay.accept(device: device.number, pin: device.pin, by: path) { [self] made in
                made.question = { message in
                    finish(message)
                    relay.lose(made)
                }
                let request = ClientMessage.InvitationRequest(channel: site.channel.id, name: nil)
                world.at(max(path.reliable(up: false), path.reliable(up: true))) {
                    relay.receive(.invitationRequest(request), on: made)
                }
            }
        }
    }
}
