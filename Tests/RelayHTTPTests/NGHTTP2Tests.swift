// The endpoint with nghttp2's own clients, which use more of HTTP/2 than curl does: nghttp pushes, h2load is a crowd of strangers.
import Foundation
import RelayClient
import RelayHTTP
import RelayProtocol
import RelayServer
import Testing
import Vocabulary

private let areInstalled = ["nghttp", "h2load"].allSatisfy { access("/usr/bin/\($0)", X_OK) == 0 }

@Suite(
    .serialized, .timeLimit(.minutes(2)),
    .enabled(if: areInstalled, "nghttp and h2load are not there; Debian's package is nghttp2-client"))
struct NGHTTP2Tests {
    /// A line that pushes with nghttp: `form` are options for the frames.
    private func nghttp(_ form: String, _ rig: EndpointRig, _ path: String, topic: String = EndpointRig.topic.text)
        -> String
    {
        "nghttp -v -y \(form) -H ':method: POST' -H 'apns-push-type: pushtotalk' -H 'apns-topic: \(topic)' "
            + "-H 'apns-priority: 10' -H 'apns-expiration: 0' --cert app.pem --key app.pem -d payload.json "
            + "https://localhost:\(rig.port)\(path)"
    }

    /// The statuses that it was answered with, and the code of the server's GOAWAY.
    private func answers(_ output: Output) -> (statuses: [String], goodbye: String?) {
        let lines = output.text.split(separator: "\n")
        let statuses = lines.filter { $0.contains(":status: ") }.map { String($0.suffix(3)) }
        let goodbye = lines.firstIndex { $0.contains("recv GOAWAY") }.map { String(lines[$0 + 1]) }
        return (statuses, goodbye)
    }

    private func started() async throws -> (rig: EndpointRig, path: String) {
        let rig = try await EndpointRig(relay: { $0.limits.pushBurst = 1_000 })
        let token = try await rig.registeredToken()
        _ = try await rig.run(#"printf '{"activeSpeaker":"Ann"}' > payload.json"#)
        return (rig, "/3/device/\(token.hexadecimal)")
    }

    @Test func `a push arrives in whatever frames a client sends it`() async throws {
        let (rig, path) = try await started()
        let forms = [
            "", "--padding=255", "-w 1 -W 1", "-c 0", "--encoder-header-table-size=0", "--no-content-length",
            "--expect-continue", "--trailer='x-after: all'", "--no-dep", "--no-rfc7540-pri", "-p 1",
        ]
        for (index, form) in forms.enumerated() {
            let output = try await rig.run(nghttp(form, rig, path))
            #expect(output.status == 0 && answers(output).statuses == ["200"], "\(form): \(output.text)")
            try await wait("the push of '\(form)'") { rig.recorder.pushes.count == index + 1 }
        }
        #expect(
            rig.recorder.pushes.allSatisfy {
                String(decoding: $0.payload, as: UTF8.self) == #"{"activeSpeaker":"Ann"}"#
            })
        // The body of an answer, a byte a frame.
        let refused = try await rig.run(nghttp("-w 1", rig, path, topic: EndpointRig.other.text))
        #expect(answers(refused).statuses == ["400"])
        let body = refused.text.split(separator: "\n").filter { $0.contains("recv DATA") }.map {
            $0.prefix { $0 != "[" }
        }
        #expect(body.joined() == #"{"reason":"TopicDisallowed"}"#, "\(refused.text)")
        try await rig.stop()
    }

    @Test func `a hundred at once on one connection are all answered, and what was taken arrives`() async throws {
        let (rig, path) = try await started()
        let output = try await rig.run(nghttp("-m 100", rig, path))
        let statuses = answers(output).statuses
        let taken = statuses.count { $0 == "200" }
        // As many as the client may leave unconfirmed, and those that it confirms meanwhile.
        #expect(output.status == 0 && statuses.count == 100 && taken >= 32, "\(output.text)")
        #expect(statuses.allSatisfy { $0 == "200" || $0 == "429" })
        try await wait("the pushes") { rig.recorder.pushes.count >= taken }
        #expect(rig.recorder.pushes.count == taken)
        try await rig.stop()
    }

    @Test func `more headers than are read end that connection, and no other`() async throws {
        let (rig, path) = try await started()
        // 8 KiB and more in CONTINUATION frames.
        let large = try await rig.run(nghttp("--continuation", rig, path))
        let (statuses, goodbye) = answers(large)
        #expect(statuses.isEmpty && goodbye?.contains("PROTOCOL_ERROR") == true, "\(large.text)")
        #expect(answers(try await rig.run(nghttp("", rig, path))).statuses == ["200"])
        try await rig.stop()
    }

    @Test func `strangers who ask as fast as they can are all refused, and a push gets through meanwhile`() async throws
    {
        let (rig, path) = try await started()
        let crowd = Task {
            try await rig.run("h2load -n 1000 -c 8 -m 100 -d payload.json https://localhost:\(rig.port)\(path)")
        }
        // A stranger is cut off after ten seconds: it is over sooner.
        for _ in 0..<5 {
            let output = try await rig.run(nghttp("", rig, path))
            #expect(answers(output).statuses == ["200"], "\(output.text)")
        }
        let output = try await crowd.value
        #expect(
            output.text.contains("1000 done, 0 succeeded, 1000 failed, 0 errored, 0 timeout")
                && output.text.contains(" 1000 4xx"), "\(output.text)")
        print(output.text.split(separator: "\n").first { $0.contains("req/s,") } ?? "")
        try await wait("the pushes") { rig.recorder.pushes.count == 5 }
        try await rig.stop()
    }
}
