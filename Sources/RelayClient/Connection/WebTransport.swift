// One link over TLS to a relay: a WebSocket, the handshake inside it, and the same messages and packets as over QUIC.
import Cryptography
import Logging
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol
import WebSockets

/// The connection over TLS of one attempt of a `RelayClient`. It is `Sendable` only so that the client may be handed it:
/// all use is on the client's loop. The WebSocket does the work of TCP and TLS on another thread.
final class WebTransport: RelayTransport, @unchecked Sendable {
    private enum Phase {
        case opening
        case greeting(WebLinkClientHandshake, at: Instant)
        case proven(WebLinkCipher)
        case closed
    }

    let kind = LinkKind.tls
    /// Answers that may be under way at one time.
    private static let answersMaximum = 16

    private let relay: InvitationLink
    private let identity: Identity
    private let loop: EventLoop
    weak let client: RelayClient?
    let logger: Logger
    private var socket: (any WebSocket)?
    private var phase = Phase.opening
    /// The most bytes of control messages that wait.
    private static let controlBytesMaximum = 256 * 1_024
    private var outbox = WebOutbox(.init(controlBytes: controlBytesMaximum))
    /// Media packets that went out.
    private var mediaSent: UInt64 = 0
    private var acknowledgements = WebAcknowledgements()
    private var pulse: WebPulse
    private var timer: EventLoop.Timer?
    private var answers: [UInt32: AnswerReader] = [:]
    private var lastAnswer: UInt32 = 0
    private var lastNumber: UInt64 = 0

    /// Begins to connect to the relay's place for links over TLS.
    init(
        _ request: WebSocketRequest, by open: WebSocketOpener, relay: InvitationLink, identity: Identity,
        client: RelayClient, logger: Logger
    ) {
        (self.relay, self.identity, self.logger) = (relay, identity, logger)
        (loop, self.client) = (client.loop, client)
        pulse = WebPulse(keepAlive: RelayClientStateMachine.keepAlive, at: .now)
        socket = open(request, client.loop) { [weak self] event in self?.handle(event) }
    }

    /// Closes the socket when nobody uses it any more.
    deinit { socket?.close(code: 1_001) }

    // MARK: RelayTransport

    var lastHeard: Instant? { pulse.lastHeard }
    var roundTripTime: Duration? { pulse.roundTripTime }
    var keepAlive: Duration {
        get { pulse.keepAlive }
        set {
            guard newValue != pulse.keepAlive else { return }
            pulse.keepAlive = newValue
            arm()
        }
    }
    var isClosed: Bool { socket == nil }

    func send(_ message: ClientMessage) -> Bool {
        guard case .proven = phase else { return true }
        guard outbox.add(control: message.encoded()) else { return false }
        pump()
        return true
    }

    func send(_ datagram: [UInt8]) -> UInt64? {
        guard case .proven = phase else { return nil }
        lastNumber += 1
        outbox.add(media: datagram, at: .now)
        pump()
        return lastNumber
    }

    /// The same message comes as a control message, which is not lost here.
    func send(loosely message: ClientMessage) {}

    func send(outsideQUIC packet: [UInt8]) {}

    func awaitAnswer(_ isAwaited: Bool) {}

    func sendRepair(_ packet: [UInt8]) -> Bool {
        guard outbox.controlCapacity >= Self.controlBytesMaximum / 2 else { return false }
        return send(.mediaRepair(packet))
    }

    /// A connection of TCP does not move: whether it still leads to the relay, a ping tells.
    func networkChanged(_ news: NetworkChanges.News) { client?.assumeIsolated { $0.verify() } }

    func close(_ code: RelayCloseCode) {
        guard let socket else { return }
        flush()
        over()
        socket.close(code: WebLinkLimits.closeCodeBase + UInt16(clamping: code.rawValue))
    }

    private func over() {
        socket = nil
        phase = .closed
        timer?.cancel()
        timer = nil
    }

    // MARK: Out

    /// Hands over what the kernel takes soon. The rest waits here, where it can be overtaken.
    private func pump() {
        guard let socket else { return }
        while socket.hasRoom, hand(to: socket) {}
    }

    /// Hands over all control messages, before a close.
    private func flush() {
        guard let socket else { return }
        while outbox.controlCapacity < Self.controlBytesMaximum, hand(to: socket) {}
    }

    private func hand(to socket: any WebSocket) -> Bool {
        guard case .proven(let cipher) = phase, let item = outbox.next(at: .now) else { return false }
        let message: WebSealedMessage
        switch item {
        case .sealed(let other): message = other
        case .media(let packet):
            // What was dropped was before it.
            mediaSent += 1
            acknowledgements.sent(mediaSent + UInt64(outbox.mediaDropped))
            message = .media(packet)
        }
        do throws(WebLinkError) {
            socket.send(try cipher.seal(message))
        } catch {
            // Not at once: whoever sends is in the midst of something.
            loop.execute { [weak self] in self?.end(.lost("\(error)")) }
            return false
        }
        pulse.sent(at: .now)
        return true
    }

