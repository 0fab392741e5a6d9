// The interface between pttd and any push-to-talk back end: what a link to a channel can do and what it tells.
import MonotonicTime
import Reactor
import Vocabulary

/// A link to one channel of one push-to-talk back end; `RelayClient` is the one to our own relay.
///
/// It lives on an event loop. Events are delivered to the handler on that loop, in order, and never from within a
/// call to the link, so a handler may call the link and a caller may hold its own state open while calling.
/// A link that is started stays so, reconnecting by itself, until `leave`.
public protocol RelayLink: Actor {
    /// The loop it lives on and calls its handler on.
    nonisolated var loop: EventLoop { get }

    /// Sets the handler for events. Set it before `join`.
    func setEventHandler(_ handler: @escaping @Sendable (RelayLinkEvent) -> Void)

    /// Connects and joins the channel, again and again after losses, until `leave`. No effect when started.
    func join()

    /// Begins a burst: asks for the floor and holds the frames sent until it is granted. It ends at once unless the
    /// link `RelayLinkState.mayBeReadySoon`; then it waits for the link, for as long as for an answer.
    ///
    /// After `floorQueued` the frames sent so far are erased, and the burst waits for `floorGranted` until it is ended.
    /// Stop recording until then, because frames captured before the grant are erased as well. Exactly one
    /// `transmissionEnded` always follows for the returned burst.
    ///
    /// - Parameter priority: `FloorPriority`; it holds for all of the burst.
    @discardableResult
    func beginBurst(priority: UInt8) -> BurstID

    /// Takes the next frame of the burst begun last. Frames without a burst are dropped and counted.
    func send(_ frame: OutgoingFrame)

    /// Ends the burst after the frames sent so far, which are still delivered. No effect without one.
    func endBurst()

    /// Erases what is held of the burst begun last and gives the floor back. No effect without one.
    func abortBurst()

    /// Requests the list of the bursts that the relay keeps, the newest first. `answer` runs once, on the loop, and
    /// never during this call.
    func keptBursts(_ answer: @escaping @Sendable (Result<[KeptBurst], KeptBurstError>) -> Void)

    /// Requests the frames of one of them by its `KeptBurst.id`; answered in the same way. The link reports no other
    /// event for them.
    func fetchBurst(_ id: String, _ answer: @escaping @Sendable (Result<[ReceivedFrame], KeptBurstError>) -> Void)

    /// Leaves the channel and closes the connection. `join` may be called again.
    func leave()
}

/// How much a burst matters to a relay that chooses between requests.
public enum FloorPriority {
    /// What everybody asks with.
    public static let normal: UInt8 = 0
    /// An emergency; nothing else asks with it.
    public static let emergency: UInt8 = 255
}

/// One transmission of this end, in the order begun.
public struct BurstID: Hashable, Sendable, CustomStringConvertible {
    /// The number of the burst on this link, from 1.
    public let number: UInt32
    /// Burst `number`.
    public init(number: UInt32) { self.number = number }
    /// "burst 7".
    public var description: String { "burst \(number)" }
}

/// Whether a link can carry speech.
public enum RelayLinkState: Sendable, Equatable {
    /// Not started, or left.
    case stopped
    /// Connecting or joining.
    case connecting
    /// Joined: bursts can begin.
    case ready(channelName: String)
    /// Not connected; tries again after `retryAfter`, or waits for a new `join` when `nil`.
    case unavailable(RelayLinkError, retryAfter: Duration?)

    /// Whether a burst that begins now may still be sent: the link is not ready, but nobody has refused it either.
    public var mayBeReadySoon: Bool {
        switch self {
        case .connecting: true
        case .unavailable(let error, let retryAfter): retryAfter != nil && !error.isRefusal
        case .ready, .stopped: false
        }
    }
}

