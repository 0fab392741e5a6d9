// From a request of the API to a request of the operator, and from its outcome to an answer. It has no rule of its own: what a command
// may not do, the API may not do either.
import Cryptography
import FoundationEssentials
import Logging
import RelayHTTP
import RelayProtocol
import RelayStore
import Version

/// Answers the requests of the API.
struct APIResponder: Sendable {
    /// Carries a request out, as for the commands: `Registrar.perform`.
    let perform: @Sendable (AdministrationRequest) async throws -> AdministrationResponse
    let logger: Logger
    private let turns = APITurns()

    init(
        logger: Logger, perform: @escaping @Sendable (AdministrationRequest) async throws -> AdministrationResponse
    ) {
        self.logger = logger
        self.perform = perform
    }

    /// Answers one request.
    func answer(_ request: APIRequest) async -> APIAnswer {
        let answer: APIAnswer
        do {
            answer = try await respond(request)
        } catch {
            let problem = (error as? APIProblem) ?? APIProblem(error)
            let fields = problem.status == 405 ? ["Allow": Self.allowed(request)] : [:]
            answer = problem.answer(fields)
        }
        let path = request.path.prefix { $0 != "?" }
        logger.log(
            level: request.method == "GET" ? .debug : .info, "API request",
            metadata: ["method": "\(request.method)", "path": "\(path.prefix(200))", "status": "\(answer.status)"])
        return answer
    }

    private static func allowed(_ request: APIRequest) -> String {
        let methods = APIResource(path: request.path.prefix { $0 != "?" })?.methods ?? []
        return (methods + (methods.contains("GET") ? ["HEAD"] : [])).joined(separator: ", ")
    }

    private func respond(_ request: APIRequest) async throws -> APIAnswer {
        guard let resource = APIResource(path: request.path.prefix { $0 != "?" }) else {
            throw APIProblem(404, "path", "Nothing is at this address; /openapi.json describes what there is.")
        }
        guard resource.methods.contains(request.method) else {
            let methods = resource.methods.joined(separator: ", ")
            throw APIProblem(405, "method", "This has no method \(request.method); it has \(methods).")
        }
        let query = try APIQuery(request.path, known: resource.parameters(request.method))
        switch resource {
        case .status: return try await status()
        case .channels:
            return request.method == "GET" ? try await channels(query) : try await addChannel(request)
        case .channel(let id): return try await channel(id, request)
        case .standingLink(let id): return try await standingLink(id)
        case .invitations(let id):
            return request.method == "GET" ? try await invitations(id, query) : try await invite(id, request)
        case .invitation(let id, let number): return try await invitation(id, number, request, query)
        case .members(let id): return try await members(id, query)
        case .member(let id, let member): return try await self.member(id, member, request, query)
        case .readmission(let id, let member):
            return try await answer(
                member: ask(.readmit(channel: .id(id), member: member, MemberChange())))
        }
    }

    private func ask(_ request: AdministrationRequest) async throws -> AdministrationResponse {
        try await turns.take()
        do {
            let response = try await perform(request)
            await turns.pass()
            return response
        } catch {
            await turns.pass()
            throw error
        }
    }

    // MARK: Status

    private func status() async throws -> APIAnswer {
        guard case .status(let status) = try await ask(.status) else { throw Self.unexpected }
        return try Self.answer(APIStatus(status, version: Version.text))
    }

    // MARK: Channels

    private func channels(_ query: APIQuery) async throws -> APIAnswer {
        let limit = try query.limit(AdministrationLimits.channelsPerResponse)
        if let name = query["name"] {
            do {
                guard case .channel(let line) = try await ask(.channel(.named(name))) else { throw Self.unexpected }
                return try Self.answer(APIPage(items: [APIChannel(line)], next: nil))
            } catch RelayStoreError.unknownChannel {
                return try Self.answer(APIPage<APIChannel>(items: [], next: nil))
            }
        }
        var after: String?
        if let text = query["after"] {
            // Names have all kinds of signs; whoever asks need not know what follows what.
            guard let name = Base64URL.decode(text).flatMap({ String(validating: $0, as: UTF8.self) }) else {
                throw APIQuery.mistake("after", "it is the 'next' of an earlier answer")
            }
            after = name
        }
        guard case .channels(let lines, let next) = try await ask(.channels(after: after, limit: limit)) else {
            throw Self.unexpected
        }
        return try Self.answer(
            APIPage(items: lines.map(APIChannel.init), next: next.map { Base64URL.encode(Array($0.utf8)) }))
    }

    private func addChannel(_ request: APIRequest) async throws -> APIAnswer {
        var body = try APIBody(request)
        let change = body.channel()
        let isEndToEnd = body.flag("endToEnd") ?? false
        try body.finish(required: ["name": change.name])
        let response = try await ask(
            .addChannel(
                name: change.name ?? "", change, isEndToEnd: isEndToEnd, retry: try Self.retry(request)))
        guard case .added(let line, let isNew) = response else { throw Self.unexpected }
        var answer = try Self.answer(channel: line, status: isNew ? 201 : 200)
        answer.fields["Location"] = "/v1/channels/\(line.id)"
        return answer
    }

