// The events, actions and milestones of the relay's rules.
import Cryptography
import MonotonicTime
import RelayProtocol
import Vocabulary

/// One connection to a relay, in the order they came.
public struct ConnectionID: Hashable, Comparable, Sendable, CustomStringConvertible {
    /// The number of the connection.
    public let number: UInt64
    /// Connection `number`.
    public init(number: UInt64) { self.number = number }
    /// Whether `lhs` came earlier.
    public static func < (lhs: Self, rhs: Self) -> Bool { lhs.number < rhs.number }
    /// The number.
    public var description: String { String(number) }
}

extension RelayCore {
    /// What happens to a relay, media aside.
    public enum Event: Sendable {
        /// A returning client sent early data (0-RTT) with its first packet; its ticket is one of the key `PublicKeyPin`,
        /// but somebody may have recorded it. `connected` follows when it is who it says. `carriesMedia`: as there.
        case greeted(ConnectionID, PublicKeyPin, carriesMedia: Bool = true)
        /// A connection completed its handshake with the key `PublicKeyPin`. `carriesMedia`: the client's transport takes datagrams as
        /// long as media packets are.
        case connected(ConnectionID, PublicKeyPin, carriesMedia: Bool = true)
        /// A control message came.
        case message(ConnectionID, ClientMessage)
        /// A control message came of a kind that this relay does not know.
        case unknownMessage(ConnectionID)
        /// Something arrived that is not a control message, or is not allowed at this point.
        case violation(ConnectionID, String)
        /// A connection is gone, by either side or by time-out.
        case disconnected(ConnectionID)
        /// The answer to `Action.enrol`.
        case enrolled(ConnectionID, RelayEnrolment, RelayEnrolmentVerdict)
        /// Those members were removed from the channel, all at once.
        case revoke([MemberID], from: ChannelID)
        /// The member that was removed may come again.
        case readmit(MemberID, to: ChannelID, as: RelayMembership)
        /// The channel gets a new media key.
        case renewMediaKey(ChannelID)
        /// The channel gets other rules as soon as nobody talks on it.
        case setRules(FloorRules, of: ChannelID)
        /// Of the channel's bursts other ones are kept from now on.
        case setRetention(BurstRetention, of: ChannelID)
        /// The channel is deleted: its members get the reason and do not reconnect.
        case end(ChannelID, String)
        /// The channel is deleted and not served any more: as `end`, and nothing is left of it.
        case removeChannel(ChannelID, String)
        /// The channel has another name; members read it when they join again.
        case renameChannel(ChannelID, to: DisplayName)
        /// The creator of the channel admits that newcomer, or refuses it.
        case admit(Bool, MemberID, to: ChannelID)
        /// A client of another shard does something about its push tokens; for the shard that has the registry.
        case pushes(PushEvent)
        /// The registry, which another shard has, sends a push to a connection.
        case push(ServerMessage.Push, to: ConnectionID)
        /// Drain the relay; its members continue at this address.
        case drain(to: RelayPlace?)
        /// The channels go to another relay, which serves them from now on: each when nobody talks on it.
        case move([ChannelID], to: RelayPlace)
        /// Nobody else has a say on the channels any more: see `RelayCore.pause`.
        case resume([ChannelID])
        /// Where the channels of the cluster are that this relay does not serve.
        case setPlaces(ChannelPlaces)
        /// The relay is going down.
        case shutDown
        /// `nextDeadline` has come, or may have.
        case deadline
    }

    /// What a relay has to do.
    public enum Action: Sendable, Equatable {
        /// Send a control message to each of the connections.
        case send(ServerMessage, to: [ConnectionID])
        /// Send control messages, to some of the connections without the first ones.
        case sendSeries(MessageSeries, to: [MessageSeries.Recipient])
        /// Close a connection; `disconnected` need not follow.
        case close(ConnectionID, RelayCloseCode, String)
        /// See whether the invitation makes the client a member, write it down, and answer with `Event.enrolled`.
        case enrol(ConnectionID, RelayEnrolment)
        /// From now on the channel's media go to that connection too, with trailers under the key.
        case startMedia(ConnectionID, channel: Int, key: TrailerKey, ssrc: SSRC)
        /// Take the packets of that source that come outside QUIC with that key's trailers: they are the connection's.
        case takeMedia(ConnectionID, key: TrailerKey, ssrc: SSRC)
        /// From now on no media go to that connection.
        case stopMedia(ConnectionID, channel: Int)
        /// Send a packet to every listener of the channel but its sender; it was read at `arrived`.
        case forward([UInt8], channel: Int, except: ConnectionID, arrived: Instant)
        /// Open a stream to a connection and send this on it, to its end.
        case answerRepair(ConnectionID, [UInt8])
        /// The same in answer to a request for a burst, which is to be refused when the connection takes no more now.
        case answerBurst(ConnectionID, BurstRequestID, [UInt8])
        /// For the registry of push tokens, which another shard has.
        case pushes(PushEvent)
        /// The channel has gone to another relay, with all its members.
        case moved(ChannelID)
        /// Tell the log.
        case note(RelayMilestone)

        /// Whether it changes who gets media.
        var isMediaSwitch: Bool {
            switch self {
            case .startMedia, .stopMedia: true
            default: false
            }
        }
    }

    /// What is to be done with a media packet.
    public enum MediaDecision: Sendable, Equatable {
        /// Send it to every listener of the channel but its sender.
        case forward(channel: Int)
        /// Drop it; it is counted.
        case drop(MediaDrop)
    }
}

