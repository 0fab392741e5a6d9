// Proxies by their URLs, and the hosts that are reached without one.
import Testing
import WebSockets

@testable import WebSocketClient

struct HTTPProxyTests {
    @Test func `a URL names host, port and credentials`() throws {
        let proxy = try HTTPProxy("http://ann:s%40crt%3A@proxy.example:8080/")
        #expect(proxy.host == "proxy.example")
        #expect(proxy.port == 8_080)
        #expect(proxy.authorization == "Basic YW5uOnNAY3J0Og==")
        #expect("\(proxy)" == "proxy.example:8080", "credentials are not for logs")
    }

    @Test func `scheme and port may be absent`() throws {
        #expect(try HTTPProxy("10.0.0.1") == HTTPProxy(host: "10.0.0.1", port: 3_128))
        #expect(try HTTPProxy("http://[2001:db8::1]:3129") == HTTPProxy(host: "2001:db8::1", port: 3_129))
    }

    @Test(arguments: [
        "", "http://", "http://:80", "http://a:0", "http://a:65536", "http://a:+80", "http://a b", "http://a/path",
        "http://%zz@a", "http://%+1@a", "http://%-0@a", "http://a\r\nX: y", "http://[::1", "http://é", "http://@a",
    ])
    func `what is no proxy is refused`(_ text: String) {
        #expect(throws: HTTPProxy.Problem.form) { try HTTPProxy(text) }
    }

    @Test func `a proxy over TLS is not supported, and that is said`() {
        #expect(throws: HTTPProxy.Problem.scheme("https")) { try HTTPProxy("https://proxy.example") }
        #expect(throws: HTTPProxy.Problem.scheme("socks5")) { try HTTPProxy("socks5://proxy.example") }
    }

    @Test func `the environment names the proxy and its exceptions`() throws {
        let policy = try ProxyPolicy(environment: [
            "https_proxy": "http://proxy:80", "NO_PROXY": "localhost, .corp.example,*.lan,10.0.0.7",
        ])
        #expect(policy.proxy(for: "relay.example")?.host == "proxy")
        for host in ["localhost", "corp.example", "Relay.Corp.Example", "a.lan", "10.0.0.7"] {
            #expect(policy.proxy(for: host) == nil)
        }
        #expect(policy.proxy(for: "notcorp.example") != nil)
        #expect(try ProxyPolicy(environment: [:]) == .none)
        #expect(try ProxyPolicy(environment: ["HTTPS_PROXY": ""]) == .none)
        #expect(try ProxyPolicy(environment: ["HTTPS_PROXY": "a:1", "no_proxy": "*"]).proxy(for: "x") == nil)
    }

    @Test func `an answer of a proxy may come in pieces`() throws {
        var answer = ProxyAnswer()
        for byte in Array("HTTP/1.1 200 Connection established\r\nVia: x\r\n\r".utf8) {
            #expect(try answer.take([byte]) == nil)
        }
        #expect(try answer.take(Array("\nrest".utf8)) == Array("rest".utf8))
    }

    @Test func `a refusal is told by its number`() {
        var answer = ProxyAnswer()
        #expect(throws: ProxyAnswer.Failure.refused(status: 407)) {
            try answer.take(Array("HTTP/1.0 407 Proxy Authentication Required\n\n".utf8))
        }
    }

    @Test(arguments: ["SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 2000 x\n\n", "HTTP/1.1\n\n", "HTTP/1.1 abc\n\n", "\n\n"])
    func `what is not HTTP is no proxy`(_ text: String) {
        var answer = ProxyAnswer()
        #expect(throws: ProxyAnswer.Failure.notHTTP) { try answer.take(Array(text.utf8)) }
    }

    @Test func `an endless answer is given up`() {
        var answer = ProxyAnswer()
        #expect(throws: ProxyAnswer.Failure.tooLong) {
            for _ in 0..<100 { _ = try answer.take([UInt8](repeating: 97, count: 1_000)) }
        }
    }
}
