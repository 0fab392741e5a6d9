// The API against a relay that runs: what each request does, what is refused, and that API, commands and reloads at one time leave records
// and relay alike.
import Foundation
import RelayHTTP
import RelayProtocol
import RelayServer
import RelayStore
import TestSupport
import Testing

@testable import pttrelay

@Suite struct APITests {
    private typealias Object = [String: Any]

    /// A client of the API of a relay.
    private struct Client: Sendable {
        let responder: APIResponder

        init(_ relay: RunningRelay.Parts) {
            let registrar = relay.registrar
            responder = APIResponder(logger: quiet("api")) { try await registrar.perform($0) }
        }

        func send(
            _ method: String, _ path: String, _ body: String? = nil, _ fields: [String: String] = [:]
        ) async -> APIAnswer {
            var fields = fields
            if body != nil, fields["content-type"] == nil { fields["content-type"] = "application/json" }
            return await responder.answer(
                APIRequest(method: method, path: path, fields: fields, body: Array((body ?? "").utf8)))
        }
    }

    private func object(_ answer: APIAnswer) throws -> Object {
        try #require(try JSONSerialization.jsonObject(with: Data(answer.body.utf8)) as? Object, "\(answer)")
    }

    private func items(_ answer: APIAnswer) throws -> [Object] {
        try #require(try object(answer)["items"] as? [Object])
    }

