// The operator's endpoint: what each path gives to whom, the text of the metrics, and the real curl on loopback.
import Cryptography
import Foundation
import MonotonicTime
import RelayProtocol
import Testing

@testable import RelayHTTP
@testable import RelayServer

@Suite(.serialized) struct OperatorTests {
    private static func statistics(_ name: String = "Yard") -> RelayStatistics {
        var forwarding = LatencyHistogram()
        for microseconds in [10, 60, 60, 7_000] { forwarding.count(.microseconds(microseconds)) }
        return RelayStatistics(
            uptime: .milliseconds(1_500), connections: 3, counters: RelayCounters(),
            transport: .init(packetsReceived: 12, accepted: 3), forwarding: forwarding, pushTokens: 0,
            isDraining: false,
            channels: [
                .init(
                    name: DisplayName(name)!, id: ChannelID(),
                    members: [
                        .init(id: member(1), name: DisplayName("Ada")!, isTalking: false, isSilent: true),
                        .init(id: member(2), name: DisplayName("Bob")!, isTalking: true, isSilent: false),
                    ], waiting: 1, counters: RelayChannelCounters())
            ])
    }

    private static func member(_ number: UInt8) -> MemberID {
        MemberID(PublicKeyPin([UInt8](repeating: number, count: 32))!)
    }

    private static func responder(
        _ token: OperatorToken, isServing: Bool = true, _ statistics: RelayStatistics? = statistics()
    ) -> OperatorEndpoint {
        OperatorEndpoint(
            configuration: .init(listenPort: 0, token: token), version: "1.2.3",
            source: .init(isServing: { isServing }, statistics: { statistics }), logger: EndpointRig.quiet)
    }

    // MARK: The token

    @Test func `a token is read as it is written, and nothing else is one`() {
        let token = OperatorToken()
        #expect(token != OperatorToken())
        #expect(OperatorToken(token.text) == token)
        #expect(OperatorToken(" \(token.text)\n") == token)
        for text in ["", " ", "abc", token.text + "A", String(token.text.dropLast()), "ü" + token.text.dropFirst()] {
            #expect(OperatorToken(text) == nil, "\(text)")
        }
    }

    @Test func `only the token itself opens`() {
        let token = OperatorToken()
        #expect(token.opens("Bearer \(token.text)"))
        #expect(token.opens("bearer  \(token.text)"))
        for value in [
            nil, "", "Bearer", "Bearer ", token.text, "Basic \(token.text)", "Bearer \(OperatorToken().text)",
        ] {
            #expect(!token.opens(value), "\(value ?? "nothing")")
        }
    }

    // MARK: Answers

    @Test func `each path answers whom it is for`() async {
        let token = OperatorToken()
        let responder = Self.responder(token)
        for (method, path, isShown, status) in [
            ("GET", "/healthz", false, 200), ("HEAD", "/healthz", false, 200), ("GET", "/healthz?full", false, 200),
            ("GET", "/", false, 200), ("GET", "/metrics", false, 401), ("GET", "/metrics", true, 200),
            ("GET", "/status.json", false, 401), ("GET", "/status.json", true, 200), ("POST", "/metrics", true, 405),
            ("GET", "/elsewhere", true, 404), ("GET", "//", true, 404), ("GET", "", true, 404),
            ("DELETE", "/healthz", true, 405),
        ] {
            let answer = await responder.answer(
                method: method, path: path, authorization: isShown ? "Bearer \(token.text)" : nil)
            #expect(answer.status == status, "\(method) \(path)")
            #expect(!answer.body.contains("Ada") || isShown && path == "/status.json", "\(method) \(path)")
        }
    }

    @Test func `a relay that goes down, or is, is not healthy`() async {
        let token = OperatorToken()
        let down = Self.responder(token, isServing: false, nil)
        #expect(await down.answer(method: "GET", path: "/healthz", authorization: nil).status == 503)
        for path in ["/metrics", "/status.json"] {
            let answer = await down.answer(method: "GET", path: path, authorization: "Bearer \(token.text)")
            #expect(answer.status == 503)
        }
    }

    @Test func `the status is what the page draws, those who talk first`() async throws {
        let token = OperatorToken()
        let answer = await Self.responder(token)
            .answer(method: "GET", path: "/status.json", authorization: "Bearer \(token.text)")
        let status = try JSONDecoder().decode(OperatorStatus.self, from: Data(answer.body.utf8))
        #expect(status.version == "1.2.3")
        #expect(status.uptime == 1.5)
        #expect(status.memberCounts == [2])
        #expect(status.channels.first?.members.map(\.name) == ["Bob", "Ada"])
        #expect(status.channels.first?.waiting == 1)
        #expect(status.forwarding.counts.count == status.forwarding.bounds.count + 1)
        #expect(status.forwarding.counts.reduce(0, +) == 4)
    }

