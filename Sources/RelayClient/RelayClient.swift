// A client of a relay that runs: QUIC below, `RelayLink` above. The rules are in `RelayClientCore`.
import Cryptography
import Logging
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol

/// The link to a channel of our own relay, from an invitation.
///
/// While joined and idle it has no timer but the transport's keep-alive every 20 s.
public actor RelayClient: RelayLink, PushLink {
    /// What was counted since the start.
    public struct Counters: Sendable, Equatable {
        /// Packets from the relay that were dropped, by reason; those without any are left out.
        public internal(set) var dropped: [DownlinkStateMachine.Drop: Int] = [:]
        /// Frames that were sent without a burst.
        public internal(set) var strayFrames = 0
        /// Media packets that the transport did not take.
        public internal(set) var datagramsNotSent = 0
        /// Media packets that were lost on the way to the relay, and sent again.
        public internal(set) var packetsRepaired = 0
    }

    /// Gives the addresses of a host name.
    typealias Resolver = @Sendable (_ host: String, _ port: UInt16) async throws(QUICError) -> [SocketAddress]

    /// The loop that it lives on.
    public nonisolated let loop: EventLoop
    /// Jobs of the actor run on the loop.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    let invitation: InvitationLink
    let identity: Identity
    let resumption: ResumptionMemory
    let logger: Logger
    private let resolve: Resolver
    private var addressTurns = AddressTurns()
    private var core: RelayClientCore
    private(set) var transport: RelayTransport?
    private(set) var attempt: UInt64 = 0
    /// Of the connection before, for a first guess.
    var lastRoundTrip: Duration?
    /// Where the newest attempt went, and by which way.
    var lastAddress: SocketAddress?
    var lastRoute: NetworkRoute?
    var networkChanges: NetworkChanges?
    private var lastBurst: UInt32 = 0
    private var timer: (deadline: Instant, timer: EventLoop.Timer)?
    private var datagramsNotSent = 0

    private enum Told {
        case link(RelayLinkEvent)
        case push(PushLinkEvent)
    }

    private var handler: (@Sendable (RelayLinkEvent) -> Void)?
    private var pushHandler: (@Sendable (PushLinkEvent) -> Void)?
    private var events: [Told] = []
    private var isDelivering = false
    private var isDeliveryScheduled = false

    /// A link that is not started; `join` starts it.
    ///
    /// - Parameters:
    ///   - invitation: The relay, its key, the channel and its secret.
    ///   - identity: This end's key, by which the relay knows it again; one for each machine.
    ///   - displayName: What other members read.
    ///   - mode: Whether to be a member of the channel, or to get pushes only.
    ///   - resumption: Where the relay's tickets are kept, by which a connection begins a round trip sooner.
    ///   - loop: What it lives on.
    public init(
        invitation: InvitationLink, identity: Identity, displayName: DisplayName, mode: RelayClientMode = .member,
        resumption: ResumptionMemory = ResumptionMemory(), loop: EventLoop, logger: Logger
    ) {
        self.init(
            invitation: invitation, identity: identity, displayName: displayName, mode: mode, resumption: resumption,
            loop: loop, logger: logger, resolve: SocketAddress.resolve)
    }

    init(
        invitation: InvitationLink, identity: Identity, displayName: DisplayName, mode: RelayClientMode = .member,
        resumption: ResumptionMemory = ResumptionMemory(), loop: EventLoop, logger: Logger, resolve: @escaping Resolver
    ) {
        self.invitation = invitation
        self.identity = identity
        self.resumption = resumption
        self.loop = loop
        self.logger = logger
        self.resolve = resolve
        core = RelayClientCore(invitation: invitation, displayName: displayName, mode: mode)
    }

    deinit {
        // Who forgets a link leaves it.
        let (transport, changes) = (transport, networkChanges)
        if transport == nil, changes == nil { return }
        loop.execute {
            transport?.close(.none)
            changes?.cancel()
        }
    }

    // MARK: RelayLink

    /// Sets who is told what happens.
    public func setEventHandler(_ handler: @escaping @Sendable (RelayLinkEvent) -> Void) {
        self.handler = handler
    }

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

    /// Sets who is told of pushes.
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
        counters.packetsRepaired = core.packetsRepaired
        return counters
    }

    /// The smoothed round-trip time to the relay; `nil` while not connected.
    public var roundTripTime: Duration? { transport?.connection.roundTripTime }

    // MARK: Events in

    /// A wish of the user: what comes of it is told after the call.
    private func call(_ event: RelayClientCore.Event) {
        let now = Instant.now
        carryOut(core.handle(event, at: now), at: now)
        arm()
        guard !events.isEmpty, !isDelivering, !isDeliveryScheduled else { return }
        isDeliveryScheduled = true
        loop.execute { [weak self] in
            self?.assumeIsolated { client in
                client.isDeliveryScheduled = false
                client.deliver()
            }
        }
    }

    /// Something came from the relay or the clock: the user is told at once.
    func take(_ event: RelayClientCore.Event) {
        let now = Instant.now
        carryOut(core.handle(event, at: now), at: now)
        arm()
        deliver()
    }

    private func deliver() {
        guard !isDelivering else { return }
        isDelivering = true
        // By index: a handler may call the link, which tells more.
        var index = 0
        while index < events.count {
            switch events[index] {
            case .link(let event): handler?(event)
            case .push(let event): pushHandler?(event)
            }
            index += 1
        }
        events.removeAll(keepingCapacity: true)
        isDelivering = false
    }

    // MARK: Actions

    private func carryOut(_ actions: [RelayClientCore.Action], at now: Instant) {
        for action in actions {
            switch action {
            case .connect: connect()
            case .close(let code): close(code)
            case .send(.mediaRepair(let packet)):
                if transport?.sendRepair(packet) != true { datagramsNotSent += 1 }
            case .send(let message):
                guard let transport else { continue }
                if !transport.send(message) {
                    logger.warning("the relay does not take control messages")
                    carryOut(core.handle(.connectionEnded(.lost("control messages are not taken")), at: now), at: now)
                }
            case .sendMedia(let datagram):
                if let number = transport?.send(datagram) {
                    carryOut(core.handle(.mediaSent(number, datagram), at: now), at: now)
                } else {
                    datagramsNotSent += 1
                    carryOut(core.handle(.mediaRefused(datagram), at: now), at: now)
                }
            case .tell(let event):
                note(event, at: now)
                doubt(after: event, at: now)
                if handler != nil { events.append(.link(event)) }
            case .tellOfPushes(let event):
                note(event, at: now)
                if pushHandler != nil { events.append(.push(event)) }
            }
        }
    }

    private func connect() {
        attempt += 1
        if let address = SocketAddress(invitation.host, port: invitation.port) { return connect(to: address) }
        let (attempt, host, port) = (attempt, invitation.host, invitation.port)
        Task {
            let result: Result<[SocketAddress], QUICError>
            do throws(QUICError) {
                result = .success(try await resolve(host, port))
            } catch {
                result = .failure(error)
            }
            // Another attempt, or a leave, may have come meanwhile.
            guard attempt == self.attempt, transport == nil else { return }
            switch result {
            case .success(let addresses):
                guard let address = addressTurns.next(of: addresses) else {
                    return take(.connectionEnded(.unreachable("'\(host)' has no address")))
                }
                connect(to: address)
            case .failure(let error): take(.connectionEnded(.unreachable("\(error)")))
            }
        }
    }

    private func connect(to address: SocketAddress) {
        noteAttempt(at: address)
        do throws(QUICError) {
            let transport = try RelayTransport(
                address: address, pin: invitation.pin, identity: identity, returning: returning(to: address),
                client: self, logger: logger)
            self.transport = transport
            let now = Instant.now
            if transport.offersEarlyData { carryOut(core.handle(.earlyDataOffered, at: now), at: now) }
        } catch {
            // Not at once: this may be within `carryOut`.
            let attempt = attempt
            loop.execute { [weak self] in
                self?.assumeIsolated { client in
                    if attempt == client.attempt { client.take(.connectionEnded(.system("\(error)"))) }
                }
            }
        }
    }

    private func close(_ code: RelayCloseCode) {
        attempt += 1
        transport?.close(code)
        transport = nil
    }

    /// Wakes at the next deadline of the rules; no timer runs while nothing is under way.
    private func arm() {
        guard let deadline = core.nextDeadline else {
            timer?.timer.cancel()
            timer = nil
            return
        }
        if let timer, timer.timer.isPending, timer.deadline <= deadline { return }
        timer?.timer.cancel()
        timer = (
            deadline,
            loop.schedule(at: deadline) { [weak self] in
                self?.assumeIsolated { client in
                    client.timer = nil
                    client.take(.deadline)
                }
            }
        )
    }
}

// MARK: - What the transport tells

extension RelayClient {
    func transport(_ sender: RelayTransport, _ event: RelayClientCore.Event) {
        guard sender === transport else { return }
        switch event {
        case .connected: addressTurns.succeeded()
        case .message: lastRoundTrip = sender.connection.roundTripTime ?? lastRoundTrip
        default: break
        }
        if case .message(.floorTaken) = event, let roundTripTime { core.roundTripTime = roundTripTime }
        take(event)
    }

    func transport(_ sender: RelayTransport, received packet: UnsafeRawBufferPointer) {
        guard sender === transport else { return }
        let now = Instant.now
        carryOut(core.receive(packet, at: now), at: now)
        arm()
        deliver()
    }
}
