// The adapter between the rules and the network: Avahi on the system bus, and the probes.
import DBus
import Glibc
import Logging
import MonotonicTime
import Reactor
import RelayProtocol

/// Announces channels on the local network and lists those of others, by avahi-daemon.
///
/// Nothing is announced, looked for or sent before it is asked for, and nothing that is found makes any connection. Avahi may come and
/// go: everything that is wanted is asked for again. What is listed are strangers' words.
public actor NearbyNetwork {
    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop, as the actor's executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private let bus: DBusConnection
    private let logger: Logger
    private let handler: @Sendable ([NearbyChannel]) -> Void
    private var problemHandler: (@Sendable (NearbyProblem?) -> Void)?
    private var hostsHandler: (@Sendable ([FollowedChannel: [NearbyHostSighting]]) -> Void)?
    private var announcedHandler: (@Sendable (ChannelID) -> Void)?
    private var machine = NearbyStateMachine()
    private var owner: String?
    private var matches: [DBusMatch] = []
    private var watch: DBusNameWatch?
    private var timer: EventLoop.Timer?
    private var timerDue: Instant?
    private var probes: ProbeSocket?
    private var isStarted = false

    /// How long Avahi may take to answer. The retries are the state machine's.
    private static let answerTimeout = Duration.seconds(5)
    /// The same at the end.
    private static let withdrawalTimeout = Duration.seconds(1)

    /// A network on which nothing is announced or looked for before `start()`.
    ///
    /// - Parameters:
    ///   - bus: A connection to the system bus; connected or not yet.
    ///   - handler: Called on the loop whenever the list of channels changed, with the whole list, sorted by name and then by id.
    ///     The list is empty while nobody browses.
    @_semantics("optimize.no.crossmodule")  // Swift 6.3: "circular reference" where an importer inlines this.
    public init(bus: DBusConnection, logger: Logger, handler: @escaping @Sendable ([NearbyChannel]) -> Void) {
        self.bus = bus
        loop = bus.loop
        self.logger = logger
        self.handler = handler
    }

    isolated deinit {
        timer?.cancel()
        probes?.close()
    }

    /// The channels nearby, sorted by name and then by id; empty while nobody browses.
    public var channels: [NearbyChannel] { machine.channels }

    /// Why nothing is found or announced; nil when nothing is wrong, or nothing wanted.
    public var problem: NearbyProblem? { machine.problem }

    /// Channels and services that were found and are not in the list, because there are too many.
    public var leftOut: Int { machine.unlisted + machine.leftOut }

    /// Has `handler` called on the loop whenever `problem` changed.
    public func onProblem(_ handler: (@Sendable (NearbyProblem?) -> Void)?) { problemHandler = handler }

    /// Has `handler` called on the loop whenever Avahi has announced a channel of this machine: others can find it from then on.
    public func onAnnounced(_ handler: (@Sendable (ChannelID) -> Void)?) { announcedHandler = handler }

    /// Uses Avahi as soon as it is on the bus. Neither Avahi nor the bus has to be present.
    public func start() async {
        guard !isStarted else { return }
        isStarted = true
        let interfaces = [
            Avahi.Object.group.interface, Avahi.Object.browser.interface, Avahi.Object.resolver.interface,
            Avahi.serverInterface,
        ]
        do throws(DBusError) {
            for interface in interfaces {
                matches.append(
                    try await bus.addMatch(DBusMatchRule(sender: Avahi.name, interface: interface)) {
                        [weak self] message in self?.assumeIsolated { $0.received(message) }
                    })
            }
            watch = try await bus.watchName(Avahi.name) { [weak self] owner in
                self?.assumeIsolated { $0.ownerChanged(owner) }
            }
        } catch {
            logger.error("channels nearby cannot be used", metadata: ["reason": "\(error)"])
            carryOut(machine.handle(.daemonLeft(.refused("\(error)")), at: .now))
            return
        }
        if owner == nil { await tellAbsence() }
    }

    /// Looks for channels, or ends that. Hosts are asked for a sign of life while it looks, and at no other time.
    public func browse(_ isWanted: Bool) { carryOut(machine.handle(.browse(isWanted), at: .now)) }

    /// Follows who hosts these channels, also while nobody browses; of other channels nothing is asked then. The handler is called on the
    /// loop whenever that changed, with all hosts but this machine.
    public func follow(_ channels: Set<FollowedChannel>) { carryOut(machine.handle(.follow(channels), at: .now)) }

    /// Has `handler` called on the loop whenever the hosts of followed channels changed.
    public func onHosts(_ handler: (@Sendable ([FollowedChannel: [NearbyHostSighting]]) -> Void)?) {
        hostsHandler = handler
    }

    /// Announces a channel that this machine hosts at `port`, or updates its announcement. Updates are sent at most
    /// once a second. It has no effect without a change.
    public func announce(_ announcement: NearbyAnnouncement, port: UInt16) {
        carryOut(machine.handle(.announce(announcement, port: port), at: .now))
    }

    /// Ends the announcement of a channel: it disappears from others' lists at once.
    public func withdraw(_ channel: ChannelID) { carryOut(machine.handle(.withdraw(channel), at: .now)) }

    /// Ends all announcements and searches. Avahi has been informed when it returns.
    public func stop() async {
        guard isStarted else { return }
        browse(false)
        follow([])
        let withdrawn = machine.announced
        for channel in withdrawn { withdraw(channel) }
        if let owner, !withdrawn.isEmpty {
            // Whatever Avahi answers, it has read what was sent before. One that hangs keeps nobody from ending.
            _ = try? await bus.call(
                destination: owner, path: Avahi.serverPath, interface: Avahi.serverInterface, method: "GetState",
                timeout: Self.withdrawalTimeout, startsService: false)
        }
        isStarted = false
        if let watch { await bus.unwatchName(watch) }
        for match in matches { await bus.removeMatch(match) }
        (watch, matches, owner) = (nil, [], nil)
        carryOut(machine.handle(.daemonLeft(.notRunning), at: .now))
    }

    // MARK: Between the bus and the rules

    private func ownerChanged(_ new: String?) {
        guard isStarted, new != owner else { return }
        let old = owner
        owner = new
        if old != nil {
            logger.info("avahi-daemon has left the bus")
            carryOut(machine.handle(.daemonLeft(.notRunning), at: .now))
            if new == nil { Task { [weak self] in await self?.tellAbsence() } }
        }
        if new != nil {
            logger.debug("avahi-daemon is on the bus")
            carryOut(machine.handle(.daemonCame, at: .now))
        }
    }

    private func tellAbsence() async {
        let problem: NearbyProblem = await bus.uniqueName == nil ? .noBus : .notRunning
        guard isStarted, owner == nil else { return }
        carryOut(machine.handle(.daemonLeft(problem), at: .now))
    }

    private func received(_ message: DBusMessage) {
        guard isStarted, let path = message.path, let interface = message.interface, let member = message.member
        else { return }
        if interface == Avahi.serverInterface {
            guard member == "StateChanged", case .int32(let number)? = message.arguments.first,
                let state = Avahi.ServerState(rawValue: number)
            else { return }
            return carryOut(machine.handle(.serverChanged(state), at: message.receivedAt))
        }
        let signal = AvahiSignal(
            interface: interface, member: member, arguments: message.arguments, zone: Self.zone(of:))
        guard let signal else { return }
        carryOut(machine.handle(.signal(path, signal), at: message.receivedAt))
    }

    /// The name of an interface, as an address's zone; its number where the name cannot be one.
    private static func zone(of interface: Int32) -> String? {
        var name = [CChar](repeating: 0, count: Int(IF_NAMESIZE))
        guard interface > 0, if_indextoname(UInt32(interface), &name) != nil else { return nil }
        let text = String(decoding: name.prefix { $0 != 0 }.map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
        return InvitationLink.isHost("fe80::1%\(text)") ? text : "\(interface)"
    }

    private func carryOut(_ actions: [NearbyStateMachine.Action]) {
        for action in actions { carryOut(action) }
        let deadline = machine.nextDeadline(at: .now)
        if let deadline, timerDue == deadline, timer?.isPending == true { return }
        timer?.cancel()
        timerDue = deadline
        timer = deadline.map {
            loop.schedule(at: $0) { [weak self] in
                self?.assumeIsolated { $0.carryOut($0.machine.handleTimeout(at: .now)) }
            }
        }
    }

    private func carryOut(_ action: NearbyStateMachine.Action) {
        switch action {
        case .open(let wish, let ticket): open(wish, ticket)
        case .register(let path, let offer, let ticket):
            let records = offer.host.flatMap { AvahiRecords(offer, host: $0) }
            let steps = records?.arguments.map { (path, "AddRecord", $0) } ?? [(path, "AddService", offer.service)]
            ask(ticket, steps + [(path, "Commit", [])])
        case .update(let path, let offer, let ticket):
            ask(ticket, [(path, "UpdateServiceTxt", offer.update)])
        case .free(let object, let path):
            guard let owner else { return }
            // The bus lives on the same loop.
            bus.assumeIsolated {
                try? $0.send(destination: owner, path: path, interface: object.interface, method: "Free")
            }
        case .probe(let place, let number):
            let probes =
                probes
                ?? ProbeSocket(on: loop) { [weak self] number in
                    self?.assumeIsolated { $0.carryOut($0.machine.handle(.answered(number), at: .now)) }
                }
            self.probes = probes
            probes.send(to: place, number: number)
        case .endProbing:
            probes?.close()
            probes = nil
        case .askHostName: askHostName()
        case .startDaemon: Task { [weak self] in await self?.startDaemon() }
        case .report(let channels): handler(channels)
        case .hosts(let hosts): hostsHandler?(hosts)
        case .problem(let problem):
            if let problem { logger.warning("no channels nearby", metadata: ["why": "\(problem)"]) }
            problemHandler?(problem)
        case .announced(let channel, let instance):
            logger.info("channel announced", metadata: ["channel": "\(channel)", "instance": "\(instance)"])
            announcedHandler?(channel)
        }
    }

    // MARK: Calls

    private func open(_ wish: NearbyStateMachine.Wish, _ ticket: UInt64) {
        guard let owner else { return }
        Task { [weak self, bus] in
            let event: NearbyStateMachine.Event
            do throws(DBusError) {
                let answer = try await bus.call(
                    destination: owner, path: Avahi.serverPath, interface: Avahi.serverInterface, method: wish.method,
                    arguments: wish.arguments, timeout: Self.answerTimeout, startsService: false)
                event = .opened(wish.object, ticket: ticket, try answer.argument(0))
            } catch {
                event = Self.refusal(error, ticket)
            }
            await self?.finish(event, of: owner)
        }
    }

    private typealias Step = (path: DBusObjectPath, method: String, arguments: [DBusValue])

    /// Calls methods of a group, one after the other.
    private func ask(_ ticket: UInt64, _ steps: [Step]) {
        guard let owner else { return }
        Task { [weak self, bus] in
            do throws(DBusError) {
                for step in steps {
                    try await bus.call(
                        destination: owner, path: step.path, interface: Avahi.Object.group.interface,
                        method: step.method, arguments: step.arguments, timeout: Self.answerTimeout,
                        startsService: false)
                }
                await self?.finish(.registered(ticket: ticket), of: owner)
            } catch {
                await self?.finish(Self.refusal(error, ticket), of: owner)
            }
        }
    }

    private func askHostName() {
        guard let owner else { return }
        Task { [weak self, bus] in
            let answer = try? await bus.call(
                destination: owner, path: Avahi.serverPath, interface: Avahi.serverInterface,
                method: "GetHostNameFqdn", timeout: Self.answerTimeout, startsService: false)
            guard case .string(let name)? = answer?.first else { return }
            await self?.finish(.hostNamed(name), of: owner)
        }
    }

    private func startDaemon() async {
        do throws(DBusError) {
            try await bus.startService(Avahi.name)
        } catch {
            guard isStarted, owner == nil,
                error.remoteName == "org.freedesktop.DBus.Error.ServiceUnknown"
            else { return }
            carryOut(machine.handle(.daemonLeft(.notInstalled), at: .now))
        }
    }

    /// Takes in an answer, unless it is that of an Avahi which is gone.
    private func finish(_ event: NearbyStateMachine.Event, of owner: String) {
        guard isStarted, owner == self.owner else { return }
        carryOut(machine.handle(event, at: .now))
    }

    private static func refusal(_ error: DBusError, _ ticket: UInt64) -> NearbyStateMachine.Event {
        .refused(ticket: ticket, isCollision: Avahi.isCollision(error), reason: "\(error)")
    }
}

extension NearbyStateMachine.Wish {
    fileprivate var object: Avahi.Object {
        switch self {
        case .group: .group
        case .browser: .browser
        case .resolver: .resolver
        }
    }

    fileprivate var method: String { "\(object.rawValue)New" }

    fileprivate var arguments: [DBusValue] {
        switch self {
        case .group: []
        case .browser:
            [.int32(Avahi.any), .int32(Avahi.any), .string(Avahi.serviceType), .string(""), .uint32(0)]
        case .resolver(let service):
            // The address of the protocol by which the service was heard: that protocol reaches the host.
            [
                .int32(service.interface), .int32(service.networkProtocol), .string(service.name),
                .string(Avahi.serviceType), .string(service.domain), .int32(service.networkProtocol), .uint32(0),
            ]
        }
    }
}

extension AvahiOffer {
    private var strings: DBusValue { .array(.array(.byte), txt.map { .bytes($0) }) }

    fileprivate var service: [DBusValue] {
        [
            .int32(Avahi.any), .int32(Avahi.any), .uint32(0), .string(instance), .string(Avahi.serviceType),
            .string(""), .string(""), .uint16(port), strings,
        ]
    }

    fileprivate var update: [DBusValue] {
        [
            .int32(Avahi.any), .int32(Avahi.any), .uint32(0), .string(instance), .string(Avahi.serviceType),
            .string(""), strings,
        ]
    }
}
