// At which of several places a relay is asked for the invitation to an open channel, and which answer counts. Pure.
import Cryptography
import MonotonicTime
import RelayProtocol

/// Why a channel that is open to everybody gave no invitation. The description tells the user what to do.
public enum InvitationQuestionError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The announcement names no place that can be asked.
    case noPlace
    /// Nobody answered at any place.
    case unreachable(String)
    /// Whoever answered has another key than the announcement names.
    case wrongKey
    /// The relay has no such channel, or gives its invitation to nobody who asks.
    case notOpen(String)
    /// This end and the relay speak different versions of the protocol.
    case versionMismatch(String)
    /// Too many ask at a time.
    case busy(String)
    /// The answer is none, or the connection ended before it.
    case badAnswer(String)
    /// This machine could not ask.
    case system(String)

    /// What is wrong and what to do.
    public var description: String {
        switch self {
        case .noPlace: "the channel's announcement names no address; try again in a moment"
        case .unreachable(let detail):
            "the machine that hosts the channel does not answer (\(detail)); check that both are on one network, and that UDP "
                + "passes between them"
        case .wrongKey:
            "the machine at the announced address has another key than the announcement names: it is not the channel's host"
        case .notOpen(let phrase): "the channel's host gives no invitation (\(phrase))"
        case .versionMismatch(let phrase):
            "the channel's host speaks another version (\(phrase)); update the older of the two"
        case .busy(let phrase): "the channel's host takes nobody in just now (\(phrase)); try again in a moment"
        case .badAnswer(let what): "the channel's host gave no usable answer (\(what))"
        case .system(let what): "this machine cannot ask the channel's host: \(what)"
        }
    }

    /// Whether the channel's host has answered, which its key has proved.
    public var isAnswer: Bool {
        switch self {
        case .notOpen, .versionMismatch, .busy: true
        case .noPlace, .unreachable, .wrongKey, .badAnswer, .system: false
        }
    }

    /// How much an error says of the channel: of several, the most telling one is told.
    fileprivate var weight: Int {
        switch self {
        case .noPlace: 0
        case .system: 1
        case .unreachable: 2
        case .badAnswer: 3
        case .wrongKey: 4
        case .busy: 5
        case .versionMismatch: 6
        case .notOpen: 7
        }
    }
}

/// The rules of one question.
///
/// The places are asked one after the other, each `stagger` after the one before or as soon as that has failed (as in RFC 8305). The first
/// invitation counts. An answer that gives none ends the question: the key proves that it is the channel's host that says no.
struct InvitationQuestionStateMachine: Sendable {
    /// How many places are asked at most.
    static let placesMaximum = 8
    /// How long a place may keep silent before the next one is asked as well.
    static let stagger: Duration = .milliseconds(250)
    /// How long all of it may take.
    static let patience: Duration = .seconds(5)

    enum Event: Sendable {
        /// Ask.
        case start
        /// The relay there said something.
        case message(place: Int, ServerMessage)
        /// The connection to it has failed, or ended.
        case failed(place: Int, InvitationQuestionError)
        /// `nextDeadline` has come, or may have.
        case deadline
    }

    enum Action: Sendable, Equatable {
        /// Connect there and ask.
        case ask(place: Int)
        /// It is over: close all connections.
        case finish(Result<InvitationLink, InvitationQuestionError>)
    }

    private let places: [RelayPlace]
    private let channel: ChannelID
    private let pin: PublicKeyPin
    private var asked = 0
    private var pending: Set<Int> = []
    private var worst = InvitationQuestionError.noPlace
    private var endsAt: Instant?
    private var nextAt: Instant?

    /// A question for `channel` to the relay with the key `pin` at `places`, best first.
    init(channel: ChannelID, pin: PublicKeyPin, places: [RelayPlace]) {
        self.channel = channel
        self.pin = pin
        self.places = Array(places.prefix(Self.placesMaximum))
    }

    var nextDeadline: Instant? {
        guard let endsAt else { return nil }
        return min(endsAt, asked < places.count ? nextAt ?? endsAt : endsAt)
    }

    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .start:
            guard endsAt == nil else { return [] }
            endsAt = now + Self.patience
            return askNext(at: now)
        case .message(let place, let message):
            guard endsAt != nil, pending.contains(place) else { return [] }
            return answered(message, by: place)
        case .failed(let place, let error):
            guard endsAt != nil, pending.remove(place) != nil else { return [] }
            note(error)
            return asked < places.count || pending.isEmpty ? askNext(at: now) : []
        case .deadline:
            guard let endsAt else { return [] }
            if now >= endsAt {
                note(.unreachable("no answer within \(Self.patience.components.seconds) s"))
                return finish(.failure(worst))
            }
            return nextAt.map { now >= $0 && asked < places.count } ?? false ? askNext(at: now) : []
        }
    }

    private mutating func askNext(at now: Instant) -> [Action] {
        guard asked < places.count else { return pending.isEmpty ? finish(.failure(worst)) : [] }
        defer { asked += 1 }
        pending.insert(asked)
        nextAt = now + Self.stagger
        return [.ask(place: asked)]
    }

    private mutating func answered(_ message: ServerMessage, by place: Int) -> [Action] {
        switch message {
        case .invitation(let invitation):
            let (host, port) = (places[place].host, places[place].port)
            do throws(InvitationLinkError) {
                return finish(
                    .success(
                        try InvitationLink(
                            host: host, port: port, channelName: invitation.channelName, channel: channel,
                            token: invitation.token, pin: pin, mediaKey: invitation.mediaKey)))
            } catch {
                return finish(.failure(.badAnswer("\(error)")))
            }
        case .invitationRefused(let refusal):
            let phrase = refusal.phrase.isEmpty ? "\(refusal.cause)" : refusal.phrase
            switch refusal.cause {
            case .notOpen: return finish(.failure(.notOpen(phrase)))
            case .unsupportedVersion: return finish(.failure(.versionMismatch(phrase)))
            case .tooMany: return finish(.failure(.busy(phrase)))
            case .other: return finish(.failure(.badAnswer(phrase)))
            }
        default: return finish(.failure(.badAnswer("another message than an invitation")))
        }
    }

    private mutating func note(_ error: InvitationQuestionError) {
        if error.weight > worst.weight { worst = error }
    }

    private mutating func finish(_ result: Result<InvitationLink, InvitationQuestionError>) -> [Action] {
        (endsAt, nextAt) = (nil, nil)
        pending = []
        asked = places.count
        return [.finish(result)]
    }
}
