// A link's connections: the attempts, which of them is used, and their events.
import Cryptography
import Logging
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol
import WebSockets

extension RelayClient {
    /// Begins an attempt.
    func connect() {
        attempt += 1
        choose(.connect(hasTLS: webPlace != nil))
    }

    /// Ends the attempt; nothing that still comes of it counts.
    func close(_ code: RelayCloseCode) {
        attempt += 1
        quicAttempt += 1
        probe = nil
        let isSilent = core.isLostInSilence
        if isSilent { addressTurns.failed() }
        for transport in transports.values { transport.close(code) }
        (transport, transports, path) = (nil, [:], nil)
        choose(.closed(isSilent: isSilent))
    }

    /// The connection over QUIC, whatever it is for.
    var quic: QUICTransport? { transports[.quic] as? QUICTransport }

    /// Where links over TLS are taken, as far as is known: from the relay itself, from the invitation, or from an earlier start. Nil:
    /// nowhere.
    private var webPlace: RelayPlace? { knownWebPlace?.place(besides: core.relay.host) }

    private var knownWebPlace: WebPlace? {
        guard openWebSocket != nil else { return nil }
        return core.webPlace ?? core.relay.web ?? resumption.web(of: core.relay, for: identity.pin)
    }

    // MARK: The choice of the path

    /// Tells the rules of the path, and does what they say.
    func choose(_ event: PathChoiceStateMachine.Event) {
        let actions = choice.handle(event, at: .now)
        core.hasOtherPath = choice.hasAlternative
        for action in actions {
            switch action {
            case .open(.quic): connectOverQUIC()
            case .open(.tls): connectOverTLS()
            case .close(let kind): drop(kind)
            case .use(let kind): use(kind)
            case .join: joinAgain()
            case .moved: moved()
            case .stay: call(.moveEnded)
            case .fail(let error): take(.connectionEnded(error))
            }
        }
        armChoice()
    }

    /// After each event of the rules: whether it is quiet, and whether there may be another path by now.
    func followChoice() {
        if !choice.hasTLS, openWebSocket != nil, core.webPlace != nil {
            choice.hasTLS = true
            core.hasOtherPath = choice.hasAlternative
        }
        if choice.wantsQuiet, core.isQuiet != isQuiet {
            isQuiet = core.isQuiet
            later { [attempt] client in
                if attempt == client.attempt { client.choose(.quiet(client.core.isQuiet)) }
            }
        }
    }

    private func armChoice() {
        choiceTimer?.cancel()
        choiceTimer = choice.nextDeadline.map { deadline in
            schedule(at: deadline) { $0.choose(.deadline) }
        }
    }

    private func drop(_ kind: LinkKind) {
        if kind == .quic { quicAttempt += 1 }
        guard let dropped = transports.removeValue(forKey: kind) else { return }
        dropped.close(.none)
        forget(dropped)
    }

    /// It was the one on which early data may have gone.
    func forget(_ dropped: any RelayTransport) {
        guard dropped === transport else { return }
        transport = nil
        call(.joinLost)
    }

    private func use(_ kind: LinkKind) {
        guard let used = transports[kind] else { return }
        transport = used
        core.isReliable = used.isReliable
        isQuiet = false
        note(path: kind)
        take(.connected)
        if used === transport { used.keepAlive = core.keepAlive }
    }

    private func joinAgain() {
        guard let next = transports[.quic] else { return }
        logger.info("moving back to QUIC")
        call(.moveBegan)
        next.keepAlive = RelayClientStateMachine.joinKeepAlive
        _ = next.send(core.joinMessage)
    }

    private func moved() {
        // What is still told of the old one does not count, nor do questions about it.
        attempt += 1
        probe = nil
        let old = transports.removeValue(forKey: .tls)
        transport = transports[.quic]
        core.isReliable = false
        old?.close(.none)
        note(path: .quic)
    }

