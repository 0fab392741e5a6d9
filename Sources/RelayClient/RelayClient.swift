// A client of a relay that runs: QUIC or TLS below, `RelayLink` above. The rules are in `RelayClientCore`.
import Cryptography
import Logging
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol
import Vocabulary
import WebSockets

/// The link to a channel of our own relay, from an invitation.
///
/// While joined and idle over QUIC it has no timer but the transport's keep-alive every 25 s. Where the relay's name has several
/// addresses, the keep-alive comes every 5 s, and a look whether it was answered every 6 s at most. Over TLS another timer waits for the
/// next try of QUIC.
public actor RelayClient: RelayLink, PushLink {
    /// What was counted since the start.
    public struct Counters: Sendable, Equatable {
        /// Packets from the relay that were dropped, by reason; those without any are left out.
        public internal(set) var dropped: [DownlinkStateMachine.Drop: Int] = [:]
        /// Frames that were sent without a burst.
        public internal(set) var strayFrames = 0
        /// Media packets that the transport did not take.
        public internal(set) var datagramsNotSent = 0
        /// Media packets that were lost on the way to the relay, or not acknowledged at the end of their burst, and sent again.
        public internal(set) var packetsRepaired = 0
    }

    /// Gives the addresses of a host name.
    typealias Resolver = @Sendable (_ host: String, _ port: UInt16) async throws(QUICError) -> [SocketAddress]

    /// Gives the way to an address, if there is one.
    typealias Router = @Sendable (SocketAddress) -> NetworkRoute?

    /// The loop that it lives on.
    public nonisolated let loop: EventLoop
    /// Jobs of the actor run on the loop.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    let identity: Identity
    let resumption: ResumptionMemory
    let logger: Logger
    let resolve: Resolver
    nonisolated let route: Router
    var addressTurns = AddressTurns()
    /// The addresses of the name in the invitation, as they were found last.
    var homeAddresses: Set<SocketAddress> = []
    var idleTimer: EventLoop.Timer?
    var core: RelayClientCore
    /// The connection of the attempt under way, or of the link; nil between attempts.
    var transport: (any RelayTransport)?
    /// That one, and those that are tried beside it.
    var transports: [LinkKind: any RelayTransport] = [:]
    /// Which of them is used.
    var choice: PathChoiceStateMachine
    var choiceTimer: EventLoop.Timer?
    /// Where a relay has sent a link that is about to move, while the connection there is begun.
    var sentTo: RelayPlace?
    /// Counts connections over QUIC that are looked up.
    var quicAttempt: UInt64 = 0
    /// What the rules of the path were told last.
    var isQuiet = false
    let network: RelayNetwork
    /// Nil: there are no links over TLS.
    let openWebSocket: WebSocketOpener?
    /// How the relay is reached now; nil: it is not.
    public internal(set) var path: RelayPath? {
        didSet {
            guard path != oldValue, let pathHandler else { return }
            // Not from within the rules' present turn.
            let path = path
            loop.execute { pathHandler(path) }
        }
    }
    private var pathHandler: (@Sendable (RelayPath?) -> Void)?
    /// Counts attempts, so that what comes of an earlier one is known as such.
    var attempt: UInt64 = 0
    var answerDoubt = FloorAnswerTimeout()
    /// Of the connection before, for a first guess.
    var lastRoundTrip: Duration?
    /// The relay's addresses, as looked up last, and the ways to them when the newest attempt began or the network changed after it.
    var known = KnownAddresses()
    var isLookingUp = false
    /// How many look-ups of attempts are under way, those of attempts that were given up included.
    var lookUps = 0
    var networkChanges: NetworkChanges?
    /// The handler for reports about the channel's host.
    var hostHandler: (@Sendable (RelayHostEvent) -> Void)?
    /// The question whether the relay is there, while it is asked.
    var probe: LivenessProbe?
    private var lastBurst: UInt32 = 0
    var lastQuery: UInt64 = 0
    /// The pending answers, by `BurstQueryID`.
    var questions: [BurstQueryID: @Sendable (RelayClientCore.BurstAnswer) -> Void] = [:]
    private var timer: (deadline: Instant, timer: EventLoop.Timer)?
    private var datagramsNotSent = 0
    private var packetsRepaired = 0

    private enum Told {
        case link(RelayLinkEvent)
        case push(PushLinkEvent)
    }

    private var handler: (@Sendable (RelayLinkEvent) -> Void)?
    private var pushHandler: (@Sendable (PushLinkEvent) -> Void)?
    private var outbox = Outbox<Told>()
    private var isDeliveryScheduled = false

    /// A link that is not started; `join` starts it.
    ///
    /// - Parameters:
    ///   - invitation: The relay, its key, the channel and its secret.
    ///   - identity: This end's key, by which the relay knows it again; one for each machine.
    ///   - displayName: What other members read.
    ///   - mode: Whether to be a member of the channel, or to get pushes only.
    ///   - resumption: Where the relay's tickets are kept, by which a connection begins a round trip sooner.
    ///   - network: How the relay may be reached.
    ///   - openWebSocket: Opens the WebSockets of links over TLS; nil: there are none of those.
    ///   - loop: What it lives on.
    public init(
        invitation: InvitationLink, identity: Identity, displayName: DisplayName, mode: RelayClientMode = .member,
        resumption: ResumptionMemory = ResumptionMemory(), network: RelayNetwork = .automatic,
        openWebSocket: WebSocketOpener?, loop: EventLoop, logger: Logger
    ) {
        self.init(
            invitation: invitation, identity: identity, displayName: displayName, mode: mode, resumption: resumption,
            network: network, openWebSocket: openWebSocket, loop: loop, logger: logger, resolve: SocketAddress.resolve)
    }

    init(
        invitation: InvitationLink, identity: Identity, displayName: DisplayName, mode: RelayClientMode = .member,
        resumption: ResumptionMemory = ResumptionMemory(), network: RelayNetwork = .automatic,
        openWebSocket: WebSocketOpener?, loop: EventLoop, logger: Logger, resolve: @escaping Resolver,
        route: @escaping Router = NetworkRoute.toward,
        pathTimes: PathChoiceStateMachine.Times = .init()
    ) {
        self.identity = identity
        self.resumption = resumption
        self.network = network
        self.openWebSocket = openWebSocket
        choice = PathChoiceStateMachine(network.transport, times: pathTimes)
        self.loop = loop
        self.logger = logger
        self.resolve = resolve
        self.route = route
        core = RelayClientCore(
            invitation: invitation, displayName: displayName, mode: mode,
            timestampAtZero: Self.timestampAtZero(of: identity))
        core.sendsOutsideQUIC = true
    }

    /// The RTP time stamp at the origin of `Instant`: a secret of the member, and the same after a restart.
    private static func timestampAtZero(of identity: Identity) -> UInt32 {
        hmacSHA256(Array("RTP time stamp".utf8), key: identity.privateKeyDER).prefix(4).reduce(0) {
            $0 << 8 | UInt32($1)
        }
    }

    deinit {
        // Who forgets a link leaves it.
        let (transports, changes) = (Array(transports.values), networkChanges)
        if transports.isEmpty, changes == nil { return }
        loop.execute {
            for transport in transports { transport.close(.none) }
            changes?.cancel()
        }
    }

    // MARK: RelayLink

    /// Sets the handler for the link's events.
    public func setEventHandler(_ handler: @escaping @Sendable (RelayLinkEvent) -> Void) {
        self.handler = handler
    }

    /// Sets the handler for changes of the path to the relay. It is called on the loop.
    public func setPathHandler(_ handler: @escaping @Sendable (RelayPath?) -> Void) { pathHandler = handler }

    /// Connects and joins, until `leave`.
    public func join() {
        followNetwork()
        call(.join)
    }

    /// Begins a burst.
    @discardableResult
    public func beginBurst(priority: UInt8) -> BurstID {
        lastBurst += 1
        let burst = BurstID(number: lastBurst)
        logger.debug("burst begins", metadata: ["burst": "\(burst.number)", "t": "\(Instant.now.nanoseconds)"])
        call(.begin(burst, priority: priority))
        return burst
    }

    /// Sends the next frame of the burst.
    public func send(_ frame: OutgoingFrame) { call(.frame(frame)) }

    /// Ends the burst.
    public func endBurst() { call(.end) }

    /// Erases what is held of the burst.
    public func abortBurst() { call(.abort) }

    /// Leaves the channel.
    public func leave() {
        leaveNetwork()
        call(.leave)
    }

    // MARK: PushLink

    /// Sets the handler for pushes.
    public func setPushHandler(_ handler: @escaping @Sendable (PushLinkEvent) -> Void) {
        pushHandler = handler
    }

    /// Wants the pushes for `token`, on every connection until `unregister`.
    public func register(token: PushToken, topic: PushTopic) { call(.registerPushes(token, topic)) }

    /// The token is dead for good.
    public func unregister(token: PushToken) { call(.unregisterPushes(token)) }

    /// What was counted since the start.
    public var counters: Counters {
        var counters = Counters()
        for drop in DownlinkStateMachine.Drop.allCases where core.dropped(drop) > 0 {
            counters.dropped[drop] = core.dropped(drop)
        }
        counters.strayFrames = core.strayFrames
        counters.datagramsNotSent = datagramsNotSent
        counters.packetsRepaired = packetsRepaired
        return counters
    }

    /// The smoothed round-trip time to the relay; `nil` while not connected.
    public var roundTripTime: Duration? { transport?.roundTripTime }

    // MARK: Events in

    /// Handles a request of the user. Its events are delivered after the call.
    func call(_ event: RelayClientCore.Event) {
        let now = Instant.now
        carryOut(core.handle(event, at: now), at: now)
        arm()
        guard outbox.needsRound, !isDeliveryScheduled else { return }
        isDeliveryScheduled = true
        later { client in
            client.isDeliveryScheduled = false
            client.deliver()
        }
    }

    /// Handles an event of the relay or the clock. The user is informed at once.
    func take(_ event: RelayClientCore.Event) {
        let now = Instant.now
        carryOut(core.handle(event, at: now), at: now)
        arm()
        deliver()
    }

    private func deliver() {
        guard outbox.beginRound() else { return }
        while let event = outbox.next() {
            switch event {
            case .link(let event): handler?(event)
            case .push(let event): pushHandler?(event)
            }
        }
    }

    /// Handles a packet outside of QUIC.
    func take(_ packet: UnsafeRawBufferPointer) {
        let now = Instant.now
        carryOut(core.receive(packet, at: now), at: now)
        arm()
        deliver()
    }

    /// The first packet of a connection can carry early data. Its events are delivered in the current round.
    func offerEarlyData() {
        let now = Instant.now
        carryOut(core.handle(.earlyDataOffered, at: now), at: now)
    }

    // MARK: Actions

    func carryOut(_ actions: [RelayClientCore.Action], at now: Instant) {
        for action in actions {
            switch action {
            case .connect: connect()
            case .close(let code): close(code)
            case .send(.mediaRepair(let packet)):
                if transport?.sendRepair(packet) == true { packetsRepaired += 1 } else { datagramsNotSent += 1 }
            case .send(let message):
                guard let transport else { continue }
                if case .floorRequest = message { answerDoubt.asked(at: now) }
                if !transport.send(message) {
                    logger.warning("the relay does not read control messages")
                    carryOut(
                        core.handle(.connectionEnded(.lost("it does not read control messages")), at: now), at: now)
                }
            case .sendLoosely(let message): transport?.send(loosely: message)
            case .sendMedia(let datagram):
                if let number = transport?.send(datagram) {
                    carryOut(core.handle(.mediaSent(number, datagram), at: now), at: now)
                } else {
                    // It goes on the stream, or is counted there.
                    carryOut(core.handle(.mediaRefused(datagram), at: now), at: now)
                }
            case .sendOutsideQUIC(let packet): transport?.send(outsideQUIC: packet)
            case .awaitAnswer(let isAwaited): transport?.awaitAnswer(isAwaited)
            case .verify(let patience): verify(path: true, patience: patience)
            case .tell(let event):
                note(event, at: now)
                doubt(after: event)
                if case .state(let state) = event { tellOfHost(changed: state) }
                if case .state(.ready) = event, let web = core.webPlace {
                    resumption.keep(web, of: core.relay, for: identity.pin)
                }
                if handler != nil { outbox.add(.link(event)) }
            case .answer(let query, let answer):
                // Not from within the call, and whether this link still lives by then or not.
                if let question = questions.removeValue(forKey: query) { loop.execute { question(answer) } }
            case .tellOfSuccession(let succession):
                if let own = core.ownID { tellOfHost(.succession(succession, own: own)) }
            case .tellOfPushes(let event):
                note(event, at: now)
                if pushHandler != nil { outbox.add(.push(event)) }
            }
        }
    }

    /// Wakes at the next deadline of the rules; no timer runs while nothing is under way.
    func arm() {
        followChoice()
        guard let deadline = core.nextDeadline else {
            timer?.timer.cancel()
            timer = nil
            return
        }
        if let timer, timer.timer.isPending, timer.deadline <= deadline { return }
        timer?.timer.cancel()
        let timer = schedule(at: deadline) { client in
            client.timer = nil
            client.core.lastHeard = client.transport?.lastHeard
            if let time = client.transport?.roundTripTime { client.core.roundTripTime = time }
            client.take(.deadline)
        }
        self.timer = (deadline, timer)
    }

    /// Runs `body` not at once: what calls may be within `carryOut`.
    func later(_ body: @escaping @Sendable (isolated RelayClient) -> Void) {
        loop.execute { [weak self] in self?.assumeIsolated(body) }
    }

    /// Runs `body` at that time, if the client is still there.
    @discardableResult
    func schedule(
        at time: Instant, _ body: @escaping @Sendable (isolated RelayClient) -> Void
    ) -> EventLoop.Timer {
        loop.schedule(at: time) { [weak self] in self?.assumeIsolated(body) }
    }
}