    private func channel(_ id: String, _ request: APIRequest) async throws -> APIAnswer {
        let response: AdministrationResponse
        switch request.method {
        case "PATCH":
            var body = try APIBody(request)
            let change = body.channel()
            try body.finish()
            response = try await ask(.changeChannel(.id(id), change, tag: try Self.tag(request)))
        case "DELETE":
            _ = try await ask(.removeChannel(.id(id), tag: try Self.tag(request)))
            return APIAnswer(status: 204)
        default: response = try await ask(.channel(.id(id)))
        }
        guard case .channel(let line) = response else { throw Self.unexpected }
        return try Self.answer(channel: line)
    }

    private static func answer(
        channel line: AdministrationResponse.ChannelLine, status: Int = 200
    ) throws -> APIAnswer {
        var answer = try answer(APIChannel(line), status: status)
        answer.fields["ETag"] = "\"\(line.tag)\""
        return answer
    }

    // MARK: Invitations

    private func standingLink(_ id: String) async throws -> APIAnswer {
        guard case .invitation(let made) = try await ask(.invite(channel: .id(id), terms: nil, key: nil)) else {
            throw Self.unexpected
        }
        return try Self.answer(APILink(link: made.link))
    }

    private func invitations(_ id: String, _ query: APIQuery) async throws -> APIAnswer {
        var before: Int64?
        if let text = query["after"] {
            guard let number = Int64(text), number > 0 else {
                throw APIQuery.mistake("after", "it is the 'next' of an earlier answer")
            }
            before = number
        }
        let limit = try query.limit(AdministrationLimits.invitationsPerResponse)
        let response = try await ask(.invitations(channel: .id(id), before: before, limit: limit))
        guard case .invitations(let lines, let next) = response else { throw Self.unexpected }
        return try Self.answer(APIPage(items: lines.map(APIInvitation.init), next: next.map { "\($0)" }))
    }

    private func invite(_ id: String, _ request: APIRequest) async throws -> APIAnswer {
        var body = try APIBody(request)
        let terms = body.terms()
        try body.finish()
        let response = try await ask(
            .invite(channel: .id(id), terms: terms, key: nil, retry: try Self.retry(request)))
        guard case .invitation(let made) = response, let number = made.number else { throw Self.unexpected }
        var answer = try Self.answer(
            APILink(link: made.link, number: number, expiresAt: made.expiresAt.map(apiTime)),
            status: made.isNew ? 201 : 200)
        answer.fields["Location"] = "/v1/channels/\(id)/invitations/\(number)"
        return answer
    }

    private func invitation(
        _ id: String, _ number: Int64, _ request: APIRequest, _ query: APIQuery
    ) async throws -> APIAnswer {
        if request.method == "GET" {
            guard case .invitationLine(let line) = try await ask(.invitation(channel: .id(id), number: number)) else {
                throw Self.unexpected
            }
            return try Self.answer(APIInvitation(line))
        }
        if try query.flag("removeMembers") {
            let response = try await ask(.revokeInvited(channel: .id(id), invitation: number))
            guard case .removedInvited(let count, let removal) = response else { throw Self.unexpected }
            return try Self.answer(
                APIRemoval(
                    removedMembers: count, invitationWithdrawn: removal.hasWithdrawnInvitation,
                    newStandingInvitation: removal.hasNewStandingInvitation))
        }
        guard case .invitationLine(let line) = try await ask(.invitation(channel: .id(id), number: number)) else {
            throw Self.unexpected
        }
        // A repeated request finds what it wanted.
        if !line.isWithdrawn { _ = try await ask(.withdraw(channel: .id(id), invitation: number)) }
        return try Self.answer(
            APIRemoval(
                removedMembers: 0, invitationWithdrawn: !line.isWithdrawn,
                newStandingInvitation: line.isStanding && !line.isWithdrawn))
    }

    // MARK: Members

    private func members(_ id: String, _ query: APIQuery) async throws -> APIAnswer {
        let after = query["after"]
        if let after, Hexadecimal.decode(after).flatMap({ MemberID(bytes: $0) }) == nil {
            throw APIQuery.mistake("after", "it is the 'next' of an earlier answer")
        }
        let withRemoved = try query.flag("removed")
        let limit = try query.limit(AdministrationLimits.membersPerResponse)
        let response = try await ask(.members(channel: .id(id), after: after, limit: limit))
        guard case .members(let lines, let next) = response else { throw Self.unexpected }
        let shown = lines.filter { withRemoved || $0.revokedAt == nil }
        return try Self.answer(APIPage(items: shown.map(APIMember.init), next: next))
    }

