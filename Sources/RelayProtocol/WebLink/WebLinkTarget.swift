// What the request for a link over TLS asks for (docs/relay-protocol.md, section 21.1).

/// The path of the request, with what it says of the channel.
///
/// A link that may lead to any relay of a cluster names the share of its channel: the relay passes it on to the one that serves it.
public struct WebLinkTarget: Sendable, Hashable {
    /// The number of the channel's share (`ChannelID.share`); nil: the link is for the relay that takes it.
    public var share: Int?
    /// Whether another relay has passed the link on. Nobody does so again.
    public var isPassedOn = false

    /// A link to any relay, for a channel of that share.
    public init(share: Int?) { self.share = share }

    /// What the target of a request says; nil: it is no link.
    public init?(target: String) {
        let parts = target.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.first.map(String.init) == WebLinkLimits.path else { return nil }
        for item in parts.dropFirst().first?.split(separator: "&") ?? [] {
            if item == Self.passedOn {
                isPassedOn = true
            } else if item.hasPrefix(Self.shareName), let number = Int(item.dropFirst(Self.shareName.count)),
                (0..<ChannelID.shareCount).contains(number)
            {
                share = number
            }
        }
    }

    /// The target of the request.
    public var text: String {
        guard let share else { return WebLinkLimits.path }
        return "\(WebLinkLimits.path)?\(Self.shareName)\(share)" + (isPassedOn ? "&\(Self.passedOn)" : "")
    }

    private static let shareName = "share="
    private static let passedOn = "passed-on"
}
