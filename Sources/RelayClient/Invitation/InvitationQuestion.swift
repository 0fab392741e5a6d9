// Requests the invitation to a channel nearby from its host: QUIC connections to the addresses where it may be.
import Cryptography
import Logging
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol

/// One question for an invitation, from its beginning to its answer. All use is on its loop, which makes it `Sendable`.
public final class InvitationQuestion: @unchecked Sendable {
    private let loop: EventLoop
    private let identity: Identity
    private let pin: PublicKeyPin
    private let places: [RelayPlace]
    private let logger: Logger
    private var machine: InvitationQuestionStateMachine
    private var attempts: [Int: Attempt] = [:]
    private var timer: EventLoop.Timer?
    private var answer: (@Sendable (Result<InvitationLink, InvitationQuestionError>) -> Void)?

    /// A question that is not asked yet.
    ///
    /// - Parameters:
    ///   - channel: A channel nearby.
    ///   - places: Where its host may be, best first; at most 8 are asked.
    ///   - pin: The host's key, as it announces it.
    ///   - credentials: What the channel may want to know of this end.
    ///   - identity: This end's key.
    ///   - loop: What it lives on.
    public init(
        for channel: ChannelID, at places: [RelayPlace], pin: PublicKeyPin,
        with credentials: InvitationCredentials = .init(), identity: Identity, loop: EventLoop, logger: Logger
    ) {
        (self.places, self.pin, self.identity) = (places, pin, identity)
        (self.loop, self.logger) = (loop, logger)
        machine = InvitationQuestionStateMachine(
            channel: channel, pin: pin, places: places, client: MemberID(identity.pin), credentials: credentials)
    }

    /// Gives the question up: `ask` throws `cancelled`, when it has not ended before.
    public func cancel() {
        loop.execute { [weak self] in self?.handle(.cancel) }
    }

    /// Asks. Takes 5 s at most, and up to two minutes more while the channel's creator is asked.
    ///
    /// - Throws: `InvitationQuestionError`.
    public func ask() async throws(InvitationQuestionError) -> InvitationLink {
        let result = await withCheckedContinuation { continuation in
            loop.execute { [self] in
                answer = { continuation.resume(returning: $0) }
                handle(.start)
            }
        }
        return try result.get()
    }

    private func handle(_ event: InvitationQuestionStateMachine.Event) {
        for action in machine.handle(event, at: .now) {
            switch action {
            case .ask(let place, let request): connect(place, asking: request)
            case .send(let place, let message): attempts[place]?.send(message)
            case .finish(let result): finish(result)
            }
        }
        timer?.cancel()
        timer = machine.nextDeadline.map { deadline in
            loop.schedule(at: deadline) { [weak self] in self?.handle(.deadline) }
        }
    }

    private func connect(_ number: Int, asking request: ClientMessage.InvitationRequest) {
        // A failure is told after the rules' present turn.
        func fail(_ error: InvitationQuestionError) {
            loop.execute { [weak self] in self?.handle(.failed(place: number, error)) }
        }
        let place = places[number]
        guard let address = SocketAddress(place.host, port: place.port) else {
            return fail(.unreachable("\(place.host) is not an address"))
        }
        do throws(QUICError) {
            attempts[number] = try Attempt(
                to: address, pin: pin, identity: identity, asking: request, loop: loop, logger: logger
            ) { [weak self] result in
                switch result {
                case .success(let message): self?.handle(.message(place: number, message))
                case .failure(let error): self?.handle(.failed(place: number, error))
                }
            }
        } catch {
            fail(.system("\(error)"))
        }
    }

    private func finish(_ result: Result<InvitationLink, InvitationQuestionError>) {
        for attempt in attempts.values { attempt.close() }
        attempts = [:]
        answer?(result)
        answer = nil
    }
}

extension InvitationQuestion {
    /// The connection to one address.
    private final class Attempt: QUICConnectionDelegate {
        private let connection: QUICConnection
        private let request: ClientMessage.InvitationRequest
        private let tell: (Result<ServerMessage, InvitationQuestionError>) -> Void
        private var stream: QUICStream?
        private var decoder = MessageDecoder()
        private var isClosed = false

        init(
            to address: SocketAddress, pin: PublicKeyPin, identity: Identity,
            asking request: ClientMessage.InvitationRequest, loop: EventLoop, logger: Logger,
            tell: @escaping (Result<ServerMessage, InvitationQuestionError>) -> Void
        ) throws(QUICError) {
            connection = try connectToRelay(at: address, pin: pin, identity: identity, loop: loop, logger: logger)
            self.request = request
            self.tell = tell
            connection.delegate = self
        }

        func close() {
            guard !isClosed else { return }
            isClosed = true
            connection.delegate = nil
            connection.endpoint.close(code: RelayCloseCode.none.rawValue)
        }

        private func told(_ result: Result<ServerMessage, InvitationQuestionError>) {
            guard !isClosed else { return }
            tell(result)
        }

        func send(_ message: ClientMessage) {
            do throws(QUICError) {
                try stream?.write(message.framed())
            } catch {
                told(.failure(.system("\(error)")))
            }
        }

        func connectionDidBecomeReady(_ connection: QUICConnection) {
            do throws(QUICError) {
                let stream = try connection.openStream()
                self.stream = stream
                try stream.write(ClientMessage.invitationRequest(request).framed())
            } catch {
                told(.failure(.system("\(error)")))
            }
        }

        func connection(_ connection: QUICConnection, streamDidBecomeReadable stream: QUICStream) {
            guard stream === self.stream else { return }
            let (bytes, isEnd) = stream.read()
            var messages: [[UInt8]] = []
            do throws(MessageDecoder.Failure) {
                try decoder.feed(bytes) { messages.append($0) }
            } catch {
                return told(.failure(.badAnswer("\(error)")))
            }
            for message in messages {
                do throws(RelayMessageError) {
                    told(.success(try ServerMessage(parsing: message)))
                } catch {
                    told(.failure(.badAnswer("\(error)")))
                }
            }
            if isEnd { told(.failure(.badAnswer("the connection ended"))) }
        }

        func connection(_ connection: QUICConnection, didClose reason: QUICCloseReason) {
            switch reason {
            case .peerKeyRejected: told(.failure(.wrongKey))
            // An older relay takes the request for a breach of the protocol.
            case .closedByPeer(let code, _) where code == RelayCloseCode.protocolViolation.rawValue:
                told(.failure(.notOpen("it does not support the request")))
            case .handshakeTimeout, .idleTimeout: told(.failure(.unreachable("no answer")))
            default: told(.failure(.badAnswer("\(reason)")))
            }
        }
    }
}