    private func note(path kind: LinkKind) {
        let proxy = webPlace.flatMap { network.proxy.proxy(for: $0.host) }
        let why: RelayPathReason = network.transport == .tls ? .configured : .noAnswerOverUDP
        let path: RelayPath = kind == .quic ? .quic : .tls(proxy: proxy.map { "\($0)" }, why)
        self.path = path
        switch path {
        case .quic: logger.info("path to the relay", metadata: ["path": "\(path)"])
        case .tls(_, let why): logger.info("path to the relay", metadata: ["path": "\(path)", "why": "\(why)"])
        }
    }

    /// The connection is given up, because nothing is heard on it.
    func lost(_ lost: any RelayTransport, _ error: RelayLinkError) {
        guard lost === transport else { return }
        addressTurns.failed()
        take(choice.hasAlternative ? .pathLost : .connectionEnded(error))
    }

    // MARK: Attempts

    /// Begins a connection over QUIC, at the next of the relay's addresses.
    private func connectOverQUIC() {
        quicAttempt += 1
        var relay = core.relay
        let place = sentTo ?? relay.place
        relay.place = place
        if let address = SocketAddress(relay.host, port: relay.port) {
            know([address])
            addressTurns.tries(address)
            compareWithHome([address], of: place)
            return connect(to: address, of: relay)
        }
        let (number, host, port) = (quicAttempt, relay.host, relay.port)
        lookUps += 1
        Task { [relay] in
            let result: Result<[SocketAddress], QUICError>
            do throws(QUICError) {
                result = .success(try await resolve(host, port))
            } catch {
                result = .failure(error)
            }
            lookUps -= 1
            // Another attempt, or a leave, may have come meanwhile.
            guard number == quicAttempt, transports[.quic] == nil else { return }
            switch result {
            case .success(let addresses):
                know(addresses)
                // Those without a way would only use up an attempt's time; a way may come while one is made, though.
                let reachable = known.addresses.filter { route($0) != nil }
                if core.isAway || place != core.relay.place {
                    compareWithHome(addresses, of: place)
                } else {
                    homeAddresses = Set(addresses)
                    take(.addressesFound(reachable.count))
                    watchIdle()
                }
                guard let address = addressTurns.next(of: reachable.isEmpty ? known.addresses : reachable) else {
                    return choose(.ended(.quic, .unreachable("'\(host)' has no address"), isSilent: false))
                }
                connect(to: address, of: relay)
            case .failure(let error): choose(.ended(.quic, .unreachable("\(error)"), isSilent: false))
            }
        }
    }

    private func connect(to address: SocketAddress, of relay: InvitationLink) {
        do throws(QUICError) {
            let transport = try QUICTransport(
                address: address, relay: relay, identity: identity,
                resumption: resumption.state(of: relay, for: identity.pin), expectedRoundTrip: lastRoundTrip,
                client: self, logger: logger)
            transports[.quic] = transport
            // On a link that has none yet, what is sent early goes here.
            guard self.transport == nil else { return }
            self.transport = transport
            core.isReliable = false
            if transport.offersEarlyData { offerEarlyData() }
        } catch {
            later { [quicAttempt] client in
                guard quicAttempt == client.quicAttempt else { return }
                client.choose(.ended(.quic, .system("\(error)"), isSilent: false))
            }
        }
    }

    /// A successor may be another node of the cluster that the invitation's name leads to. The place to which a link only moves is none.
    private func compareWithHome(_ addresses: [SocketAddress], of place: RelayPlace) {
        guard core.isAway, place == core.relay.place, !addresses.isEmpty, homeAddresses.isSuperset(of: addresses) else {
            return
        }
        later { $0.call(.placeCovered) }
    }

    /// The host says that nobody has the port. That ends an attempt where another address has its turn. A link is given up only when the relay
    /// does not answer either, because the host's answer can be forged.
    func wasRefused(_ sender: QUICTransport) {
        guard transports[.quic] === sender, core.hasAlternative else { return }
        if sender.wasConnected, core.isReady {
            if sender === transport { verify(path: true) }
        } else if core.hasOtherAddresses {
            sender.close(.none)
            ended(sender, .unreachable("no relay listens at \(sender.address)"))
        } else {
            // The relay may be restarting: QUIC is tried on.
            choose(.refused)
        }
    }

