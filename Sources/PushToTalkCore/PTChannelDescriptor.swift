// How a channel is shown.

/// The name and picture by which the user interface shows a channel.
public struct PTChannelDescriptor: Hashable, Sendable {
    /// The channel's name, for people.
    public let name: String
    /// The channel's picture.
    public let image: PTImage?

    /// A descriptor with a name and, if there is one, a picture.
    public init(name: String, image: PTImage?) {
        self.name = name
        self.image = image
    }
}
