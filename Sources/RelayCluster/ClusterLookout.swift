// Looks at a cluster for an operator, beside what the relays themselves need of each other. It holds no rules.
import Glibc
import MonotonicTime
import NATS
import Reactor
import RelayStore

/// Asks the other relays, and NATS, about themselves.
///
/// Each relay that is asked has a thread here, which waits for its answer. So one that does not answer delays no other one, and no vote.
public actor ClusterLookout {
    private let calls: ClusterCalls
    private let shares: ClusterShares
    private let connection: NATSConnection
    private let configuration: ClusterConfiguration
    private let own: ClusterMember
    private let store: RelayStore
    /// Waits for the answers of one relay.
    private struct Lane {
        let loop: EventLoop
        /// Questions that wait for an answer.
        var waiting = 0
    }

    /// By the incarnations of the relays.
    private var lanes: [String: Lane] = [:]
    private var surveyLane: EventLoop?

    /// How long a relay, or all that NATS is asked, may take.
    private static let wait: Duration = .seconds(1)

    init(
        _ calls: ClusterCalls, _ shares: ClusterShares, _ connection: NATSConnection,
        _ configuration: ClusterConfiguration, _ own: ClusterMember, _ store: RelayStore
    ) {
        self.calls = calls
        self.shares = shares
        self.connection = connection
        self.configuration = configuration
        self.own = own
        self.store = store
    }

    deinit {
        for lane in lanes.values { lane.loop.stop() }
        surveyLane?.stop()
    }

    /// The cluster, by the table of shares.
    public func overview() async -> ClusterOverview {
        let overview = ClusterOverview(await shares.table, of: configuration.name, seenBy: own)
        let there = Set(overview.relays.map(\.incarnation))
        // One that waits is stopped later: its end would be waited for.
        for (incarnation, lane) in lanes where !there.contains(incarnation) && lane.waiting == 0 {
            lane.loop.stop()
            lanes[incarnation] = nil
        }
        return overview
    }

    /// The answer of a relay that is in the table; nil: there was none within a second.
    public func ask(_ request: [UInt8], of incarnation: String) async -> [UInt8]? {
        guard let loop = lane(of: incarnation) else { return nil }
        lanes[incarnation]?.waiting += 1
        defer { lanes[incarnation]?.waiting -= 1 }
        let answer = try? await calls.ask(
            [ClusterNode.requestTag] + request, of: incarnation, wait: Self.wait, on: loop)
        guard let answer, answer.count >= ClusterNode.positionByteCount else { return nil }
        return Array(answer.dropFirst(ClusterNode.positionByteCount))
    }

    private func lane(of incarnation: String) -> EventLoop? {
        if let lane = lanes[incarnation] { return lane.loop }
        guard lanes.count < ShareTable.nodesMaximum, let loop = try? EventLoop(name: "cluster-look", mayWait: true)
        else { return nil }
        lanes[incarnation] = Lane(loop: loop)
        return loop
    }

    /// What NATS knows of the cluster; nil: it has not answered within a second.
    public func survey() async -> ClusterSurvey? {
        if surveyLane == nil { surveyLane = try? EventLoop(name: "cluster-survey", mayWait: true) }
        guard let lane = surveyLane else { return nil }
        let (connection, configuration, store) = (connection, configuration, store)
        let deadline = Instant.now + Self.wait
        return await withCheckedContinuation { continuation in
            lane.execute {
                func left() throws -> Duration {
                    let left = deadline - .now
                    guard left > .zero else { throw ClusterError.notAnswered("NATS is too slow") }
                    return left
                }
                continuation.resume(
                    returning: try? {
                        let reports = try ClusterAdministration.reports(configuration, connection, wait: left)
                        let last = try connection.state(of: configuration.log.name, wait: try left()).last
                        // After the log: what came meanwhile is not missing.
                        let position = try store.logPlace()?.position ?? 0
                        return ClusterSurvey(
                            reports: reports, position: position, behind: last > position ? last - position : 0)
                    }())
            }
        }
    }
}
