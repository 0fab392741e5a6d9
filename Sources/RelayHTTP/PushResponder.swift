// From a request to an answer: the checks in their order, then the relay.
import Cryptography
import FoundationEssentials
import HTTPTypes
import HummingbirdCore
import Logging
import MonotonicTime
import NIOCore
import NIOSSL
import RelayProtocol
import RelayServer

extension PushClient {
    /// Clients by the keys that they show; one that is named twice may push what either says.
    static func byPin(_ list: [PushClient]) -> [PublicKeyPin: PushClient] {
        Dictionary(list.map { ($0.pin, $0) }) { first, second in
            PushClient(pin: first.pin, topics: first.topics + second.topics) ?? first
        }
    }
}

/// Answers the requests of all connections. It holds no state: what it knows of tokens is the relay's.
struct PushResponder: Sendable {
    /// Takes a push that is in order; `RelayServer.push`.
    typealias Deliver = @Sendable (PushRequest) async -> PushVerdict

    /// Who may push what.
    let clients: Current<[PublicKeyPin: PushClient]>
    let limits: PushEndpointLimits
    let logger: Logger
    let deliver: Deliver

    /// Answers one request.
    func respond(_ request: Request, _ writer: consuming ResponseWriter, _ channel: any Channel) async throws {
        let deadline = channel.eventLoop.scheduleTask(in: TimeAmount(limits.requestTime)) {
            channel.close(mode: .all, promise: nil)
        }
        // A stream of HTTP/2 is over when its answer has gone out, for which the client has to give room.
        let isStream = Self.isStream(channel)
        if isStream { channel.closeFuture.whenComplete { _ in deadline.cancel() } }
        defer { if !isStream { deadline.cancel() } }
        let messageID = Self.messageID(request)
        var body = request.body.makeAsyncIterator()
        var response: Response
        var unread = true
        do throws(PushRejection) {
            let head = try await head(of: request, on: channel)
            let payload: [UInt8]
            do {
                payload = try await Self.payload(&body)
            } catch let rejection as PushRejection {
                throw rejection
            } catch {
                // The client is gone.
                return
            }
            unread = false
            try await push(head, payload, messageID)
            response = Response(status: .ok)
        } catch {
            logger.debug(
                "push refused",
                metadata: ["apns-id": "\(messageID)", "status": "\(error.status)", "reason": "\(error.reason)"])
            response = Response(
                status: .init(code: error.status), headers: [.contentType: "application/json"],
                body: .init(byteBuffer: ByteBuffer(string: error.body)))
            switch error {
            case .methodNotAllowed: response.headers[.allow] = "POST"
            case .serviceUnavailable: response.headers[.retryAfter] = "30"
            default: break
            }
        }
        // A client that is answered in the middle of its body resets the stream, and those who do so often are cut off.
        let isRead = try unread ? await skip(&body) : true
        if let name = Self.messageIDName { response.headers[name] = messageID }
        // The answer to HEAD has no body, whatever its status.
        if request.method == .head { response = response.createHeadResponse() }
        try await writer.write(response: response.head, body: response.body)
        if !isRead { channel.close(mode: .all, promise: nil) }
    }

    /// Reads a body that is not wanted; false when there is more of it than anybody could have meant.
    private func skip(_ body: inout RequestBody.AsyncIterator) async throws -> Bool {
        var rest = limits.unwantedBodyBytes
        while let buffer = try await body.next() {
            rest -= buffer.readableBytes
            if rest < 0 { return false }
        }
        return true
    }

    private func head(of request: Request, on channel: any Channel) async throws(PushRejection) -> PushHead {
        var fields: [String: [String]] = [:]
        for field in request.head.headerFields where field.name.canonicalName.hasPrefix("apns-") {
            fields[field.name.canonicalName, default: []].append(field.value)
        }
        return try PushHead(
            method: request.head.method.rawValue, path: request.head.path ?? "", fields: fields,
            from: await sender(on: channel), now: Int64(Date().timeIntervalSince1970))
    }

    private func push(_ head: PushHead, _ payload: [UInt8], _ messageID: String) async throws(PushRejection) {
        try PushPayload.check(payload)
        guard
            let request = PushRequest(
                token: head.token, topic: head.topic, payload: payload, priority: head.priority,
                lifetime: head.lifetime)
        else { throw .badPayload }
        let verdict = await deliver(request)
        logger.info(
            "push received",
            metadata: ["apns-id": "\(messageID)", "token": "\(head.token)", "verdict": "\(verdict)"])
        switch verdict {
        case .accepted: return
        case .unknownToken: throw .badDeviceToken
        case .unregistered(let died): throw .unregistered(since: Self.wallClock(died))
        case .otherTopic: throw .deviceTokenNotForTopic
        case .tooMany: throw .tooManyRequests
        case .unavailable: throw .serviceUnavailable
        case .shutDown: throw .shutdown
        }
    }

    /// Milliseconds since 1970 of an instant that is past.
    private static func wallClock(_ instant: Instant) -> Int64 {
        Int64(Date().timeIntervalSince1970 * 1_000) - (Instant.now - instant).nanoseconds / 1_000_000
    }

    private static func payload(_ body: inout RequestBody.AsyncIterator) async throws -> [UInt8] {
        var payload: [UInt8] = []
        while let buffer = try await body.next() {
            guard payload.count + buffer.readableBytes <= PushPayload.byteCountMaximum else {
                throw PushRejection.payloadTooLarge
            }
            payload += buffer.readableBytesView
        }
        return payload
    }

    // MARK: Names

    private static let messageIDName = HTTPField.Name("apns-id")

    /// The client's `apns-id`, or a new one when it has none that is in order.
    private static func messageID(_ request: Request) -> String {
        guard let name = messageIDName, let given = request.headers[name], PushHead.isMessageID(given) else {
            return UUID().uuidString
        }
        return given
    }

    // MARK: Certificates

    private func sender(on channel: any Channel) async -> PushSender {
        let connection = Self.isStream(channel) ? channel.parent ?? channel : channel
        return sender(try? await connection.nioSSL_peerCertificate().get())
    }

    /// A stream of HTTP/2 is a channel in the connection's, and that one in the listener's.
    private static func isStream(_ channel: any Channel) -> Bool { channel.parent?.parent != nil }

    /// Whose a certificate is.
    func sender(_ certificate: NIOSSLCertificate?) -> PushSender {
        guard let certificate else { return .anonymous }
        guard let bytes = try? certificate.toDERBytes(), let pin = try? PublicKeyPin(certificateDER: bytes),
            let client = clients.get()[pin]
        else { return .stranger }
        return .client(client)
    }
}
