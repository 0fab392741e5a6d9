// What the relays of a cluster ask each other, and pass on of pushes: JSON, sealed by `ClusterCalls`.
import FoundationEssentials
import MonotonicTime
import RelayCluster
import RelayHTTP
import RelayProtocol
import RelayServer
import Vocabulary

/// What a relay asks the one that writes the records, or all others.
enum ClusterRequest: Codable {
    case push(ClusterPush)
    case enrol(channel: String, token: [UInt8], member: [UInt8], name: String)
    case command(AdministrationRequest)
    case presence(channels: [String], PresenceQuestion)
    case status
    /// For the operator's page: an answer of at most so many bytes.
    case look(byteCount: Int)

    var isCommand: Bool { if case .command = self { true } else { false } }
}

/// The answer.
enum ClusterResponse: Codable {
    case push(ClusterPushVerdict)
    case member(priority: UInt8, isListenOnly: Bool, isRevoked: Bool)
    case refused(String)
    case command(AdministrationResponse)
    case presence([String: ChannelPresence])
    case status(AdministrationResponse.Status)
    /// nil: the relay does not run.
    case look(OperatorRelay?)
    case failed(ForwardedError)
}

/// Why the relay that writes the records has not done what it was asked.
struct ForwardedError: Error, Codable, Equatable, CustomStringConvertible {
    /// For commands.
    var description: String
    /// For the API: see `APIProblem`.
    var status: Int, kind: String, detail: String

    init(_ error: any Error) {
        let problem = APIProblem(error)
        (status, kind, detail) = (problem.status, problem.kind, problem.detail)
        description = "\(error)"
    }
}

/// What relays of a cluster send each other.
protocol ClusterMessage: Codable {}
extension ClusterRequest: ClusterMessage {}
extension ClusterResponse: ClusterMessage {}

extension ClusterMessage {
    /// As a message to another relay of the cluster.
    var bytes: [UInt8] { (try? JSONEncoder().encode(self)).map { Array($0) } ?? [] }

    /// What a message of another relay says; nil: something else.
    init?(bytes: [UInt8]) {
        guard let value = try? JSONDecoder().decode(Self.self, from: Data(bytes)) else { return nil }
        self = value
    }
}

/// A push, as relays pass it on.
struct ClusterPush: Codable, Equatable {
    var token: [UInt8]
    var topic: String
    var payload: [UInt8]
    var priority: UInt8
    var milliseconds: Int64

    init(_ request: PushRequest) {
        token = request.token.bytes
        topic = request.topic.text
        payload = request.payload
        priority = request.priority
        milliseconds = request.lifetime.wholeMilliseconds
    }

    /// The push; nil: it is none.
    var request: PushRequest? {
        guard let token = PushToken(token), let topic = PushTopic(topic) else { return nil }
        return PushRequest(
            token: token, topic: topic, payload: payload, priority: priority, lifetime: .milliseconds(milliseconds))
    }
}

/// What a relay has said to a push, as relays pass it on.
enum ClusterPushVerdict: Codable, Equatable {
    case sent, kept, dropped, unknownToken, otherTopic, tooMany, unavailable, shutDown
    case unregistered(millisecondsAgo: Int64)

    init(_ verdict: PushVerdict, at now: Instant) {
        self =
            switch verdict {
            case .accepted(.sent): .sent
            case .accepted(.kept): .kept
            case .accepted(.dropped): .dropped
            case .unknownToken: .unknownToken
            case .otherTopic: .otherTopic
            case .tooMany: .tooMany
            case .unavailable: .unavailable
            case .shutDown: .shutDown
            case .unregistered(let time): .unregistered(millisecondsAgo: (now - time).wholeMilliseconds)
            }
    }

    func verdict(at now: Instant) -> PushVerdict {
        switch self {
        case .sent: .accepted(.sent)
        case .kept: .accepted(.kept)
        case .dropped: .accepted(.dropped)
        case .unknownToken: .unknownToken
        case .otherTopic: .otherTopic
        case .tooMany: .tooMany
        case .unavailable: .unavailable
        case .shutDown: .shutDown
        case .unregistered(let ago): .unregistered(at: now - .milliseconds(ago))
        }
    }

    /// How much a relay knows of the token that says so. One that has its connection knows best. One that had the member before may still
    /// have the token, but not hear of its end.
    private var knowledge: Int {
        switch self {
        case .sent: 8
        case .tooMany: 7
        case .otherTopic: 6
        case .unregistered: 5
        case .kept: 4
        case .dropped: 3
        case .unavailable: 2
        case .shutDown: 1
        case .unknownToken: 0
        }
    }

    /// What all relays together have said.
    ///
    /// - Parameter isSettled: Whether all have answered, and no relay has come or gone lately. Otherwise the member of a token that nobody
    ///   knows may be on its way to another relay.
    static func together(_ verdicts: [ClusterPushVerdict], isSettled: Bool) -> ClusterPushVerdict {
        let best = verdicts.max { $0.knowledge < $1.knowledge } ?? .shutDown
        return best == .unknownToken && !isSettled ? .unavailable : best
    }
}

extension Registrar {
    /// Hands a push to the relay that has its token.
    nonisolated func push(_ request: PushRequest, _ server: RelayServer, _ node: ClusterNode) async -> PushVerdict {
        let own = ClusterPushVerdict(await server.push(request), at: .now)
        guard own != .sent else { return own.verdict(at: .now) }
        let answers = await node.askOthers(ClusterRequest.push(ClusterPush(request)).bytes)
        let others = answers.all.compactMap { answer -> ClusterPushVerdict? in
            if case .push(let verdict)? = ClusterResponse(bytes: answer) { verdict } else { nil }
        }
        return ClusterPushVerdict.together(
            [own] + others, isSettled: answers.isSettled && answers.areAll && others.count == answers.all.count
        )
        .verdict(at: .now)
    }
}
