// What the operator looks at: health, metrics, and a page, over plain HTTP/1.1 for this machine.
import HTTPTypes
import Logging
import RelayServer
import ServiceLifecycle

/// Answers `/healthz`, `/metrics`, `/status.json` and `/`. It has one thread of its own, from `run` until that returns. Everything that it
/// tells is the relay's.
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

    /// The page, as it is in Page/. It loads nothing, and asks only this relay; its style and script are in it.
    static let page = String(decoding: PackageResources.operator_html, as: UTF8.self)
    private static let contentSecurityPolicy =
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
        + "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

    private var configuration: PlainHTTPConfiguration
    private let version: String
    private let source: Source
    private let logger: Logger
    private let onListening: @Sendable (UInt16) async -> Void

    /// An endpoint that does not listen yet.
    ///
    /// - Parameters:
    ///   - version: The program's.
    ///   - onListening: Called once with the port.
    public init(
        configuration: PlainHTTPConfiguration, version: String, source: Source, logger: Logger,
        onListening: @escaping @Sendable (UInt16) async -> Void = { _ in }
    ) {
        self.configuration = configuration
        // No request here has a body.
        self.configuration.bodyBytes = 0
        self.version = version
        self.source = source
        self.logger = logger
        self.onListening = onListening
    }

    /// Serves until the task is cancelled or the service group shuts down.
    ///
    /// - Throws: `ListenFailure`.
    public func run() async throws {
        try await PlainHTTP.serve(
            configuration, as: .init("the operator's page cannot be served", section: "operator"), logger: logger,
            listening: onListening
        ) { head, _ in
            var answer = await answer(
                method: head.method.rawValue, path: head.path ?? "", authorization: head.headerFields[.authorization])
            answer.fields["Content-Security-Policy"] = Self.contentSecurityPolicy
            return answer
        }
    }

    /// Answers one request.
    ///
    /// - Parameters:
    ///   - path: As it came, with whatever follows a `?`.
    ///   - authorization: The value of the field.
    func answer(method: String, path: String, authorization: String?) async -> PlainHTTPAnswer {
        let path = path.prefix { $0 != "?" }
        guard ["/", "/healthz", "/metrics", "/status.json"].contains(path) else {
            return Self.line(404, "not found; use /, /healthz, /metrics or /status.json")
        }
        guard method == "GET" || method == "HEAD" else {
            return Self.line(405, "only GET and HEAD are allowed", ["Allow": "GET, HEAD"])
        }
        if path == "/healthz" {
            return await source.isServing() ? Self.line(200, "ok") : Self.line(503, "the relay is going down")
        }
        // It shows nothing by itself: its script asks for the rest, with the token.
        if path == "/" {
            return PlainHTTPAnswer(status: 200, body: Self.page, mediaType: "text/html; charset=utf-8")
        }
        guard configuration.token.opens(authorization) else {
            return Self.line(
                401, "'pttrelay operator-token' prints the token; send it as 'Authorization: Bearer TOKEN'",
                ["WWW-Authenticate": "Bearer"])
        }
        return await (path == "/metrics" ? metrics() : status()) ?? Self.line(503, "the relay is not running")
    }

    private static func line(_ status: Int, _ text: String, _ fields: [String: String] = [:]) -> PlainHTTPAnswer {
        PlainHTTPAnswer(status: status, fields: fields, body: text + "\n", mediaType: "text/plain; charset=utf-8")
    }

    private func metrics() async -> PlainHTTPAnswer? {
        guard let statistics = await source.statistics() else { return nil }
        let text = MetricsText.text(
            statistics, version: version, cluster: await source.cluster?.figures(), process: .own())
        return PlainHTTPAnswer(status: 200, body: text, mediaType: MetricsText.mediaType)
    }

    private func status() async -> PlainHTTPAnswer? {
        let status: OperatorStatus
        if let cluster = await source.cluster?.view() {
            guard let own = cluster.own else { return nil }
            status = OperatorStatus(cluster, own: own)
        } else {
            guard let statistics = await source.statistics() else { return nil }
            status = OperatorStatus(statistics, version: version)
        }
        return PlainHTTPAnswer(status: 200, body: status.text)
    }
}