    private func member(
        _ id: String, _ member: String, _ request: APIRequest, _ query: APIQuery
    ) async throws -> APIAnswer {
        switch request.method {
        case "PATCH":
            var body = try APIBody(request)
            let change = body.member()
            try body.finish()
            return try await answer(
                member: ask(
                    .changeMember(channel: .id(id), member: member, change, tag: try Self.tag(request))))
        case "DELETE":
            let keeps = try query.flag("keepInvitation")
            let response = try await ask(
                .revoke(channel: .id(id), member: member, keepsInvitation: keeps, tag: try Self.tag(request)))
            guard case .removed(_, let removal) = response else { throw Self.unexpected }
            return try Self.answer(
                APIRemoval(
                    removedMembers: removal.wasRevoked ? 0 : 1, invitationWithdrawn: removal.hasWithdrawnInvitation,
                    newStandingInvitation: removal.hasNewStandingInvitation))
        default: return try await answer(member: ask(.member(channel: .id(id), member: member)))
        }
    }

    private func answer(member response: AdministrationResponse) async throws -> APIAnswer {
        guard case .member(let line) = response else { throw Self.unexpected }
        var answer = try Self.answer(APIMember(line))
        answer.fields["ETag"] = "\"\(line.tag)\""
        return answer
    }

    // MARK: Parts of requests and answers

    /// Names a request that may come twice.
    private static func retry(_ request: APIRequest) throws(APIProblem) -> String? {
        guard let key = request.fields["idempotency-key"] else { return nil }
        guard (1...64).contains(key.utf8.count), key.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
            throw APIProblem(
                422, "idempotency-key", "An Idempotency-Key has 1 to 64 visible ASCII signs; a UUID is one.",
                errors: [.init("Idempotency-Key", "it has 1 to 64 visible ASCII signs")])
        }
        return key
    }

    /// What has to be so still; nil: whatever it is.
    private static func tag(_ request: APIRequest) throws(APIProblem) -> String? {
        guard let field = request.fields["if-match"], field != "*" else { return nil }
        let tag = field.dropFirst().dropLast()
        guard field.first == "\"", field.last == "\"", !tag.isEmpty, tag.allSatisfy("0123456789abcdef".contains) else {
            throw APIProblem(
                422, "if-match", "If-Match is the ETag of an earlier answer, in quotes; read it again.",
                errors: [.init("If-Match", "it is not an ETag of this API")])
        }
        return String(tag)
    }

    private static func answer(_ value: some Encodable, status: Int = 200) throws -> APIAnswer {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return APIAnswer(status: status, body: String(decoding: try encoder.encode(value), as: UTF8.self))
    }

    private static let unexpected = APIProblem(
        500, "internal", "The relay gave an answer of another kind; see its log.")
}

/// Lets some requests of the API through at a time, so that commands are not kept waiting. The connections bound those that wait.
private actor APITurns {
    private static let atOnce = 4
    private static let waitingMaximum = 256
    private var running = 0
    private var waiting: [CheckedContinuation<Void, Never>] = []

    func take() async throws {
        guard running >= Self.atOnce else {
            running += 1
            return
        }
        guard waiting.count < Self.waitingMaximum else {
            throw APIProblem(503, "busy", "Too many requests at once; try again.")
        }
        await withCheckedContinuation { waiting.append($0) }
    }

    func pass() {
        if waiting.isEmpty { running -= 1 } else { waiting.removeFirst().resume() }
    }
}

extension APIProblem {
    /// What the relay says of a request that it does not carry out.
    init(_ error: any Error) {
        switch error {
        case let error as RelayStoreError: self.init(error)
        case let error as ForwardedError: self.init(error.status, error.kind, error.detail)
        case let error as RelayStateError where error.mayPass: self.init(503, "busy", Self.sentence("\(error)"))
        default: self.init(500, "internal", Self.sentence("\(error)"))
        }
    }

    private init(_ error: RelayStoreError) {
        let words = Self.sentence("\(error)")
        switch error {
        case .noChannel, .unknownChannel:
            self.init(404, "unknown-channel", "There is no such channel; GET /v1/channels lists them.")
        case .unknownMember:
            self.init(404, "unknown-member", "The channel has no such member; its 'members' lists them.")
        case .unknownInvitation:
            self.init(404, "unknown-invitation", "The channel has no such invitation; its 'invitations' lists them.")
        case .channelExists:
            self.init(409, "name-taken", "\(words) Choose another name, or find it with GET /v1/channels?name=.")
        case .declared: self.init(409, "declared", words)
        case .memberRemoved:
            self.init(409, "member-removed", "The member was removed from the channel; POST to its 'readmit' first.")
        case .changedSince: self.init(412, "changed", words)
        case .retryDiffers: self.init(422, "idempotency-key", words)
        case .limit: self.init(409, "limit", words)
        case .wrongKind: self.init(409, "wrong-kind", words)
        case .notWritten, .notNow: self.init(503, "records", words)
        case .unusable, .missing, .replaced, .unsafe, .damaged, .newer, .differs, .inCluster:
            self.init(500, "records", words)
        }
    }

    private static func sentence(_ text: String) -> String {
        (text.first.map { $0.uppercased() } ?? "") + text.dropFirst() + (text.hasSuffix(".") ? "" : ".")
    }
}
