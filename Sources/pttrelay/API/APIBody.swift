// The JSON object that a request of the API brings. Every mistake in it is told at once.
import FoundationEssentials
import RelayHTTP
import RelayProtocol
import RelayServer
import RelayStore

/// A value of JSON.
private enum JSONValue: Decodable {
    case null
    case boolean(Bool)
    case integer(Int64)
    case text(String)
    case other

    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if container.decodeNil() {
            self = .null
        } else if let value = try? container.decode(Bool.self) {
            self = .boolean(value)
        } else if let value = try? container.decode(Int64.self) {
            self = .integer(value)
        } else if let value = try? container.decode(String.self) {
            self = .text(value)
        } else {
            self = .other
        }
    }
}

/// The members of the object, which are taken out one by one.
struct APIBody {
    private var values: [String: JSONValue]
    private var errors: [APIProblem.Part] = []

    /// - Throws: `APIProblem` for a body that is no JSON object.
    init(_ request: APIRequest) throws(APIProblem) {
        let kind = request.fields["content-type"]?.prefix { $0 != ";" && $0 != " " }.lowercased()
        guard kind == "application/json" || kind == "application/merge-patch+json" else {
            throw APIProblem(415, "media-type", "Send JSON, with 'Content-Type: application/json'.")
        }
        guard let values = try? JSONDecoder().decode([String: JSONValue].self, from: Data(request.body)) else {
            throw APIProblem(400, "json", "The body is not a JSON object; send one, such as {\"name\": \"Yard\"}.")
        }
        self.values = values
    }

    /// Takes a value out; nil: it is not there, or has a mistake, which is noted.
    private mutating func take<T>(_ name: String, _ expected: String, _ read: (JSONValue) -> T?) -> T? {
        guard let value = values.removeValue(forKey: name) else { return nil }
        if let result = read(value) { return result }
        errors.append(.init("/\(Self.escaped(name))", "it is \(expected)"))
        return nil
    }

    /// As a JSON pointer has it (RFC 6901).
    private static func escaped(_ name: String) -> String {
        name.replacing("~", with: "~0").replacing("/", with: "~1")
    }

    mutating func integer(_ name: String, in range: ClosedRange<Int>) -> Int? {
        take(name, "a whole number from \(range.lowerBound) to \(range.upperBound)") { value in
            guard case .integer(let number) = value, let number = Int(exactly: number), range.contains(number) else {
                return nil
            }
            return number
        }
    }

    mutating func flag(_ name: String) -> Bool? {
        take(name, "true or false") { value in
            guard case .boolean(let value) = value else { return nil }
            return value
        }
    }

    mutating func name(_ name: String) -> String? {
        take(name, "1 to \(DisplayName.byteCountMaximum) bytes of text without control characters") { value in
            guard case .text(let text) = value, DisplayName(text) != nil else { return nil }
            return text
        }
    }

    mutating func mode(_ name: String) -> ChannelSettings.Mode? {
        take(name, "one of " + ChannelSettings.Mode.allCases.map(\.rawValue).joined(separator: ", ")) { value in
            guard case .text(let text) = value else { return nil }
            return ChannelSettings.Mode(rawValue: text)
        }
    }

    /// The settings of a channel.
    mutating func channel() -> ChannelChange {
        ChannelChange(
            name: name("name"), mode: mode("mode"), hasQueue: flag("queue"),
            preemptionStep: integer("preemptionStep", in: 0...254).map { UInt8($0) },
            keptBursts: integer("keepBursts", in: FloorSettings.retainedBursts),
            keptMilliseconds: integer("keepSeconds", in: 0...86_400).map { Int64($0) * 1_000 })
    }

    /// What a member may do, and is called.
    mutating func member() -> MemberChange {
        MemberChange(name: name("name"), priority: priority(), isListenOnly: flag("listenOnly"))
    }

    mutating func priority() -> UInt8? {
        integer("priority", in: 0...Int(RelayMembership.priorityMaximum)).map { UInt8($0) }
    }

    /// The terms of an invitation.
    mutating func terms() -> AdministrationRequest.Terms {
        .init(
            lifetime: integer("expiresIn", in: 60...3_650 * 86_400).map { Int64($0) },
            uses: integer("uses", in: 1...InvitationTerms.usesMaximum), priority: priority() ?? 0,
            isListenOnly: flag("listenOnly") ?? false)
    }

    /// - Parameter required: What has to be there, as it was taken.
    /// - Throws: `APIProblem` with all mistakes.
    func finish(required: [String: Any?] = [:]) throws(APIProblem) {
        var errors = errors
        for (name, value) in required where value == nil && !errors.contains(where: { $0.place == "/\(name)" }) {
            errors.append(.init("/\(name)", "it is missing"))
        }
        errors += values.keys.sorted().map { .init("/\(Self.escaped($0))", "it is not known here") }
        guard let first = errors.first else { return }
        throw APIProblem(422, "body", "The body has a mistake: \(first.place): \(first.detail).", errors: errors)
    }
}
