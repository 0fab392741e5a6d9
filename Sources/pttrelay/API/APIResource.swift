// What a path of the API names, and what can be done with it.
import RelayHTTP
import RelayProtocol

/// Something of the API that has an address.
enum APIResource: Equatable {
    case status
    case channels
    case channel(String)
    case standingLink(String)
    case invitations(String)
    case invitation(String, Int64)
    case members(String)
    case member(String, String)
    case readmission(String, String)

    /// What a path names; nil: nothing.
    init?(path: Substring) {
        let parts = path.split(separator: "/", omittingEmptySubsequences: false).map { String($0) }
        guard parts.count > 2, parts[0].isEmpty, parts[1] == "v1" else { return nil }
        let words = Array(parts.dropFirst(2))
        switch (words.count, words[0]) {
        case (1, "status"): self = .status
        case (1, "channels"): self = .channels
        case (2..., "channels"):
            guard let id = ChannelID(words[1]) else { return nil }
            self.init(of: id.description, Array(words.dropFirst(2)))
        default: return nil
        }
    }

    private init?(of channel: String, _ words: [String]) {
        switch (words.count, words.first) {
        case (0, _): self = .channel(channel)
        case (1, "standing-link"): self = .standingLink(channel)
        case (1, "invitations"): self = .invitations(channel)
        case (2, "invitations"):
            guard let number = Int64(words[1]), number > 0, words[1] == "\(number)" else { return nil }
            self = .invitation(channel, number)
        case (1, "members"): self = .members(channel)
        case (2, "members"):
            guard let member = Self.member(words[1]) else { return nil }
            self = .member(channel, member)
        case (3, "members"):
            guard let member = Self.member(words[1]), words[2] == "readmit" else { return nil }
            self = .readmission(channel, member)
        default: return nil
        }
    }

    /// Only a whole identifier names a member here: a program is not to hit another one by a name.
    private static func member(_ text: String) -> String? {
        let isWhole = text.utf8.count == 2 * MemberID.byteCount
        // 0 to 9, a to f.
        return isWhole && text.utf8.allSatisfy { (48...57).contains($0) || (97...102).contains($0) } ? text : nil
    }

    /// The methods that it has.
    var methods: [String] {
        switch self {
        case .status, .standingLink, .members: ["GET"]
        case .channels, .invitations: ["GET", "POST"]
        case .channel, .member: ["GET", "PATCH", "DELETE"]
        case .invitation: ["GET", "DELETE"]
        case .readmission: ["POST"]
        }
    }

    /// The parameters behind `?` that a method of it has.
    func parameters(_ method: String) -> Set<String> {
        switch (self, method) {
        case (.channels, "GET"): ["after", "limit", "name"]
        case (.invitations, "GET"): ["after", "limit"]
        case (.members, "GET"): ["after", "limit", "removed"]
        case (.invitation, "DELETE"): ["removeMembers"]
        case (.member, "DELETE"): ["keepInvitation"]
        default: []
        }
    }
}

/// The parameters behind `?` of a request.
struct APIQuery {
    private var values: [String: String] = [:]

    /// - Throws: `APIProblem` for what cannot be read, is there twice, or is not one of `known`.
    init(_ path: String, known: Set<String>) throws(APIProblem) {
        guard let mark = path.firstIndex(of: "?") else { return }
        for pair in path[path.index(after: mark)...].split(separator: "&") {
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard let name = Self.decode(parts[0]), let value = Self.decode(parts.count > 1 ? parts[1] : "") else {
                throw APIProblem(400, "query", "The part behind '?' cannot be read; write %XX for UTF-8 bytes.")
            }
            guard known.contains(name) else {
                let names = known.sorted().joined(separator: ", ")
                throw Self.mistake(name, names.isEmpty ? "there are no parameters here" : "it is none of \(names)")
            }
            guard values.updateValue(value, forKey: name) == nil else { throw Self.mistake(name, "it is there twice") }
        }
    }

    static func mistake(_ name: String, _ detail: String) -> APIProblem {
        APIProblem(
            422, "parameter", "A parameter behind '?' has a mistake: \(detail).", errors: [.init(name, detail)])
    }

    /// A text.
    subscript(name: String) -> String? { values[name] }

    /// How many are asked for at most.
    func limit(_ most: Int) throws(APIProblem) -> Int {
        guard let text = values["limit"] else { return min(100, most) }
        guard let number = Int(text), (1...most).contains(number) else {
            throw Self.mistake("limit", "it is 1 to \(most)")
        }
        return number
    }

    /// Yes or no; no where it is not there.
    func flag(_ name: String) throws(APIProblem) -> Bool {
        switch values[name] {
        case nil, "false": false
        case "true": true
        default: throw Self.mistake(name, "it is true or false")
        }
    }

    /// As forms have it: a plus stands for a space.
    private static func decode(_ text: Substring) -> String? {
        PercentEncoding.decode(text.replacing("+", with: " "))
    }
}
