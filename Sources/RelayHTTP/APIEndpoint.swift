// The endpoint of the provisioning API: HTTP, its token and its bounds. What a request means is its owner's business.
import HTTPTypes
import Logging
import ServiceLifecycle

/// Serves the API. It has one thread of its own, from `run` until that returns.
public struct APIEndpoint: Service {
    /// The description of the API (OpenAPI 3.1), as it is served at `/openapi.json`.
    public static let description = String(decoding: PackageResources.openapi_json, as: UTF8.self)

    private let configuration: PlainHTTPConfiguration
    private let token: Current<OperatorToken>
    private let logger: Logger
    private let onListening: @Sendable (UInt16) async -> Void
    private let answer: @Sendable (APIRequest) async -> APIAnswer

    /// An endpoint that does not listen yet.
    ///
    /// - Parameters:
    ///   - onListening: Called once with the port.
    ///   - answer: Answers a request that showed the token.
    public init(
        configuration: PlainHTTPConfiguration, logger: Logger,
        onListening: @escaping @Sendable (UInt16) async -> Void = { _ in },
        answer: @escaping @Sendable (APIRequest) async -> APIAnswer
    ) {
        self.configuration = configuration
        token = Current(configuration.token)
        self.logger = logger
        self.onListening = onListening
        self.answer = answer
    }

    /// From the next request on this is the token.
    public func setToken(_ new: OperatorToken) { token.set(new) }

    /// Serves until the task is cancelled or the service group shuts down.
    ///
    /// - Throws: `ListenFailure`.
    public func run() async throws {
        try await PlainHTTP.serve(
            configuration, as: .init("the API cannot be served", section: "api"), logger: logger,
            listening: onListening, answer: respond)
    }

    /// Answers a request; `body`: nil when it is too long.
    func respond(to head: HTTPRequest, _ body: [UInt8]?) async -> APIAnswer {
        let path = head.path ?? ""
        let method = head.method == .head ? "GET" : head.method.rawValue
        // It tells nothing of this relay.
        if path.prefix(while: { $0 != "?" }) == "/openapi.json" {
            guard method == "GET" else {
                return APIProblem(405, "method", "This can only be read; use GET.").answer(["Allow": "GET, HEAD"])
            }
            return APIAnswer(status: 200, body: Self.description)
        }
        guard token.get().opens(head.headerFields[.authorization]) else {
            return APIProblem(
                401, "token", "'pttrelay api-token' prints the token; send it as 'Authorization: Bearer TOKEN'."
            ).answer(["WWW-Authenticate": "Bearer"])
        }
        guard let body else {
            return APIProblem(413, "too-long", "A request may have \(configuration.bodyBytes) bytes; send less.")
                .answer()
        }
        var fields: [String: String] = [:]
        for field in head.headerFields {
            let name = field.name.canonicalName
            fields[name] = fields[name].map { "\($0), \(field.value)" } ?? field.value
        }
        return await answer(APIRequest(method: method, path: path, fields: fields, body: body))
    }
}
