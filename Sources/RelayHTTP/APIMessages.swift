// What the API's endpoint hands on, and what it gets back for it.

/// A request that showed the token.
public struct APIRequest: Sendable {
    /// The method, in capitals.
    public var method: String
    /// The path, with whatever follows a `?`.
    public var path: String
    /// The header fields by their names in small letters; of those that are there twice, all values with commas.
    public var fields: [String: String]
    /// The body.
    public var body: [UInt8]

    /// A request.
    public init(method: String, path: String, fields: [String: String] = [:], body: [UInt8] = []) {
        self.method = method
        self.path = path
        self.fields = fields
        self.body = body
    }
}

/// What goes back for it.
public typealias APIAnswer = PlainHTTPAnswer

/// What an endpoint of plain HTTP sends back.
public struct PlainHTTPAnswer: Sendable, Equatable {
    /// The HTTP status code.
    public var status: Int
    /// Header fields besides those of every answer.
    public var fields: [String: String]
    /// The body; empty: none.
    public var body: String
    /// What kind of text that is.
    public var mediaType: String

    /// An answer.
    public init(
        status: Int, fields: [String: String] = [:], body: String = "", mediaType: String = "application/json"
    ) {
        self.status = status
        self.fields = fields
        self.body = body
        self.mediaType = mediaType
    }
}
