// The endpoint with the real curl on loopback: the seed's line, every status, and what should not break it.
import Cryptography
import Foundation
import MonotonicTime
import RelayClient
import RelayHTTP
import RelayProtocol
import RelayServer
import TestSupport
import Testing
import Vocabulary

@Suite(.serialized, .timeLimit(.minutes(3))) struct EndpointTests {
    @Test func `Apple's line wakes a listener`() async throws {
        let rig = try await EndpointRig()
        let token = try await rig.registeredToken(57)
        // The line of Apple's article with host, topic, token and certificate filled in, and its quotes made straight.
        let line = #"""
            curl -v \
                -d '{"activeSpeaker":"The name of the active speaker"}' \
                -H "apns-push-type: pushtotalk" \
                -H "apns-topic: org.example.radio.voip-ptt" \
                -H "apns-priority: 10" \
                -H "apns-expiration: 0" \
                --http2 \
                --cert app.pem \
                https://localhost:\#(rig.port)/3/device/\#(token.hexadecimal)
            """#
        let startedAt = Instant.now
        let output = try await rig.run(line)
        #expect(output.status == 0)
        #expect(output.text.contains("< HTTP/2 200"), "\(output.text)")
        try await wait("the push") { rig.recorder.pushes.count == 1 }
        let push = try #require(rig.recorder.pushes.first)
        #expect(push.token == token)
        #expect(String(decoding: push.payload, as: UTF8.self) == #"{"activeSpeaker":"The name of the active speaker"}"#)
        #expect(push.priority == 10)
        #expect(push.expiresAt == nil)
        print("from the start of curl to the client's event: \((push.receivedAt - startedAt).milliseconds) ms")
        try await rig.stop()
    }

    @Test func `from the request to the client's event it takes little time`() async throws {
        let rig = try await EndpointRig(relay: { $0.limits.pushBurst = 1_000 })
        let token = try await rig.registeredToken()
        let url = "https://localhost:\(rig.port)/3/device/\(token.hexadecimal)"
        // One connection; %{time_starttransfer} counts from the beginning of each request.
        let output = try await rig.run(
            "curl -sS \(EndpointRig.arguments()) -w '%{http_code} %{time_total}\\n' \(String(repeating: url + " ", count: 100))"
        )
        let times = output.text.split(separator: "\n").compactMap { Double($0.split(separator: " ").last ?? "") }
        #expect(output.text.split(separator: "\n").allSatisfy { $0.hasPrefix("200 ") })
        #expect(times.count == 100)
        try await wait("the pushes") { rig.recorder.pushes.count == 100 }
        let inside = zip(rig.handedAt, rig.recorder.pushes).map { ($1.receivedAt - $0).milliseconds }.sorted()
        let total = times.dropFirst().map { $0 * 1_000 }.sorted()
        print(
            "push, request read to client event: median \(inside[50]) ms, worst \(inside[99]) ms; "
                + "request to response: median \(total[49]) ms, worst \(total[98]) ms")
        #expect(inside[50] < 50)
        try await rig.stop()
    }

    @Test func `every status and reason comes when it should`() async throws {
        let rig = try await EndpointRig()
        let token = try await rig.registeredToken()
        let path = "/3/device/\(token.hexadecimal)"
        let unknown = String(repeating: "00", count: 32)
        func a(
            type: String? = "pushtotalk", topic: String? = EndpointRig.topic.text, priority: String? = "10",
            expiration: String? = "0", certificate: String? = "app", body: String? = "{}", _ more: String = ""
        ) -> String {
            EndpointRig.arguments(
                type: type, topic: topic, priority: priority, expiration: expiration, certificate: certificate,
                body: body, more)
        }
        let long = #"{"a":""# + String(repeating: "x", count: 4_100) + #""}"#
        let cases: [(String, String, Int, String)] = [
            (a(), path, 200, ""),
            (a(), "/3/devices/\(unknown)", 404, "BadPath"),
            (a("-X GET"), path, 405, "MethodNotAllowed"),
            (a("-X DELETE"), path, 405, "MethodNotAllowed"),
            (a(certificate: nil), path, 403, "MissingProviderToken"),
            (a(certificate: "stranger"), path, 403, "BadCertificate"),
            (a("-H 'apns-priority: 5'"), path, 400, "DuplicateHeaders"),
            (a("-H 'apns-id: 1'"), path, 400, "BadMessageId"),
            (a(type: "alert"), path, 400, "InvalidPushType"),
            (a(type: nil), path, 400, "InvalidPushType"),
            (a(expiration: "never"), path, 400, "BadExpirationDate"),
            (a(priority: "11"), path, 400, "BadPriority"),
            (a("-H 'apns-collapse-id: \(String(repeating: "c", count: 65))'"), path, 400, "BadCollapseId"),
            (a(topic: nil, certificate: "both"), path, 400, "MissingTopic"),
            (a(topic: "org.example.radio"), path, 400, "BadTopic"),
            (a(topic: EndpointRig.other.text), path, 400, "TopicDisallowed"),
            (a(), "/3/device/", 400, "MissingDeviceToken"),
            (a(), "/3/device/12", 400, "BadDeviceToken"),
            (a(), "/3/device/\(unknown)", 400, "BadDeviceToken"),
            (a(topic: EndpointRig.other.text, certificate: "both"), path, 400, "DeviceTokenNotForTopic"),
            (a(body: nil, "-X POST"), path, 400, "PayloadEmpty"),
            (a(body: "[]"), path, 400, "BadPayload"),
            (a(body: long), path, 413, "PayloadTooLarge"),
            (a("-H 'apns-collapse-id: c'"), path, 200, ""),
            (a(topic: nil), path, 200, ""),
            (a("--http1.1"), path, 200, ""),
        ]
        for (arguments, path, status, reason) in cases {
            let answer = try await rig.curl(arguments, path: path)
            #expect(answer.status == status && answer.reason == reason, "\(arguments) \(path): \(answer)")
            #expect(answer.version == (arguments.contains("--http1.1") ? "1.1" : "2"))
            #expect(PushHead.isMessageID(answer.messageID), "\(answer)")
        }
        try await wait("the pushes") { rig.recorder.pushes.count == 4 }
        _ = try await rig.run("head -c 3000000 /dev/zero > big")
        for version in ["--http2", "--http1.1"] {
            let answer = try await rig.curl(a(body: nil, "--data-binary @big \(version)"), path: path)
            #expect(answer.status == 413 && answer.reason == "PayloadTooLarge", "\(version): \(answer)")
        }

        let id = "01234567-89ab-cdef-0123-456789abcdef"
        #expect(try await rig.curl(a("-H 'apns-id: \(id)'"), path: path).messageID == id)
        #expect(try await rig.curl(a("-H 'apns-id: \(id)'"), path: "/3/device/").messageID == id)

        let before = Int64(Date().timeIntervalSince1970 * 1_000)
        await rig.client.unregister(token: token)
        try await wait("the end of the token") { await rig.relay.pushTokenCount == 0 }
        let gone = try await rig.curl(a(), path: path)
        #expect(gone.status == 410 && gone.reason == "Unregistered")
        let stamp = gone.body.split(separator: ":").last.flatMap { Int64($0.dropLast()) } ?? 0
        #expect((before - 50...before + 10_000).contains(stamp), "\(gone.body) \(before)")

        await rig.relay.stop()
        let down = try await rig.curl(a(), path: path)
        #expect(down.status == 503 && down.reason == "Shutdown")
        try await rig.stop()
    }

    @Test func `one token is pushed to only so fast, and a new relay may not know yet`() async throws {
        let rig = try await EndpointRig(relay: { $0.limits.pushGraceTime = .seconds(300) })
        let token = try await rig.registeredToken()
        let url = "https://localhost:\(rig.port)/3/device/\(token.hexadecimal)"
        let output = try await rig.run(
            "curl -sS \(EndpointRig.arguments()) -w '%{http_code} ' \(String(repeating: url + " ", count: 60))")
        #expect(output.text.hasPrefix(String(repeating: "200 ", count: 16)))
        #expect(output.text.contains(#"{"reason":"TooManyRequests"}429"#), "\(output.text)")
        let unknown = try await rig.curl(
            EndpointRig.arguments(), path: "/3/device/\(String(repeating: "00", count: 32))")
        #expect(unknown.status == 503 && unknown.reason == "ServiceUnavailable")
        try await rig.stop()
    }

    @Test func `a listener that is away gets the newest push that is still good, and no other`() async throws {
        let rig = try await EndpointRig()
        let token = try await rig.registeredToken()
        let path = "/3/device/\(token.hexadecimal)"
        await rig.client.leave()
        try await wait("the departure") {
            await rig.relay.push(
                PushRequest(
                    token: token, topic: EndpointRig.topic, payload: Array("{}".utf8), priority: 10, lifetime: .zero)!)
                == .accepted(.dropped)
        }
        let soon = "\(Int(Date().timeIntervalSince1970) + 300)"
        for body in [#"{"n":1}"#, #"{"n":2}"#] {
            let answer = try await rig.curl(EndpointRig.arguments(expiration: soon, body: body), path: path)
            #expect(answer.status == 200)
        }
        #expect(try await rig.curl(EndpointRig.arguments(body: #"{"n":3}"#), path: path).status == 200)
        let seen = rig.recorder.pushes.count
        await rig.client.join()
        try await wait("the push") { rig.recorder.pushes.count > seen }
        try await Task.sleep(for: .milliseconds(100))
        #expect(
            rig.recorder.pushes.dropFirst(seen).map { String(decoding: $0.payload, as: UTF8.self) } == [#"{"n":2}"#])
        try await rig.stop()
    }

    @Test func `random requests get an answer of APNs' and break nothing`() async throws {
        let rig = try await EndpointRig()
        let token = try await rig.registeredToken()
        var random = SeededGenerator()
        let names = [
            "apns-id", "apns-push-type", "apns-topic", "apns-priority", "apns-expiration", "x", "content-length",
        ]
        let methods = ["POST", "POST", "POST", "GET", "PUT", "HEAD", "PATCH", "OPTIONS", "FOO"]
        func text(_ count: Int) -> String {
            String(decoding: (0..<count).map { _ in UInt8.random(in: 0x21...0x7E, using: &random) }, as: UTF8.self)
                .filter { !"\"\\'#".contains($0) }
        }
        var sections: [String] = []
        for number in 0..<300 {
            let path =
                random.chance(60)
                ? "/3/device/\(token.hexadecimal)" : "/3/device/" + text(40).filter { !"{}[]".contains($0) }
            try Data(random.bytes(random.chance(80) ? 100 : 20_000)).write(
                to: URL(fileURLWithPath: "\(rig.directory)/b\(number)"))
            let method = methods.randomElement(using: &random) ?? "POST"
            var lines = [
                "url = \"https://localhost:\(rig.port)\(path)\"", "cert = \"app.pem\"", "http2", "globoff",
                "path-as-is",
                "write-out = \"%{http_code}\\n\"", "output = \"/dev/null\"", "max-time = 10",
            ]
            lines += method == "HEAD" ? ["head"] : ["request = \"\(method)\"", "data-binary = \"@b\(number)\""]
            for _ in 0..<Int.random(in: 0...4, using: &random) {
                lines.append(
                    "header = \"\(names.prefix(6).randomElement(using: &random) ?? "x"): \(text(Int.random(in: 1...300, using: &random)))\""
                )
            }
            sections.append(lines.joined(separator: "\n"))
        }
        var statuses: [Int] = []
        // A connection for each hundred: curl sends a PRIORITY frame with each request, of which 200 in 30 s end it.
        for start in stride(from: 0, to: sections.count, by: 100) {
            try sections[start..<start + 100].joined(separator: "\nnext\n").write(
                toFile: rig.directory + "/requests", atomically: true, encoding: .utf8)
            let output = try await rig.run("curl -sS -K requests")
            statuses += output.text.split(separator: "\n").compactMap { Int($0) }
        }
        #expect(statuses.count == 300)
        #expect(
            statuses.allSatisfy { [400, 403, 404, 405, 413].contains($0) },
            "\(statuses.indices.filter { statuses[$0] == 0 }.map { sections[$0] })")

        // And bytes that are no TLS at all, or no HTTP in it.
        for number in 0..<20 {
            try Data(random.bytes(500)).write(to: URL(fileURLWithPath: "\(rig.directory)/g\(number)"))
        }
        _ = try await rig.run(
            "for n in $(seq 0 19); do timeout 2 openssl s_client -quiet -alpn h2 -connect localhost:\(rig.port) < g$n; "
                + "timeout 2 bash -c \"cat g$n > /dev/tcp/127.0.0.1/\(rig.port)\"; done > /dev/null 2>&1")
        #expect(rig.recorder.pushes.isEmpty)
        #expect(try await rig.curl(EndpointRig.arguments(), path: "/3/device/\(token.hexadecimal)").status == 200)
        try await rig.stop()
    }

    @Test func `connections that say nothing, and bodies that do not come, make room for others`() async throws {
        let rig = try await EndpointRig({
            $0.limits.connections = 3
            $0.limits.handshakeTime = .seconds(2)
            $0.limits.requestTime = .seconds(2)
        })
        let token = try await rig.registeredToken()
        let path = "/3/device/\(token.hexadecimal)"
        let silent = Task {
            try await rig.run(
                "for n in 1 2 3 4 5 6; do timeout 20 bash -c "
                    + "'exec 3> /dev/tcp/127.0.0.1/\(rig.port); touch connected$0; sleep 5' $n & done; wait")
        }
        try await wait("all are connected") {
            (1...6).allSatisfy { FileManager.default.fileExists(atPath: "\(rig.directory)/connected\($0)") }
        }
        #expect(try await rig.curl(EndpointRig.arguments(), path: path).status == 200)
        let slow = try await rig.run(
            "(sleep 4; echo '{}') | curl -sS -m 10 -X POST -T - \(EndpointRig.arguments(body: nil)) -w '%{http_code} %{time_total}' "
                + "https://localhost:\(rig.port)\(path)")
        #expect(slow.status != 0, "\(slow.text)")
        #expect(try await rig.curl(EndpointRig.arguments(), path: path).status == 200)
        _ = try await silent.value
        try await rig.stop()
    }

    @Test func `whoever may not push is not connected for long, and whoever may is`() async throws {
        let rig = try await EndpointRig({
            $0.limits.connections = 2
            $0.limits.strangerTime = .milliseconds(400)
        })
        let token = try await rig.registeredToken()
        func statuses(_ certificate: String, seconds: Int = 10) async throws -> String {
            try await rig.run(
                "bash -c 'for n in 1 2; do timeout \(seconds) "
                    + "openssl s_client -quiet -alpn h2 \(certificate) -connect localhost:\(rig.port) "
                    + "< <(sleep 12) > /dev/null 2>&1; [ $? = 124 ]; echo $?; done'"
            ).text
        }
        // 124 is what timeout(1) says when it had to end the command.
        #expect(try await statuses("") == "1\n1\n")
        #expect(try await statuses("-cert stranger.pem -key stranger.pem") == "1\n1\n")
        #expect(try await statuses("-cert app.pem -key app.pem", seconds: 2) == "0\n0\n")
        #expect(try await rig.curl(EndpointRig.arguments(), path: "/3/device/\(token.hexadecimal)").status == 200)
        try await rig.stop()
    }

    @Test func `going down does not wait for connections that say nothing`() async throws {
        let rig = try await EndpointRig()
        let token = try await rig.registeredToken()
        let idle = Task {
            try await rig.run(
                "timeout 20 bash -c 'sleep 15 > /dev/tcp/127.0.0.1/\(rig.port)' & "
                    + "(sleep 15; echo '{}') | timeout 20 curl -sS -X POST -T - \(EndpointRig.arguments(body: nil)) "
                    + "https://localhost:\(rig.port)/3/device/\(token.hexadecimal); kill %1; true")
        }
        try await Task.sleep(for: .milliseconds(300))
        let startedAt = Instant.now
        try await rig.stop()
        let time = (Instant.now - startedAt).milliseconds
        print("the endpoint goes down in \(time) ms")
        #expect(time < 8_000)
        idle.cancel()
    }

    @Test func `a certificate that cannot be used, and a port that is taken, are told`() async throws {
        func configuration(_ certificate: String, _ key: String, port: UInt16 = 0) -> PushEndpointConfiguration {
            PushEndpointConfiguration(
                listenAddress: "127.0.0.1", listenPort: port, certificatePEM: certificate, privateKeyPEM: key,
                clients: [])
        }
        let (one, two) = (try Identity(generating: "one"), try Identity(generating: "two"))
        let quiet = EndpointRig.quiet
        for (certificate, key) in [("", ""), (one.certificatePEM, "x"), (one.certificatePEM, two.privateKeyPEM)] {
            let error = #expect(throws: PushEndpointError.self) {
                try PushEndpoint(configuration: configuration(certificate, key), logger: quiet) { _ in .shutDown }
            }
            #expect("\(error as Any)".contains("[push]"))
        }
        let rig = try await EndpointRig()
        let second = try PushEndpoint(
            configuration: configuration(one.certificatePEM, one.privateKeyPEM, port: rig.port), logger: quiet
        ) { _ in .shutDown }
        let error = await #expect(throws: ListenFailure.self) { try await second.run() }
        #expect("\(error as Any)".contains("\(rig.port)"))
        try await rig.stop()
    }
}
