// Requests of the relay's API: paths with what follows the `?`, and bodies.
import FoundationEssentials
import RelayProtocol
import RelayServer

@testable import RelayHTTP
@testable import pttrelay

private let channelPath = "/v1/channels/00010203-0405-0607-0809-0a0b0c0d0e0f"

/// What every problem has in it.
private struct ProblemBody: Decodable { var detail: String }

/// A refusal is a problem that its client can read.
private func expectAnswer(_ problem: APIProblem) {
    let answer = problem.answer()
    expect((400...499).contains(answer.status), "the request is wrong, not the relay")
    let body = try? JSONDecoder().decode(ProblemBody.self, from: Data(answer.body.utf8))
    expect(body?.detail == problem.detail, "a problem is JSON: \(answer.body)")
}

let apiFuzzers: [Fuzzer] = [
    Fuzzer(
        name: "api-path", maximum: 512,
        seeds: {
            [
                "/v1/status", "/v1/channels?after=A%C3%A4&limit=2&name=Yard+1", channelPath,
                channelPath + "/standing-link", channelPath + "/invitations/12?removeMembers=true",
                channelPath + "/members/" + String(repeating: "0f", count: MemberID.byteCount) + "/readmit",
                channelPath + "/members?removed=false&limit=x",
            ].map(utf8)
        }
    ) { bytes in
        let path = String(decoding: bytes, as: UTF8.self)
        guard let resource = APIResource(path: path.prefix { $0 != "?" }) else { return }
        expect(!resource.methods.isEmpty, "something can be done with it")
        for method in resource.methods {
            let known = resource.parameters(method)
            do throws(APIProblem) {
                let query = try APIQuery(path, known: known)
                expect((1...1_000).contains(try query.limit(1_000)), "a page has its bounds")
                for name in known { _ = try query.flag(name) }
            } catch { expectAnswer(error) }
        }
    },
    Fuzzer(
        name: "api-body", maximum: 2_048,
        seeds: {
            [
                #"0{"name":"Yard","mode":"cut-in","queue":true,"preemptionStep":10,"keepBursts":5,"keepSeconds":60}"#,
                #"1{"name":"Anna","priority":3,"listenOnly":false}"#,
                #"2{"expiresIn":3600,"uses":1,"priority":1,"listenOnly":true}"#,
                #"0{"name":null,"mode":1.5,"~/":[{}],"queue":"yes"}"#, #"1{"name":"a","name":"b"}"#, "2[]",
            ].map(utf8)
        }
    ) { bytes in
        let request = APIRequest(
            method: "POST", path: "/", fields: ["content-type": "application/json"], body: Array(bytes.dropFirst()))
        do throws(APIProblem) {
            var body = try APIBody(request)
            switch (bytes.first ?? 0) % 3 {
            case 0:
                let change = body.channel()
                try body.finish(required: ["name": change.name])
                expect(change.name.flatMap { DisplayName($0) } != nil, "a channel has a name")
                expect(
                    change.keptBursts ?? 0 <= RelayProtocolLimits.keptBurstsMaximum
                        && change.keptMilliseconds ?? 0 <= 86_400_000,
                    "little is kept, and for a time")
            case 1:
                let change = body.member()
                try body.finish()
                expect(change.priority ?? 0 <= RelayMembership.priorityMaximum, "a priority is one")
            default:
                let terms = body.terms()
                try body.finish()
                expect(terms.uses ?? 1 >= 1 && terms.lifetime ?? 60 >= 60, "an invitation can be used")
            }
        } catch { expectAnswer(error) }
    },
]
