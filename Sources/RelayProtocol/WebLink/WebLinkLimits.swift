// The numbers of a link over TLS (docs/relay-protocol.md, section 21).

/// Bounds and names that both ends of a link over TLS share.
public enum WebLinkLimits {
    /// The path of the WebSocket at the relay.
    public static let path = "/pttd/1"
    /// The WebSocket's subprotocol.
    public static let subprotocol = "pttd.1"
    /// The longest WebSocket message, in bytes.
    public static let messageBytes = 16_640
    /// The longest part of an answer that is sent in one message, in bytes.
    public static let answerPartBytes = 16_384
    /// How long media may wait in an end's own queue before they are dropped.
    public static let mediaWait: Duration = .milliseconds(500)
    /// The most that waits there, in bytes.
    public static let mediaQueueBytes = 64 * 1_024
    /// What the kernel may hold unsent (TCP_NOTSENT_LOWAT), in bytes: a quarter of a second of speech. The queue that drops old speech
    /// begins behind it.
    public static let kernelBacklogBytes = 4 * 1_024
    /// A connection on which nothing has come for this time is closed by the relay.
    public static let idleTimeout: Duration = .seconds(45)
    /// From the upgrade to the client's proof.
    public static let proofTimeout: Duration = .seconds(10)
    /// Media packets that the relay acknowledges at once…
    public static let acknowledgementThreshold = 10
    /// …and how long after the first one it acknowledges fewer.
    public static let acknowledgementDelay: Duration = .milliseconds(25)
    /// The code of the WebSocket's Close frame is this plus that of the relay protocol (RFC 6455, section 7.4.2: 4000 to
    /// 4999 are for private use).
    public static let closeCodeBase: UInt16 = 4_000
}
