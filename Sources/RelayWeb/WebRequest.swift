// What is asked for over HTTP, and the answer. Pure.
import NIOHTTP1
import RelayProtocol

/// Judges a request to the web endpoint.
struct WebRequest {
    /// What becomes of it.
    enum Verdict: Equatable {
        /// It is a link: the connection becomes a WebSocket.
        case link(WebLinkTarget)
        /// A file of the page.
        case file(WebPage.File)
        /// It is refused, with a line that says why.
        case refuse(HTTPResponseStatus, String)
    }

    /// Origins besides the relay's own.
    let origins: Set<String>
    /// The files that are served.
    let page: WebPage

    func judge(_ head: HTTPRequestHead) -> Verdict {
        let path = String(head.uri.prefix { $0 != "?" })
        if let target = WebLinkTarget(target: head.uri) { return judgeLink(head, target) }
        guard let file = page.file(at: path) else {
            return .refuse(.notFound, "there is nothing here; the page is at /")
        }
        guard head.method == .GET || head.method == .HEAD else {
            return .refuse(.methodNotAllowed, "only GET and HEAD are allowed here")
        }
        return .file(file)
    }

    private func judgeLink(_ head: HTTPRequestHead, _ target: WebLinkTarget) -> Verdict {
        let upgrades =
            head.headers[canonicalForm: "upgrade"].contains { $0.lowercased() == "websocket" }
            && head.headers[canonicalForm: "connection"].contains { $0.lowercased() == "upgrade" }
        guard head.method == .GET, upgrades else {
            return .refuse(
                .upgradeRequired, "this is for links over TLS: WebSockets of the protocol \(WebLinkLimits.subprotocol)")
        }
        guard head.headers[canonicalForm: "sec-websocket-protocol"].contains(where: { $0 == WebLinkLimits.subprotocol })
        else { return .refuse(.badRequest, "the subprotocol \(WebLinkLimits.subprotocol) is needed") }
        guard isAllowed(head.headers.first(name: "origin"), host: head.headers.first(name: "host")) else {
            return .refuse(.forbidden, "pages of this origin may not open a link; see 'origins' in [web]")
        }
        return .link(target)
    }

    /// Programs name no origin. A browser names that of the page, which must be the relay's own or one that is allowed.
    private func isAllowed(_ origin: String?, host: String?) -> Bool {
        guard let origin else { return true }
        if origins.contains(origin) { return true }
        guard let host else { return false }
        // Behind a proxy the endpoint does not see which of them it was.
        return ["https://", "http://"].contains { origin.lowercased() == $0 + host.lowercased() }
    }
}