/// Why there is no link. The description says what to do.
public enum RelayLinkError: Error, Sendable, Equatable, CustomStringConvertible {
    /// No answer from the relay's address.
    case unreachable(String)
    /// The relay at that address does not have the key that the invitation names.
    case wrongRelayKey
    /// The relay does not let this end in: no such channel, or the invitation does not open it any more.
    case invitationRefused(String)
    /// The channel's creator has deleted it.
    case channelEnded(String)
    /// The relay or the channel takes no more members now.
    case full(String)
    /// The relay takes nobody in just now: it is going down, or has too much to do.
    case busy(String)
    /// This end and the relay speak different versions of the protocol.
    case versionMismatch(String)
    /// Another connection with this end's key took its place.
    case replaced
    /// The relay closed the connection, which had been working.
    case closedByRelay(String)
    /// The connection was lost, or the relay went silent.
    case lost(String)
    /// The relay sent something that the protocol does not allow.
    case protocolViolation(String)
    /// This machine could not open the connection.
    case system(String)

    /// The relay ends in good order: another one may take its place at once.
    public static let goesDown = closedByRelay("it is going down")

    /// Whether somebody said no, who has to think otherwise before the next attempt succeeds; else the network may be all.
    public var isRefusal: Bool {
        switch self {
        case .wrongRelayKey, .invitationRefused, .channelEnded, .full, .versionMismatch, .replaced: true
        case .unreachable, .busy, .closedByRelay, .lost, .protocolViolation, .system: false
        }
    }

    /// What is wrong and what to do, in one or two sentences.
    public var description: String {
        switch self {
        case .unreachable(let detail):
            "the relay does not answer (\(detail)); check the address in the invitation, "
                + "and that the network lets UDP or TLS through to it"
        case .wrongRelayKey:
            "the relay at this address has another key than the invitation names; ask for a new invitation, "
                + "and distrust the network if nobody reinstalled the relay"
        case .invitationRefused(let phrase):
            "the relay refused the invitation (\(phrase)); ask for a new one: 'pttrelay invite CHANNEL' prints it"
        case .channelEnded(let phrase):
            "the channel was deleted" + (phrase.isEmpty ? "" : " (\(phrase))")
        case .full(let phrase):
            "the relay accepts no more members (\(phrase)); raise its limits or try again later"
        case .busy(let phrase):
            "the relay is busy (\(phrase)); retrying"
        case .versionMismatch(let phrase):
            "the relay speaks another version of the protocol (\(phrase)); update the older of the two"
        case .replaced:
            "another connection with this machine's key replaced this one; "
                + "give each machine its own key: do not copy the state directory"
        case .closedByRelay(let detail):
            "the relay closed the connection (\(detail))"
        case .lost(let detail):
            "the connection to the relay was lost (\(detail))"
        case .protocolViolation(let detail):
            "the relay broke the protocol (\(detail)); update the older of the two, or report it"
        case .system(let detail):
            "the connection could not be opened: \(detail)"
        }
    }
}

/// How a transmission of this end ended.
public enum TransmissionEnd: Sendable, Equatable, CustomStringConvertible {
    /// `endBurst`, and everything has been sent.
    case completed
    /// The floor was refused. Nothing was sent; held audio is erased.
    case denied(FloorDenial)
    /// The floor was taken back. What was not sent yet is erased.
    case revoked(FloorRevocation)
    /// `abortBurst` or `leave`; or `endBurst` while it waited for the floor, and nothing was sent.
    case aborted
    /// No answer to the floor request in time, or more audio held than allowed. Nothing was sent.
    case notAnswered
    /// The link was not ready, or was lost.
    case linkUnavailable
    /// Too many bursts were begun while earlier ones were still on their way.
    case tooManyBursts

    /// As logs have it.
    public var description: String {
        switch self {
        case .completed: "completed"
        case .denied(let why): "denied (\(why))"
        case .revoked(let why): "revoked (\(why))"
        case .aborted: "aborted"
        case .notAnswered: "not answered"
        case .linkUnavailable: "no link"
        case .tooManyBursts: "too many bursts"
        }
    }
}

/// What a transmission came to, in frames.
public struct TransmissionReport: Sendable, Equatable {
    /// Frames handed to the network.
    public var sent = 0
    /// Frames held and then erased: denial, revocation, lost link, abort.
    public var erased = 0
    /// Frames refused: too long, or after the burst had ended.
    public var dropped = 0
    /// Nothing yet.
    public init() {}
}

