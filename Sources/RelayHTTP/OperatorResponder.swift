// From a request of the operator to an answer.
import RelayServer

/// Answers requests. It holds no state: everything it knows is the relay's.
struct OperatorResponder: Sendable {
    /// What goes back.
    struct Answer: Sendable, Equatable {
        var status: Int
        var mediaType = "text/plain; charset=utf-8"
        var body: String
    }

    let token: OperatorToken
    let version: String
    let source: OperatorEndpoint.Source

    /// Answers one request.
    ///
    /// - Parameters:
    ///   - path: As it came, with whatever follows a `?`.
    ///   - authorization: The value of the field.
    func answer(method: String, path: String, authorization: String?) async -> Answer {
        let path = path.prefix { $0 != "?" }
        guard ["/", "/healthz", "/metrics", "/status.json"].contains(path) else {
            return Answer(status: 404, body: "not found; use /, /healthz, /metrics or /status.json\n")
        }
        guard method == "GET" || method == "HEAD" else {
            return Answer(status: 405, body: "only GET and HEAD are allowed\n")
        }
        if path == "/healthz" {
            return await source.isServing()
                ? Answer(status: 200, body: "ok\n") : Answer(status: 503, body: "the relay is going down\n")
        }
        // It shows nothing by itself: its script asks for the rest, with the token.
        if path == "/" { return Answer(status: 200, mediaType: "text/html; charset=utf-8", body: OperatorPage.text) }
        guard token.opens(authorization) else {
            return Answer(
                status: 401,
                body: "'pttrelay operator-token' prints the token; send it as 'Authorization: Bearer TOKEN'\n")
        }
        guard let answer = await path == "/metrics" ? metrics() : status() else {
            return Answer(status: 503, body: "the relay is not running\n")
        }
        return answer
    }

    private func metrics() async -> Answer? {
        guard let statistics = await source.statistics() else { return nil }
        let text = MetricsText.text(
            statistics, version: version, cluster: await source.cluster?.figures(), process: .own())
        return Answer(status: 200, mediaType: MetricsText.mediaType, body: text)
    }

    private func status() async -> Answer? {
        let status: OperatorStatus
        if let cluster = await source.cluster?.view() {
            guard let own = cluster.own else { return nil }
            status = OperatorStatus(cluster, own: own)
        } else {
            guard let statistics = await source.statistics() else { return nil }
            status = OperatorStatus(statistics, version: version)
        }
        return Answer(status: 200, mediaType: "application/json", body: status.text)
    }
}
