// Chooses the address at which a relay is asked for the invitation to a channel nearby, and the answer that counts.
// Pure.
import Cryptography
import MonotonicTime
import RelayProtocol

/// The credentials of a newcomer: its name and its code.
public struct InvitationCredentials: Sendable, Hashable {
    /// The code of a locked channel; nil: none.
    public var code: InvitationCode?
    /// The newcomer's name, which the creator of a channel with admission by request reads; nil: such a channel is not
    /// asked.
    public var name: DisplayName?

    /// What a newcomer says of itself.
    public init(code: InvitationCode? = nil, name: DisplayName? = nil) {
        self.code = code
        self.name = name
    }
}

/// Why a channel nearby gave no invitation. The description tells the user what to do.
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
    /// The channel has a code, and none was given.
    case codeNeeded
    /// The channel has another code.
    case wrongCode
    /// Whoever answered does not know the code that was given.
    case impostor
    /// The creator does not let this end in, has not answered, or was not asked.
    case notAdmitted(String)
    /// The question was given up.
    case cancelled
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
            "the machine at the announced address has a different key than the announcement: it is not the channel's host"
        case .notOpen(let phrase): "the channel's host gives no invitation (\(phrase))"
        case .versionMismatch(let phrase):
            "the channel's host speaks another version (\(phrase)); update the older of the two"
        case .busy(let phrase): "the channel's host is busy (\(phrase)); try again in a moment"
        case .codeNeeded:
            "the channel is locked; give its code of \(InvitationCode.digitCount) digits, which its creator knows"
        case .wrongCode: "the channel has another code; ask its creator for it"
        case .impostor:
            "whoever announces the channel does not know its code: it is not the channel that the code is for, or the code is another one"
        case .notAdmitted(let phrase): "the channel's creator has not let this machine in (\(phrase))"
        case .cancelled: "the request was cancelled"
        case .badAnswer(let what): "the channel's host gave no usable answer (\(what))"
        case .system(let what): "this machine cannot ask the channel's host: \(what)"
        }
    }

    /// Whether the channel's host has answered; its key proves that.
    public var isAnswer: Bool {
        switch self {
        case .notOpen, .versionMismatch, .busy, .codeNeeded, .wrongCode, .notAdmitted: true
        case .noPlace, .unreachable, .wrongKey, .badAnswer, .system, .impostor, .cancelled: false
        }
    }

    /// Whether nobody has answered who could be the channel's host.
    public var isSilence: Bool {
        switch self {
        case .noPlace, .unreachable, .badAnswer: true
        case .notOpen, .versionMismatch, .busy, .codeNeeded, .wrongCode, .notAdmitted, .wrongKey, .system, .impostor,
            .cancelled:
            false
        }
    }

    /// How informative an error is: of several, the most informative one is reported.
    fileprivate var weight: Int {
        switch self {
        case .noPlace: 0
        case .system: 1
        case .unreachable: 2
        case .badAnswer: 3
        case .wrongKey: 4
        case .busy: 5
        case .versionMismatch: 6
        case .notOpen, .codeNeeded, .wrongCode, .impostor, .notAdmitted, .cancelled: 7
        }
    }
}

/// The rules of one question.
///
/// The places are asked one after the other, each `stagger` after the one before or as soon as that has failed (as in RFC 8305). The first
/// invitation counts. An answer that gives none ends the question: the key proves that it is the channel's host that says no. A code is
/// proved at one place only, since wrong proofs are counted. While the creator is asked, no further place is.
struct InvitationQuestionStateMachine: Sendable {
    /// How many places are asked at most.
    static let placesMaximum = 8
    /// How long a place may keep silent before the next one is asked as well.
    static let stagger: Duration = .milliseconds(250)
    /// How long all of it may take.
    static let answerTimeout: Duration = .seconds(5)
    /// How much longer it may take while the creator is asked, at most.
    static let askingTimeMaximum: Duration = .seconds(120)

    enum Event: Sendable {
        /// Ask.
        case start
        /// The relay there said something.
        case message(place: Int, ServerMessage)
        /// The connection to it has failed, or ended.
        case failed(place: Int, InvitationQuestionError)
        /// `nextDeadline` has come, or may have.
        case deadline
        /// Nobody waits for the answer any more.
        case cancel
    }

    enum Action: Sendable, Equatable {
        /// Connect there and ask.
        case ask(place: Int, ClientMessage.InvitationRequest)
        /// Say this there.
        case send(place: Int, ClientMessage)
        /// It is over: close all connections.
        case finish(Result<InvitationLink, InvitationQuestionError>)
    }

