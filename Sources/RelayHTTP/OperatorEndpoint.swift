// What the operator looks at: health, metrics, and a page, over plain HTTP/1.1 for this machine.
import HTTPTypes
import HummingbirdCore
import Logging
import NIOCore
import RelayServer
import ServiceLifecycle

/// Why the operator's endpoint does not run.
public enum OperatorEndpointError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The port cannot be opened.
    case listen(String, String)

    /// What is wrong and what to do.
    public var description: String {
        switch self {
        case .listen(let address, let reason):
            "the operator's page cannot be served on TCP \(address): \(reason); "
                + "see what else runs there, or choose another address with 'listen' in [operator]"
        }
    }
}

/// Answers `/healthz`, `/metrics`, `/status.json` and `/`. It has one thread of its own, from `run` until that returns.
public struct OperatorEndpoint: Service {
    /// How the relay is.
    public struct Source: Sendable {
        /// Whether members can join.
        public var isServing: @Sendable () async -> Bool
        /// Everything; nil: it does not run.
        public var statistics: @Sendable () async -> RelayStatistics?

        /// From somewhere.
        public init(
            isServing: @escaping @Sendable () async -> Bool,
            statistics: @escaping @Sendable () async -> RelayStatistics?
        ) {
            self.isServing = isServing
            self.statistics = statistics
        }

        /// Of a relay.
        public init(_ server: RelayServer) {
            self.init(isServing: { await server.isServing }, statistics: { await server.statistics })
        }
    }

    private let configuration: OperatorEndpointConfiguration
    private let source: Source
    private let logger: Logger
    private let onListening: @Sendable (UInt16) async -> Void

    /// An endpoint that does not listen yet; `onListening` is called once with the port.
    public init(
        configuration: OperatorEndpointConfiguration, source: Source, logger: Logger,
        onListening: @escaping @Sendable (UInt16) async -> Void = { _ in }
    ) {
        self.configuration = configuration
        self.source = source
        self.logger = logger
        self.onListening = onListening
    }

    /// Serves until the task is cancelled or the service group shuts down.
    ///
    /// - Throws: `OperatorEndpointError.listen`.
    public func run() async throws {
        let configuration = configuration
        let responder = OperatorResponder(
            token: configuration.token, version: configuration.version, source: source)
        let decoder = HTTP1Channel.Configuration.DecoderConfiguration(
            maxHeaderFieldSize: configuration.headBytes, maxHeaderListSize: configuration.headBytes,
            maxHeaderFieldCount: 64)
        let channel = HTTP1Channel(
            responder: { request, writer, channel in
                channel.triggerUserOutboundEvent(ConnectionWatch.Event.requestBegan, promise: nil)
                let isRead = try await Self.skip(request.body, limit: configuration.unwantedBodyBytes)
                let answer = await responder.answer(
                    method: request.head.method.rawValue, path: request.head.path ?? "",
                    authorization: request.headers[.authorization])
                var response = Response(status: .init(code: answer.status), headers: Self.headers(answer))
                response.body = .init(byteBuffer: ByteBuffer(string: answer.body))
                if request.method == .head { response = response.createHeadResponse() }
                try await writer.write(response: response.head, body: response.body)
                if !isRead { channel.close(mode: .all, promise: nil) }
                channel.triggerUserOutboundEvent(ConnectionWatch.Event.requestEnded, promise: nil)
            },
            configuration: HTTP1Channel.Configuration(
                idleTimeout: TimeAmount(configuration.idleTime), httpDecoderConfiguration: decoder))
        do {
            try await HTTPListener.serve(
                channel, address: configuration.listenAddress, port: configuration.listenPort,
                admission: .init(
                    connections: configuration.connections,
                    connectionsPerAddress: configuration.connectionsPerAddress, silence: .zero),
                timeouts: .init(
                    requestTime: configuration.requestTime,
                    // One answer at a time is written, however long.
                    unreadTime: configuration.requestTime, unreadBytes: nil), logger: logger, listening: onListening)
        } catch let error as ListenFailure {
            throw OperatorEndpointError.listen(
                "\(configuration.listenAddress) port \(configuration.listenPort)", error.reason)
        }
    }

    /// Reads a body that is not wanted; false when there is more of it than anybody could have meant.
    private static func skip(_ body: RequestBody, limit: Int) async throws -> Bool {
        var rest = limit
        for try await buffer in body {
            rest -= buffer.readableBytes
            if rest < 0 { return false }
        }
        return true
    }

    private static func headers(_ answer: OperatorResponder.Answer) -> HTTPFields {
        var headers: HTTPFields = [
            .contentType: answer.mediaType, .cacheControl: "no-store", .xContentTypeOptions: "nosniff",
            .contentSecurityPolicy: OperatorPage.contentSecurityPolicy,
        ]
        switch answer.status {
        case 401: headers[.wwwAuthenticate] = "Bearer"
        case 405: headers[.allow] = "GET, HEAD"
        default: break
        }
        return headers
    }
}
