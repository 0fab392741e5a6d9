// What the API says when a request is not carried out: problem details (RFC 9457).
import FoundationEssentials

/// A problem with a request, and what to do about it.
public struct APIProblem: Error, Sendable, Equatable {
    /// The HTTP status code.
    public var status: Int
    /// Names the kind of problem, for programs.
    public var kind: String
    /// What is wrong and what to do, for people.
    public var detail: String
    /// The parts of the request that are wrong.
    public var errors: [Part]

    /// A part of a request that is wrong.
    public struct Part: Sendable, Equatable, Encodable {
        /// Where it is: a JSON pointer into the body, or the name of a parameter.
        public var place: String
        /// What is wrong with it and what is right.
        public var detail: String

        /// A part that is wrong.
        public init(_ place: String, _ detail: String) {
            self.place = place
            self.detail = detail
        }
    }

    /// A problem.
    public init(_ status: Int, _ kind: String, _ detail: String, errors: [Part] = []) {
        self.status = status
        self.kind = kind
        self.detail = detail
        self.errors = errors
    }

    private struct Body: Encodable {
        var type: String
        var title: String
        var status: Int
        var detail: String
        var errors: [Part]?
    }

    /// What is the same for every problem with that status.
    private var title: String {
        switch status {
        case 400: "The request cannot be read"
        case 401: "The token is missing or wrong"
        case 404: "There is no such thing"
        case 405: "The method is not allowed here"
        case 409: "The request does not fit what is there"
        case 412: "It has changed meanwhile"
        case 413: "The request is too long"
        case 415: "The body is not JSON"
        case 422: "The request has a mistake"
        case 503: "The relay cannot do this now"
        default: "The relay failed"
        }
    }

    /// The answer.
    public func answer(_ fields: [String: String] = [:]) -> APIAnswer {
        let body = Body(
            type: "urn:pttrelay:problem:\(kind)", title: title, status: status, detail: detail,
            errors: errors.isEmpty ? nil : errors)
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // Texts and numbers: they can always be encoded.
        let text = (try? encoder.encode(body)).map { String(decoding: $0, as: UTF8.self) } ?? "{}"
        var fields = fields
        if status == 503 { fields["Retry-After"] = "2" }
        return APIAnswer(status: status, fields: fields, body: text, mediaType: "application/problem+json")
    }
}
