// What the operator looks at: health, metrics, and a page, over plain HTTP/1.1 for this machine.
import HTTPTypes
import Logging
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
        /// The cluster of the relay; nil: it is in none.
        public var cluster: Cluster?

        /// From somewhere.
        public init(
            isServing: @escaping @Sendable () async -> Bool,
            statistics: @escaping @Sendable () async -> RelayStatistics?, cluster: Cluster? = nil
        ) {
            self.isServing = isServing
            self.statistics = statistics
            self.cluster = cluster
        }

        /// Of a relay.
        public init(_ server: RelayServer, cluster: Cluster? = nil) {
            self.init(
                isServing: { await server.isServing }, statistics: { await server.statistics }, cluster: cluster)
        }
    }

    /// How the cluster is.
    public struct Cluster: Sendable {
        /// All of it, for the page.
        public var view: @Sendable () async -> OperatorCluster
        /// What this relay knows of it, for the metrics.
        public var figures: @Sendable () async -> ClusterFigures

        /// From somewhere.
        public init(
            view: @escaping @Sendable () async -> OperatorCluster,
            figures: @escaping @Sendable () async -> ClusterFigures
        ) {
            self.view = view
            self.figures = figures
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
        do {
            try await PlainHTTP.serve(
                address: configuration.listenAddress, port: configuration.listenPort, limits: configuration.limits,
                logger: logger, listening: onListening
            ) { head, _ in
                let answer = await responder.answer(
                    method: head.method.rawValue, path: head.path ?? "",
                    authorization: head.headerFields[.authorization])
                return PlainHTTP.Answer(status: answer.status, headers: Self.headers(answer), body: answer.body)
            }
        } catch let error as ListenFailure {
            throw OperatorEndpointError.listen(
                "\(configuration.listenAddress) port \(configuration.listenPort)", error.reason)
        }
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
