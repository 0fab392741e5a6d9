// The bounds of an endpoint that speaks plain HTTP/1.1.

/// How much an endpoint without TLS takes on.
struct PlainHTTPLimits: Sendable {
    /// Connections at one time, of all addresses and of one.
    var connections: Int
    var connectionsPerAddress: Int
    /// How long a connection may be silent between two requests.
    var idleTime: Duration
    /// How long a request may take, from its first byte to the last byte of its answer.
    var requestTime: Duration
    /// Bytes of a request's head.
    var headBytes: Int
    /// Bytes of a body that are handed on.
    var bodyBytes: Int
    /// How much of a longer body is read, so that the client gets to read why it is refused.
    var unwantedBodyBytes: Int
}
