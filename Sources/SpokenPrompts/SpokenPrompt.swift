// What is said to a person who looks at no screen. Pure.

/// Something that is said.
public enum SpokenPrompt: Hashable, Sendable {
    /// Another channel is the active one: its name.
    case channel(String)
    /// The connection to the channel is lost, and not just for a moment.
    case connectionLost
    /// The connection to the channel is back.
    case connectedAgain
    /// The battery of the accessory of this name is low.
    case batteryLow(String)
    /// Who has just talked.
    case talked(String)

    /// A newer prompt of a kind takes the place of an older one.
    enum Kind: Hashable {
        case channel, connection, talker
        case battery(String)
    }

    var kind: Kind {
        switch self {
        case .channel: .channel
        case .connectionLost, .connectedAgain: .connection
        case .batteryLow(let name): .battery(name)
        case .talked: .talker
        }
    }

    /// How long it may wait until it is said; later it would be no news.
    var waitLimit: Duration {
        switch self {
        case .channel, .connectionLost, .connectedAgain: .seconds(5)
        case .batteryLow: .seconds(60)
        case .talked: .seconds(2)
        }
    }

    /// Whether it is said again from its beginning when it was cut off, while its time is not over. Of the others the person has heard
    /// enough, or does something else.
    var isRepeated: Bool { if case .batteryLow = self { true } else { false } }
}
