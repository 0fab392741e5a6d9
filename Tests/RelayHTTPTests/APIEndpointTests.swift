// The endpoint of the API: its token, its bounds, and what every answer has, with the real curl on loopback.
import Foundation
import HTTPTypes
import Testing

@testable import RelayHTTP

@Suite(.serialized) struct APIEndpointTests {
    private static func endpoint(
        _ token: OperatorToken, onListening: @escaping @Sendable (UInt16) async -> Void = { _ in }
    ) -> APIEndpoint {
        APIEndpoint(
            configuration: PlainHTTPConfiguration(listenPort: 0, token: token), logger: EndpointRig.quiet,
            onListening: onListening
        ) { request in
            APIAnswer(
                status: 200, fields: ["ETag": "\"1\""],
                body: "\(request.method) \(request.path) \(request.fields["x-word"] ?? "-") \(request.body.count)")
        }
    }

    private static func head(
        _ method: HTTPRequest.Method, _ path: String, _ token: String? = nil
    ) -> HTTPRequest {
        var head = HTTPRequest(method: method, scheme: "http", authority: "x", path: path)
        if let token { head.headerFields[.authorization] = "Bearer \(token)" }
        return head
    }

    @Test func `only the description is for everybody, and a new token closes out the old one`() async {
        let token = OperatorToken()
        let endpoint = Self.endpoint(token)
        #expect(await endpoint.respond(to: Self.head(.get, "/openapi.json"), []).body == APIEndpoint.description)
        #expect(await endpoint.respond(to: Self.head(.post, "/openapi.json"), []).status == 405)
        for wrong in [nil, "", OperatorToken().text] {
            let answer = await endpoint.respond(to: Self.head(.get, "/v1/channels", wrong), [])
            #expect(answer.status == 401 && answer.fields["WWW-Authenticate"] == "Bearer")
            #expect(answer.body.contains("pttrelay api-token"))
        }
        #expect(await endpoint.respond(to: Self.head(.get, "/v1/x", token.text), []).status == 200)
        #expect(await endpoint.respond(to: Self.head(.post, "/v1/x", token.text), nil).status == 413)
        let next = OperatorToken()
        endpoint.setToken(next)
        #expect(await endpoint.respond(to: Self.head(.get, "/v1/x", token.text), []).status == 401)
        #expect(await endpoint.respond(to: Self.head(.get, "/v1/x", next.text), []).status == 200)
    }

    @Test func `a problem has what RFC 9457 wants, and each part that is wrong`() throws {
        let problem = APIProblem(422, "body", "It has a mistake.", errors: [.init("/name", "it is missing")])
        let answer = problem.answer()
        #expect(answer.mediaType == "application/problem+json" && answer.status == 422)
        #expect(
            answer.body == #"{"detail":"It has a mistake.","errors":[{"detail":"it is missing","place":"/name"}],"#
                + #""status":422,"title":"The request has a mistake","type":"urn:pttrelay:problem:body"}"#)
        #expect(APIProblem(503, "busy", "Later.").answer().fields["Retry-After"] == "2")
    }

    @Test(.timeLimit(.minutes(1))) func `curl gets answers, and a request that is too long is told so`() async throws {
        let token = OperatorToken()
        let (ports, found) = AsyncStream.makeStream(of: UInt16.self)
        let endpoint = Self.endpoint(token, onListening: { found.yield($0) })
        let running = Task { try await endpoint.run() }
        let port = await ports.first { _ in true } ?? 0
        func curl(_ arguments: String, _ path: String) async throws -> String {
            try await Output.of(
                "curl -sS -m 20 -o - -w ' %{http_code} %{content_type}' -H 'Authorization: Bearer \(token.text)' "
                    + "\(arguments) 'http://127.0.0.1:\(port)\(path)'",
                in: FileManager.default.temporaryDirectory.path
            ).text
        }
        let answer = try await curl("-H 'X-Word: a' -H 'X-Word: b'", "/v1/x?y=%20")
        #expect(answer == "GET /v1/x?y=%20 a, b 0 200 application/json")
        #expect(try await curl("--json '{}'", "/v1/x") == "POST /v1/x - 2 200 application/json")
        let head = try await curl("--head", "/v1/x")
        #expect(head.hasPrefix("HTTP/1.1 200") && head.lowercased().contains("etag: \"1\""))
        #expect(head.lowercased().contains("cache-control: no-store"))
        for (count, status) in [(16_384, 200), (16_385, 413), (60_000, 413)] {
            let body = "head -c \(count) /dev/zero | tr '\\0' a"
            let answer = try await Output.of(
                "\(body) | curl -sS -m 20 -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer \(token.text)' "
                    + "--data-binary @- 'http://127.0.0.1:\(port)/v1/x'",
                in: FileManager.default.temporaryDirectory.path)
            #expect(answer.text == "\(status)", "\(count) bytes")
        }
        running.cancel()
        _ = await running.result
    }
}
