// What a request for the floor would meet.

/// What is known about the floor before somebody begins, in addition to who is being heard.
public enum FloorOutlook: Hashable, Sendable {
    /// Nothing, or that the floor is taken for good: a participant who is active in half duplex is speaking, and a
    /// begin is refused, as Apple has it.
    case unknown
    /// A request would be granted. A participant who is active has finished and is heard to the end only: that stops
    /// for a begin.
    case idle
    /// Somebody has it, and a begin can wait until it is free.
    case queueable
    /// This device may not talk on the channel: a begin would be denied, whoever has the floor.
    case listenOnly
    /// The link is lost and may return in a moment. The link holds a begin until then, and refuses it if the link does
    /// not return. So a begin is possible although the service is not ready.
    case reconnecting
}
