// Who is speaking.

/// A remote participant of a channel, as the user interface shows them.
public struct PTParticipant: Hashable, Sendable {
    /// The participant's name, for people.
    public let name: String
    /// The participant's picture.
    public let image: PTImage?

    /// A participant with a name and, if there is one, a picture.
    public init(name: String, image: PTImage?) {
        self.name = name
        self.image = image
    }
}