    @Test func `a channel, its links and its members from the first to the last request`() async throws {
        let relay = try await RunningRelay.start(try StateFolder()) { 1_000_000 }
        let api = Client(relay)
        let made = await api.send("POST", "/v1/channels", #"{"name": "Yard", "mode": "cut-in", "keepSeconds": 60}"#)
        let yard = try object(made)
        let id = try #require(yard["id"] as? String)
        #expect(made.status == 201 && made.fields["Location"] == "/v1/channels/\(id)")
        #expect(yard["mode"] as? String == "cut-in" && yard["keepSeconds"] as? Int == 60)
        #expect(yard["keepBursts"] as? Int == 5)
        let path = "/v1/channels/\(id)"

        let invited = await api.send(
            "POST", path + "/invitations", #"{"uses": 1, "expiresIn": 60, "priority": 7}"#, ["idempotency-key": "x"])
        #expect(invited.status == 201)
        #expect(try object(invited)["expiresAt"] as? String == "1970-01-12T13:47:40Z")
        let repeated = await api.send(
            "POST", path + "/invitations", #"{"uses": 1, "expiresIn": 60, "priority": 7}"#, ["idempotency-key": "x"])
        #expect(repeated.status == 200 && repeated.body == invited.body)
        let link = try InvitationLink(try #require(try object(invited)["link"] as? String))
        let ada = try await Device("Ada", link)
        try await ada.isReady()

        let members = try await items(api.send("GET", path + "/members"))
        #expect(members.count == 1 && members[0]["id"] as? String == ada.id.description)
        #expect(members[0]["priority"] as? Int == 7 && members[0]["connected"] as? Bool == true)
        let member = path + "/members/\(ada.id)"
        let changed = await api.send("PATCH", member, #"{"name": "Gate", "priority": 3, "listenOnly": true}"#)
        #expect(try object(changed)["name"] as? String == "Gate" && object(changed)["nameNow"] as? String == "Ada")
        #expect(try relay.records.member(ada.id, of: link.channel).priority == 3)

        let removal = try await object(api.send("DELETE", member + "?keepInvitation=true"))
        #expect(removal["removedMembers"] as? Int == 1 && removal["invitationWithdrawn"] as? Bool == false)
        #expect(try await ada.refusal().contains("removed"))
        #expect(await api.send("PATCH", member, "{}").status == 409)
        #expect(try await items(api.send("GET", path + "/members")).isEmpty)
        #expect(try await items(api.send("GET", path + "/members?removed=true")).count == 1)
        #expect(try await object(api.send("POST", member + "/readmit"))["removedAt"] == nil)

        let invitations = try await items(api.send("GET", path + "/invitations?limit=1"))
        let number = try #require(invitations.first?["number"] as? Int)
        #expect(invitations.count == 1 && invitations[0]["used"] as? Int == 1)
        let withdrawn = await api.send("DELETE", path + "/invitations/\(number)?removeMembers=true")
        #expect(try object(withdrawn)["removedMembers"] as? Int == 1)
        #expect(try await object(api.send("GET", path + "/invitations/\(number)"))["withdrawn"] as? Bool == true)
        let standing = try await object(api.send("GET", path + "/standing-link"))
        #expect(try InvitationLink(try #require(standing["link"] as? String)).channel == link.channel)

        #expect(await api.send("DELETE", path).status == 204)
        #expect(await api.send("GET", path).status == 404)
        #expect(await api.send("DELETE", path).status == 404)
        #expect(await relay.server.statistics?.channels.map(\.name.text) == ["Team"])
        await relay.stop()
    }

    @Test func `what is wrong with a request is told with a status, a kind, and what to do`() async throws {
        let relay = try await RunningRelay.start(try StateFolder()) { 1_000 }
        let api = Client(relay)
        let id = try await object(api.send("POST", "/v1/channels", #"{"name": "Yard"}"#))["id"] as? String
        let yard = "/v1/channels/\(try #require(id))"
        let team = "/v1/channels/\(try relay.records.channel(named: "Team").id)"
        let nobody = String(repeating: "0", count: 32)
        let cases: [(String, String, String?, [String: String], Int, String)] = [
            ("GET", "/v2/channels", nil, [:], 404, "path"), ("GET", "/v1/channels/x", nil, [:], 404, "path"),
            ("GET", "/v1/channels/\(ChannelID())", nil, [:], 404, "unknown-channel"),
            ("GET", yard + "/members/Ada", nil, [:], 404, "path"),
            ("GET", yard + "/members/\(nobody)", nil, [:], 404, "unknown-member"),
            ("DELETE", yard + "/invitations/99", nil, [:], 404, "unknown-invitation"),
            ("PUT", yard, "{}", [:], 405, "method"), ("DELETE", "/v1/channels", nil, [:], 405, "method"),
            ("GET", "/v1/channels?limit=0", nil, [:], 422, "parameter"),
            ("GET", "/v1/channels?limt=1", nil, [:], 422, "parameter"),
            ("GET", "/v1/channels?limit=1&limit=2", nil, [:], 422, "parameter"),
            ("GET", "/v1/channels?name=%ZZ", nil, [:], 400, "query"),
            ("GET", "/v1/channels?after=!", nil, [:], 422, "parameter"),
            ("GET", yard + "/members?removed=maybe", nil, [:], 422, "parameter"),
            ("POST", "/v1/channels", "{", [:], 400, "json"), ("POST", "/v1/channels", "[]", [:], 400, "json"),
            ("POST", "/v1/channels", "{}", ["content-type": "text/plain"], 415, "media-type"),
            ("POST", "/v1/channels", "{}", [:], 422, "body"),
            ("POST", "/v1/channels", #"{"name": "Yard"}"#, [:], 409, "name-taken"),
            ("POST", "/v1/channels", #"{"name": "\u0007"}"#, [:], 422, "body"),
            ("POST", "/v1/channels", #"{"name": "A", "colour": 1}"#, [:], 422, "body"),
            ("POST", "/v1/channels", #"{"name": "A"}"#, ["idempotency-key": "a b"], 422, "idempotency-key"),
            ("PATCH", yard, #"{"mode": "loud"}"#, [:], 422, "body"),
            ("PATCH", yard, #"{"preemptionStep": 255}"#, [:], 422, "body"),
            ("PATCH", yard, #"{"queue": 1}"#, [:], 422, "body"),
            ("PATCH", yard, #"{"queue": true}"#, ["if-match": "\"0\""], 412, "changed"),
            ("PATCH", yard, #"{"queue": true}"#, ["if-match": "0"], 422, "if-match"),
            ("PATCH", yard, #"{"queue": true}"#, ["if-match": ""], 422, "if-match"),
            ("PATCH", yard, #"{"queue": true}"#, ["if-match": "\"x\""], 422, "if-match"),
            ("DELETE", yard, nil, ["if-match": "\"0\""], 412, "changed"),
            ("PATCH", yard, #"{"name": "Team"}"#, [:], 409, "name-taken"),
            ("PATCH", team, #"{"queue": true}"#, [:], 409, "declared"), ("DELETE", team, nil, [:], 409, "declared"),
            ("POST", yard + "/invitations", #"{"uses": 0}"#, [:], 422, "body"),
            ("POST", yard + "/invitations", #"{"uses": 1.5}"#, [:], 422, "body"),
        ]
        for (method, path, body, fields, status, kind) in cases {
            let answer = await api.send(method, path, body, fields)
            let problem = try object(answer)
            #expect(answer.status == status && problem["status"] as? Int == status, "\(method) \(path): \(answer)")
            #expect(problem["type"] as? String == "urn:pttrelay:problem:\(kind)", "\(method) \(path): \(answer.body)")
            #expect(answer.mediaType == "application/problem+json")
            #expect((problem["detail"] as? String)?.isEmpty == false)
        }
        // All mistakes at once.
        let many = try await object(
            api.send("POST", "/v1/channels", #"{"queue": 1, "mode": 2, "keepBursts": 65, "x/y": 0}"#))
        let places = (many["errors"] as? [Object])?.compactMap { $0["place"] as? String }
        #expect(Set(places ?? []) == ["/queue", "/mode", "/keepBursts", "/name", "/x~1y"])
        // Nothing of it has changed anything.
        #expect(try relay.records.channels().map(\.name.text) == ["Team", "Yard"])
        #expect(try relay.records.channel(named: "Yard").settings == ChannelSettings())
        await relay.stop()
    }

    @Test func `a tag holds as long as nothing is changed, and an end-to-end channel gets no link here`() async throws {
        let relay = try await RunningRelay.start(try StateFolder()) { 1_000 }
        let api = Client(relay)
        let made = await api.send("POST", "/v1/channels", #"{"name": "Crew", "endToEnd": true}"#)
        let path = try #require(made.fields["Location"])
        let tag = try #require(made.fields["ETag"])
        #expect(await api.send("GET", path).fields["ETag"] == tag)
        #expect(await api.send("GET", path + "/standing-link").status == 409)
        #expect(await api.send("POST", path + "/invitations", "{}").status == 409)
        let first = await api.send("PATCH", path, #"{"queue": true}"#, ["if-match": tag])
        #expect(first.status == 200 && first.fields["ETag"] != tag)
        #expect(await api.send("PATCH", path, #"{"queue": false}"#, ["if-match": tag]).status == 412)
        let last = try #require(first.fields["ETag"])
        #expect(await api.send("DELETE", path, nil, ["if-match": last]).status == 204)
        await relay.stop()
    }

    @Test func `names with all kinds of signs are found again, by their page and by themselves`() async throws {
        let relay = try await RunningRelay.start(try StateFolder()) { 1_000 }
        let api = Client(relay)
        let names = ["a/b?c=d&e", "100 %", "Ünïcödé 🦉", "+", "\"quoted\"", "~", "a", "A"]
        for name in names {
            let body = String(decoding: try JSONEncoder().encode(["name": name]), as: UTF8.self)
            #expect(await api.send("POST", "/v1/channels", body).status == 201, "\(name)")
            let query = name.utf8.map { "%" + String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
            let found = try await items(api.send("GET", "/v1/channels?name=\(query)"))
            #expect(found.map { $0["name"] as? String } == [name])
        }
        #expect(try await items(api.send("GET", "/v1/channels?name=nowhere")).isEmpty)
        var seen: [String] = []
        var next: String?
        repeat {
            let page = await api.send("GET", "/v1/channels?limit=2" + (next.map { "&after=\($0)" } ?? ""))
            seen += try items(page).compactMap { $0["name"] as? String }
            next = try object(page)["next"] as? String
        } while next != nil
        #expect(seen.count == names.count + 1 && Set(seen) == Set(names + ["Team"]))
        await relay.stop()
    }

    @Test func `the description has the paths and methods that there are, and so has the manual`() throws {
        let description = try #require(
            try JSONSerialization.jsonObject(with: Data(APIEndpoint.description.utf8)) as? Object)
        let paths = try #require(description["paths"] as? [String: Object])
        let manual = try String(
            contentsOf: URL(filePath: #filePath).appending(path: "../../../docs/operators.md").standardized,
            encoding: .utf8)
        let methods = ["get", "post", "patch", "delete", "put", "head"]
        for (path, operations) in paths where path != "/openapi.json" {
            let filled = path.replacing("{channelId}", with: "\(ChannelID())").replacing("{number}", with: "7")
                .replacing("{memberId}", with: String(repeating: "a", count: 32))
            let resource = try #require(APIResource(path: filled[...]), "\(path)")
            let described = operations.keys.filter { methods.contains($0) }.map { $0.uppercased() }
            #expect(Set(described) == Set(resource.methods), "\(path)")
            #expect(manual.contains("`\(path)`"), "\(path) is not in the manual")
            for method in resource.methods {
                let operation = try #require(operations[method.lowercased()] as? Object)
                let parameters = (operation["parameters"] as? [Object] ?? []).compactMap { parameter -> String? in
                    let reference = (parameter["$ref"] as? String)?.split(separator: "/").last.map { String($0) }
                    let all = (description["components"] as? Object)?["parameters"] as? [String: Object]
                    let meant = reference.flatMap { all?[$0] } ?? parameter
                    return meant["in"] as? String == "query" ? meant["name"] as? String : nil
                }
                #expect(Set(parameters) == resource.parameters(method), "\(method) \(path)")
            }
        }
    }

    @Test(.timeLimit(.minutes(2)))
    func `API, commands and reloads at one time leave the records and the relay alike`() async throws {
        let relay = try await RunningRelay.start(try StateFolder()) { 1_000 }
        let api = Client(relay)
        let names = (0..<6).map { "Channel \($0)" }
        @Sendable func declared(_ round: Int) -> [String] { ["Team"] + (round % 3 == 0 ? [] : [names[round % 6]]) }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for seed in 1...3 {
                group.addTask {
                    var random = SeededGenerator(seed: UInt64(seed))
                    for _ in 0..<40 {
                        let name = names.randomElement(using: &random) ?? ""
                        let found = try JSONDecoder().decode(
                            Page.self,
                            from: Data(
                                await api.send("GET", "/v1/channels?name=\(name.replacing(" ", with: "%20"))").body.utf8
                            ))
                        let path = found.items.first.map { "/v1/channels/\($0.id)" }
                        switch (Int.random(in: 0..<3, using: &random), path) {
                        case (0, let path?): _ = await api.send("DELETE", path)
                        case (1, let path?):
                            let mode = ["half-duplex", "cut-in"].randomElement(using: &random) ?? ""
                            _ = await api.send("PATCH", path, #"{"mode": "\#(mode)"}"#)
                        default: _ = await api.send("POST", "/v1/channels", #"{"name": "\#(name)"}"#)
                        }
                    }
                }
            }
            group.addTask {
                var random = SeededGenerator(seed: 9)
                for _ in 0..<40 {
                    let name = names.randomElement(using: &random) ?? ""
                    let request: AdministrationRequest =
                        switch Int.random(in: 0..<3, using: &random) {
                        case 0: .removeChannel(.named(name))
                        case 1: .changeChannel(.named(name), ChannelChange(hasQueue: Bool.random(using: &random)))
                        default: .addChannel(name: name, ChannelChange(keptBursts: 2), isEndToEnd: false)
                        }
                    _ = try await relay.ask(request)
                }
            }
            group.addTask {
                for round in 0..<30 {
                    _ = try await relay.registrar.reload(
                        channels: declared(round), floors: Floors(rules: ["Team": FloorRules(hasQueue: round % 2 == 0)])
                    )
                }
            }
            try await group.waitForAll()
        }
        let last = Floors(rules: ["Team": FloorRules(hasQueue: false)])
        let state = await relay.registrar.state
        let recorded = try state.configurations(state.servedChannels(named: declared(29)), last)
        func facts(_ channels: [RelayChannelConfiguration]) -> [String] {
            channels.map { "\($0.name) \($0.id) \($0.rules) \($0.retention)" }.sorted()
        }
        let served = await relay.server.channelConfigurations
        #expect(facts(recorded) == facts(served))
        #expect(recorded.count > 1)
        // What the records say is what a start finds.
        let marked = try relay.records.channels().filter { $0.isServed || $0.isAdded }.map(\.id)
        #expect(Set(marked) == Set(recorded.map(\.id)))
        await relay.stop()
    }

    private struct Page: Decodable {
        struct Item: Decodable { var id: String }
        var items: [Item]
    }
}
