// What the relays of a cluster ask each other: JSON, sealed by `ClusterCalls`.
import FoundationEssentials
import RelayHTTP

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