    @Test func `the page loads nothing from elsewhere, and draws what the status has`() throws {
        let page = OperatorEndpoint.page
        // The one address in it names the kind of its plots' elements.
        #expect(!page.replacingOccurrences(of: "http://www.w3.org/2000/svg", with: "").contains("://"))
        #expect(!page.contains("innerHTML"), "names of members come from elsewhere")
        let status = try #require(
            try JSONSerialization.jsonObject(
                with: Data(OperatorStatus(Self.statistics(), version: "1").text.utf8)) as? [String: Any])
        for key in status.keys where !["packetsIn"].contains(key) {
            #expect(page.contains(".\(key)"), "\(key) is not drawn")
        }
    }

    // MARK: Metrics

    @Test func `metrics are lines as Prometheus reads them`() throws {
        let text = MetricsText.text(
            Self.statistics("A \"b\" \\c"), version: "1.2.3",
            process: ProcessUse(residentBytes: 4_096, cpu: .milliseconds(1_250)))
        #expect(text.hasSuffix("\n"))
        let lines = text.split(separator: "\n").map(String.init)
        for line in [
            #"pttrelay_build_info{version="1.2.3"} 1"#, "pttrelay_uptime_seconds 1.5",
            #"pttrelay_members{channel="A \"b\" \\c"} 2"#, #"pttrelay_talkers{channel="A \"b\" \\c"} 1"#,
            #"pttrelay_silent_listeners{channel="A \"b\" \\c"} 1"#,
            #"pttrelay_forward_seconds_bucket{le="2.5e-05"} 1"#, #"pttrelay_forward_seconds_bucket{le="0.0001"} 3"#,
            #"pttrelay_forward_seconds_bucket{le="0.01"} 4"#, #"pttrelay_forward_seconds_bucket{le="+Inf"} 4"#,
            "pttrelay_forward_seconds_sum 0.00713", "pttrelay_forward_seconds_count 4",
            #"pttrelay_media_packets_dropped_total{reason="noFloor"} 0"#, "pttrelay_connections_accepted_total 3",
            "pttrelay_process_resident_bytes 4096", "pttrelay_process_cpu_seconds_total 1.25",
        ] {
            #expect(lines.contains(line), "\(line)")
        }
        // Each sample belongs to the family before it, and each family is there once.
        var family = ""
        var families: Set<String> = []
        for line in lines {
            if line.hasPrefix("# TYPE ") {
                family = String(line.split(separator: " ")[2])
                #expect(families.insert(family).inserted, "\(family)")
            } else if !line.hasPrefix("# HELP ") {
                #expect(line.hasPrefix(family), "\(line)")
                #expect(Double(line.split(separator: " ").last ?? "") != nil, "\(line)")
            }
        }
    }

    @Test func `a process knows what it uses`() throws {
        let use = try #require(ProcessUse.own())
        #expect(use.residentBytes > 1 << 20)
        #expect(use.cpu > .zero)
    }

    // MARK: Over sockets

    @Test(.timeLimit(.minutes(1))) func `curl sees a relay that runs, and that it goes down`() async throws {
        let channel = RelayChannelConfiguration(id: ChannelID(), name: DisplayName("Yard")!, token: InvitationToken())
        let relay = try RelayServer(
            configuration: RelayServerConfiguration(
                listenAddress: "127.0.0.1", listenPort: 0, identity: try Identity(generating: "relay"),
                channels: [channel]), logger: EndpointRig.quiet)
        try await relay.start()
        let token = OperatorToken()
        let (ports, found) = AsyncStream.makeStream(of: UInt16.self)
        let endpoint = OperatorEndpoint(
            configuration: .init(listenPort: 0, token: token), version: "1.2.3", source: .init(relay),
            logger: EndpointRig.quiet, onListening: { found.yield($0) })
        let running = Task { try await endpoint.run() }
        let port = await ports.first { _ in true } ?? 0
        let directory = FileManager.default.temporaryDirectory.path
        func curl(_ arguments: String, _ path: String) async throws -> String {
            try await Output.of(
                "curl -sS -m 20 -o - -w ' %{http_code} %{content_type}' \(arguments) 'http://127.0.0.1:\(port)\(path)'",
                in: directory
            ).text
        }
        #expect(try await curl("", "/healthz") == "ok\n 200 text/plain; charset=utf-8")
        #expect(try await curl("", "/metrics").contains(" 401 "))
        let metrics = try await curl("-H 'Authorization: Bearer \(token.text)'", "/metrics")
        #expect(metrics.contains("pttrelay_members{channel=\"Yard\"} 0\n"))
        #expect(metrics.hasSuffix(" 200 \(MetricsText.mediaType)"))
        let page = try await curl("-D -", "/")
        #expect(page.contains("<title>pttrelay</title>") && page.contains("default-src 'none'"))
        #expect(try await curl("-I", "/healthz").hasPrefix("HTTP/1.1 200"))
        // A body that nobody asked for ends the connection, and does no other harm.
        #expect(try await curl("-d '\(String(repeating: "a", count: 5_000))'", "/metrics").contains(" 405 "))
        #expect(
            try await curl("-H 'X-Long: \(String(repeating: "a", count: 20_000))'", "/healthz").contains("ok") == false)
        await relay.stop()
        #expect(try await curl("", "/healthz").contains(" 503 "))
        running.cancel()
        _ = await running.result
    }
}