    private let places: [RelayPlace]
    private let channel: ChannelID
    private let pin: PublicKeyPin
    private let client: MemberID
    private let credentials: InvitationCredentials
    private var random: any RandomNumberGenerator & Sendable
    private var proofs: [Int: InvitationCode.Proof] = [:]
    /// Where the code is being proved, and what the relay there is to show.
    private var proved: (place: Int, relayTag: [UInt8])?
    private var asked = 0
    private var pending: Set<Int> = []
    private var worst = InvitationQuestionError.noPlace
    private var endsAt: Instant?
    private var nextAt: Instant?
    private var isCancelled = false

    /// A question for `channel` to the relay with the key `pin` at `places`, best first.
    ///
    /// - Parameters:
    ///   - client: This end, as its key names it.
    ///   - random: What proofs are drawn from; must be a secure one outside tests.
    init(
        channel: ChannelID, pin: PublicKeyPin, places: [RelayPlace], client: MemberID,
        credentials: InvitationCredentials = .init(), random: any RandomNumberGenerator & Sendable = SecureRandom()
    ) {
        self.channel = channel
        self.pin = pin
        self.places = Array(places.prefix(Self.placesMaximum))
        (self.client, self.credentials, self.random) = (client, credentials, random)
    }

    var nextDeadline: Instant? {
        guard let endsAt else { return nil }
        return min(endsAt, asked < places.count ? nextAt ?? endsAt : endsAt)
    }

    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .start:
            guard endsAt == nil else { return [] }
            // Whoever waits may have given up before the question began.
            if isCancelled { return finish(.failure(.cancelled)) }
            endsAt = now + Self.answerTimeout
            return askNext(at: now)
        case .message(let place, let message):
            guard endsAt != nil, pending.contains(place) else { return [] }
            return answered(message, by: place, at: now)
        case .failed(let place, let error):
            guard endsAt != nil, pending.remove(place) != nil else { return [] }
            note(error)
            return asked < places.count || pending.isEmpty ? askNext(at: now) : []
        case .deadline:
            guard let endsAt else { return [] }
            if now >= endsAt {
                note(.unreachable("no answer in time"))
                return finish(.failure(worst))
            }
            return nextAt.map { now >= $0 && asked < places.count } ?? false ? askNext(at: now) : []
        case .cancel:
            isCancelled = true
            return endsAt == nil ? [] : finish(.failure(.cancelled))
        }
    }

    private mutating func askNext(at now: Instant) -> [Action] {
        guard asked < places.count else { return pending.isEmpty ? finish(.failure(worst)) : [] }
        defer { asked += 1 }
        pending.insert(asked)
        nextAt = now + Self.stagger
        var request = ClientMessage.InvitationRequest(channel: channel, name: credentials.name)
        if let code = credentials.code {
            let proof = code.proof(.initiator, channel: channel, relay: pin, client: client, using: &random)
            proofs[asked] = proof
            request.codeShare = proof.share
        }
        return [.ask(place: asked, request)]
    }

    private mutating func answered(_ message: ServerMessage, by place: Int, at now: Instant) -> [Action] {
        switch message {
        case .invitationChallenge(let challenge):
            guard proved == nil else { return [] }
            guard let tags = proofs[place]?.tags(with: challenge.codeShare) else {
                return finish(.failure(.badAnswer("an invalid challenge")))
            }
            proved = (place, tags.relay)
            settle(on: place)
            return [.send(place: place, .invitationProof(.init(tag: tags.client)))]
        case .invitationPending(let pending):
            asked = places.count
            endsAt = now + min(pending.time, Self.askingTimeMaximum) + Self.answerTimeout
            return []
        case .invitation(let invitation):
            if credentials.code != nil {
                guard let proved, proved.place == place, let tag = invitation.codeTag,
                    constantTimeEqual(tag, proved.relayTag)
                else { return finish(.failure(.impostor)) }
            }
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
            case .codeNeeded: return finish(.failure(.codeNeeded))
            case .wrongCode: return finish(.failure(.wrongCode))
            case .notAdmitted, .nameNeeded: return finish(.failure(.notAdmitted(phrase)))
            case .other: return finish(.failure(.badAnswer(phrase)))
            }
        default: return finish(.failure(.badAnswer("another message than an invitation")))
        }
    }

    /// Only that place's answer counts from now on.
    private mutating func settle(on place: Int) {
        pending = [place]
        asked = places.count
    }

    private mutating func note(_ error: InvitationQuestionError) {
        if error.weight > worst.weight { worst = error }
    }

    private mutating func finish(_ result: Result<InvitationLink, InvitationQuestionError>) -> [Action] {
        (endsAt, nextAt) = (nil, nil)
        (pending, proofs, proved) = ([], [:], nil)
        asked = places.count
        return [.finish(result)]
    }
}