    /// Looks now and then whether the relay is still there, from the first time that it has several addresses.
    private func watchIdle() {
        guard core.hasOtherAddresses, idleTimer == nil else { return }
        let (asks, next) = IdleWatch.look(heard: core.isReady ? transport?.lastHeard : nil, at: .now)
        if asks { verify(path: true) }
        idleTimer = schedule(at: next) { client in
            client.idleTimer = nil
            client.watchIdle()
        }
    }

    /// Begins a link over TLS. Names are looked up on the way, by a proxy if there is one.
    private func connectOverTLS() {
        guard let openWebSocket, let place = webPlace else { return }
        // A place with a host of its own stays the same, whichever relay of a cluster the client is sent to.
        let target = WebLinkTarget(share: knownWebPlace?.host == nil ? nil : core.relay.channel.share())
        let request = WebSocketRequest(
            host: place.host, port: place.port, path: target.text, subprotocol: WebLinkLimits.subprotocol,
            proxy: network.proxy.proxy(for: place.host), messageBytesMaximum: WebLinkLimits.messageBytes)
        transports[.tls] = WebTransport(
            request, by: openWebSocket, relay: core.relay, identity: identity, client: self, logger: logger)
    }

    // MARK: What the transports tell

    func transport(_ sender: any RelayTransport, _ event: RelayClientCore.Event) {
        guard transports[sender.kind] === sender else { return }
        if case .connected = event {
            if sender.kind == .quic { addressTurns.succeeded() }
            return choose(.ready(sender.kind))
        }
        guard sender === transport, !choice.isRacing else { return candidate(sender, event) }
        switch event {
        case .connectionEnded(let error): return ended(sender, error)
        case .message: lastRoundTrip = sender.roundTripTime ?? lastRoundTrip
        default: break
        }
        if case .message(.successor(let place)) = event {
            note(successor: place, isDraining: core.isReady)
            tellOfHost(.sent)
        }
        switch event {
        case .message(.floorTaken), .message(.floorGranted):
            if let roundTripTime { core.roundTripTime = roundTripTime }
        default: break
        }
        take(event)
        // What came may have begun or ended the wait for the relay's answer; or the connection.
        if sender === transport { sender.keepAlive = core.keepAlive }
    }

    /// An event of a connection that does not serve the link.
    private func candidate(_ sender: any RelayTransport, _ event: RelayClientCore.Event) {
        switch event {
        case .connectionEnded(let error): ended(sender, error)
        case .violation(let what):
            sender.close(.protocolViolation)
            ended(sender, .protocolViolation(what))
        case .message(.welcome(let welcome)) where choice.isMoving: welcomed(.welcome(welcome), sender)
        case .message(.pushWelcome(let welcome)) where choice.isMoving: welcomed(.pushWelcome(welcome), sender)
        case .message(.joinRefused(let refusal)) where choice.isMoving:
            sender.close(.joinRefused)
            ended(sender, .closedByRelay(refusal.phrase))
        case .message(.successor(let place)) where choice.isMoving:
            note(successor: place, isDraining: false)
            sentTo = place
            choose(.sentOn)
            sentTo = nil
        default: break
        }
    }

    private func welcomed(_ welcome: ServerMessage, _ sender: any RelayTransport) {
        choose(.welcomed)
        take(.moved(welcome))
        if sender === transport { sender.keepAlive = core.keepAlive }
    }

    private func ended(_ sender: any RelayTransport, _ error: RelayLinkError) {
        transports[sender.kind] = nil
        if choice.isRacing { forget(sender) }
        let isSilent =
            switch error {
            case .unreachable, .lost: true
            default: false
            }
        if choice.hasAlternative {
            logger.info(
                "connection ended", metadata: ["over": sender.kind == .quic ? "QUIC" : "TLS", "why": "\(error)"])
        }
        choose(.ended(sender.kind, error, isSilent: isSilent))
    }

    func transport(_ sender: any RelayTransport, received packet: UnsafeRawBufferPointer) {
        guard sender === transport else { return }
        take(packet)
    }
}
