// The bursts that a link's back end keeps, and the errors of asking for them.
import RelayProtocol
import Vocabulary

/// A burst that the relay keeps.
public struct KeptBurst: Sendable, Hashable {
    /// How it is asked for: opaque, good for as long as the relay keeps it.
    public var id: String
    /// The talker.
    public var talker: RelayMember
    /// How long ago it began.
    public var age: Duration
    /// Its duration, or its duration so far while it is in progress.
    public var duration: Duration
    /// Whether its talker still has the floor.
    public var isGoingOn: Bool
    /// Whether this member said it.
    public var isOwn: Bool
    /// Whether this end has the key that it is sealed with.
    public var canBeOpened: Bool
}

/// Why there is no burst, or no list of bursts. The description says what to do.
public enum KeptBurstError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The link to the relay is down.
    case notConnected
    /// The relay keeps no bursts of any channel: it is older than that, or another back end.
    case notOffered
    /// The relay keeps none of this channel.
    case off
    /// The relay does not have that burst, or not any more.
    case notKept
    /// It was sealed with a key that this end never had.
    case noKey
    /// Too much was asked for in a short time.
    case tooMuch
    /// Only members are given bursts.
    case notAMember
    /// The relay did not answer in time, or the link was lost meanwhile.
    case notAnswered
    /// The relay refused for a reason of its own, in its words.
    case refused(String)

    /// What is wrong and what to do, in a sentence.
    public var description: String {
        switch self {
        case .notConnected: "there is no connection to the relay; try again when the channel is ready"
        case .notOffered: "the relay keeps no messages; update it"
        case .off: "the relay keeps no messages of this channel ('keep-bursts' in its configuration)"
        case .notKept: "the relay no longer keeps that message; 'pttctl history' lists those that it keeps"
        case .noKey: "the message was encrypted before this device joined"
        case .tooMuch: "too many messages were asked for; try again in a few seconds"
        case .notAMember: "only members of the channel can hear its messages"
        case .notAnswered: "the relay did not answer in time; try again"
        case .refused(let words): "the relay refused: \(words)"
        }
    }
}