/// How a received burst ended.
public enum ReceptionEnd: Sendable, Equatable {
    /// The relay said the floor is idle, and everything that came is delivered.
    case completed
    /// No media came for longer than the relay allows.
    case silent
    /// The link was lost.
    case linkLost
    /// The next burst began.
    case superseded
}

/// What a received burst came to, in packets.
public struct ReceptionReport: Sendable, Equatable {
    /// Frames delivered.
    public var received = 0
    /// Packets that did not come.
    public var lost = 0
    /// Packets from before this end joined, which it skipped to hear live speech. They do not count as lost.
    public var skipped = 0
    /// Nothing yet.
    public init() {}
}

/// The events of a link.
public enum RelayLinkEvent: Sendable, Equatable {
    /// The link came or went.
    case state(RelayLinkState)
    /// The members of the channel, this one included, upon joining.
    case members([RelayMember], own: RelayMember)
    /// A member joined.
    case memberJoined(RelayMember)
    /// A member left.
    case memberLeft(RelayMember)

    /// Whether requests for the floor wait while another member talks, and are not refused; upon joining, and when the rules change.
    case floorQueueOffered(Bool)
    /// Whether a request of this end would be granted now. Reported when that changes, and after `floorQueueOffered`,
    /// for relays that report their rules.
    case floorOutlook(FloorOutlook, emergency: FloorOutlook)
    /// This end has the floor and may talk for `limit` from its first packet.
    case floorGranted(BurstID, limit: Duration)
    /// Another member has the floor, and this end's request waits for it, at this place from 1.
    case floorQueued(BurstID, position: Int)
    /// How many members may talk at once, this end included. Reported upon joining; one until then.
    case talkersAllowed(Int)
    /// Another member has the floor, in addition to current talkers where several may talk at once.
    case floorTaken(by: RelayMember)
    /// That member has the floor no more, but others have.
    case floorReleased(by: RelayMember)
    /// Nobody else has the floor.
    case floorIdle
    /// The first packet of a burst of this end was handed to the network.
    case firstPacketSent(BurstID, at: Instant)
    /// The listener with the worst reception misses so much of this end's burst: 0…100.
    case listenerLoss(percent: Int)
    /// A burst of this end is over; denial and revocation included. Exactly one for each `beginBurst`.
    case transmissionEnded(BurstID, TransmissionEnd, TransmissionReport)

    /// The first packet of another member's burst came.
    case burstBegan(RelayMember)
    /// A frame of a burst that has begun, of the member whom it names.
    case frame(ReceivedFrame)
    /// That burst is over.
    case burstEnded(RelayMember, ReceptionEnd, ReceptionReport)
}

/// Why the floor was refused.
public enum FloorDenial: Sendable, Equatable, CustomStringConvertible {
    /// Another member talks.
    case taken
    /// This member may only listen on the channel.
    case listenOnly
    /// As many wait for the floor as may.
    case queueFull
    /// The last burst was too long: requests are denied for this time.
    case tooSoon(retryAfter: Duration)
    /// The relay refused for a reason of its own, in its words.
    case refused(String)

    /// As logs have it.
    public var description: String {
        switch self {
        case .taken: "another member talks"
        case .listenOnly: "listen only"
        case .queueFull: "the queue is full"
        case .tooSoon(let retryAfter): "too soon, for \(retryAfter)"
        case .refused(let words): words.isEmpty ? "by the relay" : words
        }
    }
}

/// Why the floor was taken back.
public enum FloorRevocation: Sendable, Equatable, CustomStringConvertible {
    /// The burst reached the talk-time limit.
    case talkTimeLimit
    /// The relay got no media.
    case noMedia
    /// Somebody who matters more has taken the floor, in the relay's words.
    case preempted(String)
    /// This member may not talk any more.
    case notPermitted
    /// Another reason, in the relay's words.
    case other(String)

    /// Why, for the user.
    public var description: String {
        switch self {
        case .talkTimeLimit: "the relay's talk-time limit was reached"
        case .noMedia: "the relay received no sound"
        case .preempted(let words): words.isEmpty ? "a member with a higher priority speaks" : words
        case .notPermitted: "this device may only listen on the channel"
        case .other(let words): words.isEmpty ? "the relay gives no reason" : words
        }
    }
}
