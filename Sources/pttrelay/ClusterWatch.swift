// The cluster on the operator's page and in the metrics: what each relay says of itself, put together.
import Glibc
import MonotonicTime
import RelayCluster
import RelayHTTP
import RelayProtocol
import RelayServer
import Version

/// Looks at the cluster for all pages of this relay, and at this relay for those of the others.
///
/// Whoever looks shares the answers: each relay is asked once in `interval` at most.
actor ClusterWatch {
    /// What another relay has answered.
    private enum Told: Sendable {
        case relay(OperatorRelay)
        case otherVersion
    }

    private let lookout: ClusterLookout
    private let passages: @Sendable () -> LinkPassages?
    private let own: SharedAnswer<RelayStatistics>
    private let survey: SharedAnswer<ClusterSurvey>
    /// By the incarnations of the other relays.
    private var others: [String: SharedAnswer<Told>] = [:]

    /// How long what a relay says of itself is shown.
    private static let interval: Duration = .seconds(1)
    /// The same of what NATS knows: the relays report to it as often.
    private static let surveyInterval: Duration = .seconds(5)

    /// - Parameter passages: What was counted of links over TLS between the relays; nil: this relay takes none.
    init(
        _ lookout: ClusterLookout, _ server: RelayServer, passages: @escaping @Sendable () -> LinkPassages? = { nil }
    ) {
        self.lookout = lookout
        self.passages = passages
        own = SharedAnswer(interval: Self.interval) { await server.statistics }
        survey = SharedAnswer(interval: Self.surveyInterval, keepsLast: true) { await lookout.survey() }
    }

    /// What this relay says of itself to others, in so many bytes; nil: it does not run.
    nonisolated func own(byteCount: Int) async -> OperatorRelay? {
        await own.answer().map { OperatorRelay($0, version: Version.text, byteCount: byteCount) }
    }

    /// The cluster for the page. Relays that do not answer delay it by a second at most, and only once.
    nonisolated func view() async -> OperatorCluster {
        let overview = await lookout.overview()
        async let known = survey.answer()
        let byteCount = OperatorRelay.byteCount(relays: overview.relays.count)
        let questions = await questions(overview)
        let answers = await withTaskGroup(of: (String, OperatorCluster.Answer).self) { group in
            for relay in overview.relays {
                group.addTask {
                    guard let question = questions[relay.incarnation] else {
                        return (relay.incarnation, await self.own(byteCount: byteCount).map { .told($0) } ?? .silent)
                    }
                    return (relay.incarnation, Self.answer(await question.answer()))
                }
            }
            return await group.reduce(into: [:]) { $0[$1.0] = $1.1 }
        }
        var relays = overview.relays.map { relay in
            OperatorCluster.Relay(
                name: relay.name, place: relay.place, shares: relay.shares, writes: relay.writes, isOwn: relay.isOwn,
                answer: answers[relay.incarnation] ?? .silent)
        }
        for away in overview.away(await known?.reports ?? [], at: Int64(time(nil))) {
            relays.append(
                .init(
                    name: away.name, place: away.place, shares: 0, writes: false, isOwn: false,
                    answer: .away(seconds: away.seconds)))
        }
        return OperatorCluster(
            name: overview.name, shares: ChannelID.shareCount, unserved: overview.unserved, relays: relays)
    }

    /// What this relay knows of the cluster, for the metrics. It asks no other relay.
    nonisolated func figures() async -> ClusterFigures {
        let overview = await lookout.overview()
        let known = await survey.answer()
        let own = overview.relays.first(where: \.isOwn)
        return ClusterFigures(
            relaysKnown: overview.relays.count + overview.away(known?.reports ?? [], at: Int64(time(nil))).count,
            relays: overview.relays.count, shares: own?.shares ?? 0, unserved: overview.unserved,
            writes: own?.writes ?? false, position: known?.position, behind: known?.behind, passages: passages())
    }

    /// The other relays, and how each is asked. One that has gone is forgotten.
    private func questions(_ overview: ClusterOverview) -> [String: SharedAnswer<Told>] {
        let there = overview.relays.filter { !$0.isOwn }.map(\.incarnation)
        others = others.filter { there.contains($0.key) }
        let (lookout, count) = (lookout, overview.relays.count)
        for incarnation in there where others[incarnation] == nil {
            others[incarnation] = SharedAnswer(interval: Self.interval) {
                await Self.ask(incarnation, byteCount: OperatorRelay.byteCount(relays: count), lookout)
            }
        }
        return others
    }

    private nonisolated static func ask(
        _ incarnation: String, byteCount: Int, _ lookout: ClusterLookout
    ) async -> Told? {
        let request = ClusterRequest.look(byteCount: byteCount)
        guard let bytes = await lookout.ask(request.bytes, of: incarnation) else { return nil }
        switch ClusterResponse(bytes: bytes) {
        case .look(let relay?): return .relay(relay)
        // It is about to end, or just begins.
        case .look(nil): return nil
        default: return .otherVersion
        }
    }

    private static func answer(_ told: Told?) -> OperatorCluster.Answer {
        switch told {
        case .relay(let relay): .told(relay)
        case .otherVersion: .otherVersion
        case nil: .silent
        }
    }
}

extension OperatorEndpoint.Cluster {
    /// As a relay of the cluster knows it.
    init(_ watch: ClusterWatch) { self.init(view: { await watch.view() }, figures: { await watch.figures() }) }
}

/// Asks a question at most once in an interval, however many want to know.
actor SharedAnswer<Answer: Sendable> {
    private let interval: Duration
    private let keepsLast: Bool
    private let ask: @Sendable () async -> Answer?
    private var last: (answer: Answer?, hasFailed: Bool, at: Instant)?
    private var asking: Task<Answer?, Never>?

    /// - Parameters:
    ///   - interval: How long an answer is given again, counted from when it came.
    ///   - keepsLast: Whether the last answer is still good when there is none any more.
    ///   - ask: Asks the question, which ends at some time; nil: there is no answer.
    init(interval: Duration, keepsLast: Bool = false, ask: @escaping @Sendable () async -> Answer?) {
        self.interval = interval
        self.keepsLast = keepsLast
        self.ask = ask
    }

    /// The answer; nil: there is none.
    func answer() async -> Answer? {
        if let last, .now - last.at < interval { return last.answer }
        let question = asking ?? begin()
        // Who has not answered the last time keeps nobody waiting this time: it is known the next time whether it does.
        if let last, last.hasFailed { return last.answer }
        _ = await question.value
        return last?.answer
    }

    private func begin() -> Task<Answer?, Never> {
        let task = Task { [ask] in
            let answer = await ask()
            note(answer)
            return answer
        }
        asking = task
        return task
    }

    private func note(_ answer: Answer?) {
        last = (answer ?? (keepsLast ? last?.answer : nil), answer == nil, .now)
        asking = nil
    }
}