    private func arm() {
        guard case .proven = phase else { return }
        let deadline = pulse.nextDeadline
        if let timer, timer.isPending { timer.cancel() }
        timer = loop.schedule(at: deadline) { [weak self] in self?.beat() }
    }

    private func beat() {
        switch pulse.due(at: .now) {
        case nil: break
        case .ping(let number):
            outbox.add(ping: number)
            pump()
        case .gone: return end(.lost("nothing was heard from the relay"))
        }
        arm()
    }

    // MARK: In

    private func handle(_ event: WebSocketEvent) {
        guard socket != nil else { return }
        switch event {
        case .opened: greet()
        case .message(let bytes):
            pulse.heard(at: .now)
            receive(bytes)
        case .room: pump()
        case .ended(let how): end(Self.error(how))
        }
    }

    private func greet() {
        do throws(WebLinkError) {
            let handshake = try WebLinkClientHandshake(identity: identity, relay: relay.pin)
            phase = .greeting(handshake, at: .now)
            socket?.send(handshake.hello)
        } catch {
            end(.system("\(error)"))
        }
    }

    private func receive(_ bytes: [UInt8]) {
        switch phase {
        case .opening, .closed: break
        case .greeting(let handshake, let since): prove(handshake, bytes, since)
        case .proven(let cipher):
            switch bytes.first {
            case WebLinkCipher.kind: open(bytes, cipher)
            case let first? where RTPHeader.isRTP(firstByte: first):
                bytes.withUnsafeBytes { packet in
                    // The call returns before the packet goes.
                    nonisolated(unsafe) let packet = packet
                    client?.assumeIsolated { $0.transport(self, received: packet) }
                }
            default: break
            }
        }
    }

    private func prove(_ handshake: WebLinkClientHandshake, _ bytes: [UInt8], _ since: Instant) {
        do throws(WebLinkError) {
            let (proof, cipher) = try handshake.receive(bytes)
            phase = .proven(cipher)
            socket?.send(proof)
            pulse.note(roundTrip: .now - since)
            arm()
            tell(.connected)
        } catch .wrongRelayKey {
            end(.wrongRelayKey)
        } catch {
            end(.protocolViolation("\(error)"))
        }
    }

    private func open(_ bytes: [UInt8], _ cipher: WebLinkCipher) {
        let message: WebSealedMessage?
        do throws(WebLinkError) {
            message = try cipher.open(bytes)
        } catch {
            return tell(.violation("\(error)"))
        }
        switch message {
        case nil: logger.debug("sealed message of an unknown kind ignored")
        case .control(let bytes): tell(message: bytes)
        case .acknowledgement(let count):
            do throws(WebAcknowledgements.Impossible) {
                if let newest = try acknowledgements.take(count) { tell(.mediaAcknowledged(newest)) }
            } catch {
                tell(.violation("it acknowledges packets that were not sent"))
            }
        case .ping(let number):
            outbox.add(pong: number)
            pump()
        case .pong(let number): pulse.pong(number, at: .now)
        case .answer(let number, let isEnd, let bytes): take(answer: number, bytes, isEnd: isEnd)
        case .media: tell(.violation("a message that only a client sends"))
        }
    }

    private func take(answer number: UInt32, _ bytes: [UInt8], isEnd: Bool) {
        if answers[number] == nil {
            guard number > lastAnswer else { return tell(.violation("an answer out of order")) }
            guard answers.count < Self.answersMaximum else { return tell(.violation("too many answers at once")) }
            lastAnswer = number
        }
        let answer = answers[number] ?? AnswerReader()
        answers[number] = isEnd ? nil : answer
        if let event = answer.take(bytes, isEnd: isEnd) { tell(event) }
    }

    private func end(_ error: RelayLinkError) {
        guard let socket else { return }
        tell(.connectionEnded(error))
        over()
        socket.close(code: WebLinkLimits.closeCodeBase + UInt16(clamping: RelayCloseCode.protocolViolation.rawValue))
    }

    private static func error(_ end: WebSocketEnd) -> RelayLinkError {
        switch end {
        case .failed(let error): return .unreachable("\(error)")
        case .closed(let code?, let reason) where code >= WebLinkLimits.closeCodeBase:
            return RelayLinkError(closedWith: UInt64(code - WebLinkLimits.closeCodeBase), reason)
        case .closed(let code, let reason):
            return .closedByRelay(reason.isEmpty ? "code \(code.map { "\($0)" } ?? "none")" : reason)
        case .lost(let why): return .lost(why)
        case .violation(let what): return .protocolViolation(what)
        }
    }
}
