// What the web endpoint answers, and the files that it has.
import Foundation
import NIOHTTP1
import RelayProtocol
import Testing

@testable import RelayWeb

@Suite struct WebRequestTests {
    private let rules = WebRequest(
        origins: ["https://console.example"], page: WebPage(["index.html": [1], "app.js": [2], "secret.pem": [3]]))

    private func judge(
        _ path: String, _ method: HTTPMethod = .GET, upgrade: String? = nil, subprotocol: String? = "pttd.1",
        origin: String? = nil
    ) -> WebRequest.Verdict {
        var headers: HTTPHeaders = ["Host": "relay.example:8443"]
        if let upgrade {
            headers.add(name: "Upgrade", value: upgrade)
            headers.add(name: "Connection", value: "keep-alive, Upgrade")
        }
        if let subprotocol { headers.add(name: "Sec-WebSocket-Protocol", value: subprotocol) }
        if let origin { headers.add(name: "Origin", value: origin) }
        return rules.judge(HTTPRequestHead(version: .http1_1, method: method, uri: path, headers: headers))
    }

    private func status(_ verdict: WebRequest.Verdict) -> UInt? {
        if case .refuse(let status, let reason) = verdict, !reason.isEmpty { return status.code }
        return nil
    }

    @Test func `the document and its files are served, and nothing else`() {
        #expect(judge("/") == .file(.init(mediaType: "text/html; charset=utf-8", bytes: [1])))
        #expect(judge("/?from=elsewhere") == judge("/"))
        #expect(judge("/page/app.js", .HEAD) == .file(.init(mediaType: "text/javascript; charset=utf-8", bytes: [2])))
        for path in ["/page/secret.pem", "/page/", "/page/../app.js", "/app.js", "/page/none.js", "", "/pttd/2"] {
            #expect(status(judge(path)) == 404, "\(path)")
        }
        #expect(status(judge("/", .POST)) == 405)
    }

    @Test func `a link needs its subprotocol and an upgrade`() {
        #expect(judge("/pttd/1", upgrade: "websocket") == .link(WebLinkTarget(share: nil)))
        #expect(judge("/pttd/1?share=63", upgrade: "websocket") == .link(WebLinkTarget(share: 63)))
        #expect(
            judge("/pttd/1", upgrade: "WebSocket", subprotocol: "other, pttd.1") == .link(WebLinkTarget(share: nil)))
        #expect(status(judge("/pttd/1", upgrade: "websocket", subprotocol: nil)) == 400)
        #expect(status(judge("/pttd/1", upgrade: "websocket", subprotocol: "pttd.2")) == 400)
        #expect(status(judge("/pttd/1")) == 426)
        #expect(status(judge("/pttd/1", .POST, upgrade: "websocket")) == 426)
    }

    @Test func `pages of other origins open no link unless they are allowed`() {
        for origin in ["https://relay.example:8443", "http://relay.example:8443", "https://console.example"] {
            #expect(
                judge("/pttd/1", upgrade: "websocket", origin: origin) == .link(WebLinkTarget(share: nil)), "\(origin)")
        }
        for origin in [
            "https://relay.example", "https://evil.example", "null", "", "https://relay.example:8443.evil.example",
            "https://console.example.evil.example",
        ] {
            #expect(status(judge("/pttd/1", upgrade: "websocket", origin: origin)) == 403, "\(origin)")
        }
    }

    @Test func `every file of the page is built in, as it is in the folder`() throws {
        let folder = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../Sources/RelayWeb/Page")
        let names = try FileManager.default.contentsOfDirectory(atPath: folder.path)
        #expect(Set(names) == Set(WebPage.builtIn.keys), "run Sources/C/CWebPage/list")
        for name in names {
            #expect(WebPage.builtIn[name] == Array(try Data(contentsOf: folder.appending(path: name))), "\(name)")
            let path = name == "index.html" ? "/" : "/page/\(name)"
            #expect(WebPage(WebPage.builtIn).file(at: path) != nil, "\(name) has an ending without a media type")
        }
    }
}
