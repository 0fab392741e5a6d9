// The endpoint of the provisioning API: HTTP, its token and its bounds. What a request means is its owner's business.
import HTTPTypes
import Logging
import ServiceLifecycle
import Synchronization

/// Why the API is not served.
public enum APIEndpointError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The port cannot be opened.
    case listen(String, String)

    /// What is wrong and what to do.
    public var description: String {
        switch self {
        case .listen(let address, let reason):
            "the API cannot be served on TCP \(address): \(reason); "
                + "see what else runs there, or choose another address with 'listen' in [api]"
        }
    }
}

/// Serves the API. It has one thread of its own, from `run` until that returns.
public struct APIEndpoint: Service {
    /// The description of the API (OpenAPI 3.1), as it is served at `/openapi.json`.
    public static let description = String(decoding: PackageResources.openapi_json, as: UTF8.self)

    private final class CurrentToken: Sendable {
        private let token: Mutex<OperatorToken>
        init(_ token: OperatorToken) { self.token = Mutex(token) }
        func opens(_ authorization: String?) -> Bool { token.withLock { $0.opens(authorization) } }
        func set(_ new: OperatorToken) { token.withLock { $0 = new } }
    }

    private let configuration: APIConfiguration
    private let token: CurrentToken
    private let logger: Logger
    private let onListening: @Sendable (UInt16) async -> Void
    private let answer: @Sendable (APIRequest) async -> APIAnswer

    /// An endpoint that does not listen yet.
    ///
    /// - Parameters:
    ///   - onListening: Called once with the port.
    ///   - answer: Answers a request that showed the token.
    public init(
        configuration: APIConfiguration, logger: Logger,
        onListening: @escaping @Sendable (UInt16) async -> Void = { _ in },
        answer: @escaping @Sendable (APIRequest) async -> APIAnswer
    ) {
        self.configuration = configuration
        token = CurrentToken(configuration.token)
        self.logger = logger
        self.onListening = onListening
        self.answer = answer
    }

    /// From the next request on this is the token.
    public func setToken(_ new: OperatorToken) { token.set(new) }

    /// Serves until the task is cancelled or the service group shuts down.
    ///
    /// - Throws: `APIEndpointError.listen`.
    public func run() async throws {
        do {
            try await PlainHTTP.serve(
                address: configuration.listenAddress, port: configuration.listenPort, limits: configuration.limits,
                logger: logger, listening: onListening
            ) { head, body in
                let answer = await respond(to: head, body)
                var headers: HTTPFields = [.cacheControl: "no-store", .xContentTypeOptions: "nosniff"]
                if !answer.body.isEmpty { headers[.contentType] = answer.mediaType }
                for (name, value) in answer.fields {
                    if let name = HTTPField.Name(name) { headers[name] = value }
                }
                return PlainHTTP.Answer(status: answer.status, headers: headers, body: answer.body)
            }
        } catch let error as ListenFailure {
            throw APIEndpointError.listen(
                "\(configuration.listenAddress) port \(configuration.listenPort)", error.reason)
        }
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
        guard token.opens(head.headerFields[.authorization]) else {
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