/// What the parts of a relay's rules say is to be done.
typealias RelayAction = RelayCore.Action

/// The milestones of a relay's log, in order.
public enum RelayMilestone: Sendable, Equatable {
    /// A member came. `replaced`: its older connection was closed for it.
    case memberJoined(channel: DisplayName, member: MemberID, name: DisplayName, ssrc: SSRC, replaced: Bool)
    /// A client was not let in.
    case joinRefused(ConnectionID, JoinRefusal, String)
    /// An invitation made a client a member.
    case memberEnrolled(channel: DisplayName, member: MemberID, name: DisplayName)
    /// A member was removed, and `connections` connections of it were closed.
    case memberRevoked(channel: DisplayName, member: MemberID, connections: Int)
    /// A member left or lost its connection.
    case memberLeft(channel: DisplayName, member: MemberID)
    /// A join request waits for the answer of the channel's creator.
    case joinPending(channel: DisplayName, member: MemberID, name: DisplayName)
    /// Nobody needs to say so any more.
    case joinSettled(channel: DisplayName, member: MemberID, PendingJoinOutcome)
    /// A newcomer gave a wrong code.
    case wrongCode(channel: DisplayName, member: MemberID)
    /// The floor was granted.
    case floorGranted(channel: DisplayName, member: MemberID, requestID: FloorRequestID)
    /// The floor was refused.
    case floorDenied(channel: DisplayName, member: MemberID, requestID: FloorRequestID, FloorDenyCause)
    /// A request for the floor waits, at this place from 1.
    case floorQueued(channel: DisplayName, member: MemberID, requestID: FloorRequestID, position: Int)
    /// The floor was taken back.
    case floorRevoked(channel: DisplayName, member: MemberID, requestID: FloorRequestID, FloorRevokeCause)
    /// The first packet of a burst is about to be forwarded.
    case firstPacket(channel: DisplayName, ssrc: SSRC, sequence: UInt16)
    /// A burst is over and the floor is idle.
    case burstEnded(channel: DisplayName, RelayBurstSummary)
    /// The channel's floor has other rules.
    case floorRulesChanged(channel: DisplayName, FloorRules)
    /// A listener did not report, so its media stop.
    case listenerSilent(channel: DisplayName, member: MemberID)
    /// A connection broke the protocol and is closed.
    case violation(ConnectionID, String)
    /// The channel has a new media key.
    case mediaKeyRenewed(channel: DisplayName, epoch: UInt16)
    /// A client came for pushes only.
    case pushClientJoined(channel: DisplayName, member: MemberID)
    /// A push token was registered, for the first time or again.
    case pushTokenRegistered(member: MemberID, PushToken, PushTopic)
    /// A push token was not registered.
    case pushTokenRefused(member: MemberID, PushToken, PushRefusal)
    /// A push token is dead.
    case pushTokenDead(member: MemberID, PushToken)
    /// A push was accepted, or went out at last.
    case push(PushToken, PushID, PushFate)
}

/// What a burst came to, as the relay saw it.
public struct RelayBurstSummary: Sendable, Equatable {
    /// The source that talked.
    public var ssrc: SSRC
    /// Why it ended.
    public var reason: FloorControlStateMachine.EndReason
    /// Packets forwarded.
    public var packets: Int
    /// Bytes forwarded, RTP headers included.
    public var bytes: Int
    /// Packets that did not reach the relay.
    public var lost: Int
    /// Listeners when it ended.
    public var listeners: Int
    /// From the first packet to the end; zero without packets.
    public var duration: Duration
}

/// A series of control messages, encoded once for all recipients.
public struct MessageSeries: Sendable, Equatable {
    /// A recipient of a series, and the number of leading messages that it already knows.
    public struct Recipient: Sendable, Equatable {
        /// The connection that they are sent to.
        public var connection: ConnectionID
        /// Of the messages, the first that it gets.
        public var first: Int
        /// `connection` gets the messages from number `first` on.
        public init(_ connection: ConnectionID, from first: Int = 0) {
            self.connection = connection
            self.first = first
        }
    }

    /// Maximum bytes of a piece, unless it is a single message.
    static let pieceBytes = 16_384

    /// All of them, each with its length in front.
    public private(set) var bytes: [UInt8] = []
    /// Where each one ends.
    private(set) var ends: [Int] = []

    /// These messages, framed.
    public init(_ frames: [[UInt8]] = []) {
        for frame in frames { append(frame) }
    }

    /// How many there are.
    public var count: Int { ends.count }

    /// Adds one, framed.
    mutating func append(_ frame: [UInt8]) {
        bytes += frame
        ends.append(bytes.count)
    }

    /// Each message by itself, without its length.
    var messages: [[UInt8]] {
        var start = 0
        return ends.map { end in
            defer { start = end }
            return Array(bytes[start + 4..<end])
        }
    }

    /// The messages from number `first` on, cut between messages.
    func pieces(from first: Int = 0) -> [[UInt8]] {
        var pieces: [[UInt8]] = []
        var start = first == 0 ? 0 : ends[first - 1]
        var end = start
        for next in ends[first...] {
            if next - start > Self.pieceBytes, end > start {
                pieces.append(Array(bytes[start..<end]))
                start = end
            }
            end = next
        }
        if end > start { pieces.append(Array(bytes[start..<end])) }
        return pieces
    }
}
