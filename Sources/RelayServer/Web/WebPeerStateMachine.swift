// One connection over TLS, from its hello to its end. Pure rules; `RelayWebWorker` carries them out.
import Cryptography
import MonotonicTime
import RelayProtocol

/// The relay's end of a link over TLS (docs/relay-protocol.md, section 21).
struct WebPeerStateMachine {
    /// What may happen.
    enum Event {
        /// A WebSocket message came.
        case received([UInt8])
        /// The rules have a control message for it.
        case send([UInt8])
        /// An answer that would be a stream over QUIC.
        case answer([UInt8])
        /// A media packet for it.
        case media([UInt8])
        /// The socket takes bytes again.
        case writable
        /// `nextDeadline` has come, or may have.
        case deadline
    }

    /// What is to be done.
    enum Action: Equatable {
        /// Write a WebSocket message.
        case write([UInt8])
        /// It is who it says.
        case connected(PublicKeyPin)
        /// A control message came, in protobuf.
        case message([UInt8])
        /// A media packet came, or what should be one.
        case media([UInt8])
        /// An answer did not fit.
        case answerNotTaken
        /// Close the connection.
        case close(RelayCloseCode, String)
        /// For the log and the counters: why it failed.
        case note(WebLinkError)
    }

    private enum State {
        case greeting(WebLinkServerHandshake)
        case proving(WebLinkServerHandshake)
        case open(WebLinkCipher)
        case over
    }

    private var state: State
    private var outbox: WebOutbox
    private var mediaRead: UInt32 = 0
    private var acknowledged: UInt32 = 0
    private var acknowledgeAt: Instant?
    private var proofDue: Instant?
    private var heardAt: Instant

    init(key: SigningKey, limits: RelayLimits, at now: Instant) {
        state = .greeting(WebLinkServerHandshake(key: key))
        outbox = WebOutbox(
            .init(
                controlBytes: limits.controlBacklog, answers: limits.repairAnswers, answerBytes: limits.answerBytes))
        proofDue = now + WebLinkLimits.proofTimeout
        heardAt = now
    }

    /// Media packets that were dropped because its connection is too slow.
    var mediaDropped: Int { outbox.mediaDropped }

    /// When `.deadline` must be delivered.
    var nextDeadline: Instant? {
        if case .over = state { return nil }
        let idle = heardAt + WebLinkLimits.idleTimeout
        return [proofDue, acknowledgeAt, idle].compactMap(\.self).min()
    }

    /// Takes an event and says what is to be done.
    ///
    /// - Parameters:
    ///   - isWritable: Whether the socket takes bytes; asked again after each message that is written.
    ///   - mayAcknowledge: Whether the relay's rules keep up: a talker concludes from an acknowledgement that it is heard.
    mutating func handle(
        _ event: Event, at now: Instant, mayAcknowledge: Bool = true, isWritable: () -> Bool, _ act: (Action) -> Void
    ) {
        if case .over = state { return }
        switch event {
        case .received(let message):
            heardAt = now
            receive(message, at: now, act)
        case .send(let message):
            guard case .open = state else { break }
            guard outbox.add(control: message) else {
                return end(.internalError, "control messages are not read", act)
            }
        case .answer(let bytes):
            guard case .open = state, outbox.add(answer: bytes) else { return act(.answerNotTaken) }
        case .media(let packet):
            guard case .open = state else { break }
            outbox.add(media: packet, at: now)
        case .writable: break
        case .deadline: deadline(at: now, act)
        }
        acknowledge(at: now, mayAcknowledge)
        pump(at: now, isWritable, act)
    }

    private mutating func receive(_ message: [UInt8], at now: Instant, _ act: (Action) -> Void) {
        do throws(WebLinkError) {
            switch state {
            case .greeting(var handshake):
                let answer = try handshake.receive(hello: message)
                state = .proving(handshake)
                act(.write(answer))
            case .proving(var handshake):
                let (pin, cipher) = try handshake.receive(proof: message)
                state = .open(cipher)
                proofDue = nil
                act(.connected(pin))
            case .open(let cipher): try receive(message, cipher, at: now, act)
            case .over: break
            }
        } catch {
            act(.note(error))
            end(.protocolViolation, error.description, act)
        }
    }

    private mutating func receive(
        _ message: [UInt8], _ cipher: WebLinkCipher, at now: Instant, _ act: (Action) -> Void
    ) throws(WebLinkError) {
        switch message.first {
        case WebLinkCipher.kind:
            switch try cipher.open(message) {
            case .control(let bytes): act(.message(bytes))
            case .media(let packet):
                mediaRead &+= 1
                if acknowledgeAt == nil { acknowledgeAt = now + WebLinkLimits.acknowledgementDelay }
                act(.media(packet))
            case .ping(let number): outbox.add(pong: number)
            case .pong, nil: break
            case .acknowledgement, .answer: throw .malformed("a message that only a relay sends")
            }
        case let byte? where RTPHeader.isRTP(firstByte: byte): throw .malformed("media that are not sealed")
        case nil: throw .malformed("an empty message")
        default: break
        }
    }

    private mutating func acknowledge(at now: Instant, _ mayAcknowledge: Bool) {
        guard let due = acknowledgeAt else { return }
        let isDue = now >= due || mediaRead &- acknowledged >= UInt32(WebLinkLimits.acknowledgementThreshold)
        guard isDue else { return }
        guard mayAcknowledge else {
            acknowledgeAt = now + WebLinkLimits.acknowledgementDelay
            return
        }
        acknowledgeAt = nil
        acknowledged = mediaRead
        outbox.set(acknowledgement: mediaRead)
    }

    private mutating func deadline(at now: Instant, _ act: (Action) -> Void) {
        if let proofDue, now >= proofDue { return end(.protocolViolation, "no proof of a key in time", act) }
        if now - heardAt >= WebLinkLimits.idleTimeout { end(.none, "nothing was heard", act) }
    }

    private mutating func pump(at now: Instant, _ isWritable: () -> Bool, _ act: (Action) -> Void) {
        guard case .open(let cipher) = state else { return }
        while !outbox.isEmpty, isWritable(), let item = outbox.next(at: now) {
            switch item {
            case .media(let packet): act(.write(packet))
            case .sealed(let message):
                do throws(WebLinkError) {
                    act(.write(try cipher.seal(message)))
                } catch {
                    act(.note(error))
                    return end(.internalError, error.description, act)
                }
            }
        }
    }

    private mutating func end(_ code: RelayCloseCode, _ reason: String, _ act: (Action) -> Void) {
        state = .over
        act(.close(code, reason))
    }
}
