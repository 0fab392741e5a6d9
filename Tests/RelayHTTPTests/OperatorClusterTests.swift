// What a relay of a cluster tells of itself in so many bytes, and what the page of any of them is given.
import Cryptography
import Foundation
import MonotonicTime
import RelayProtocol
import Testing

@testable import RelayHTTP
@testable import RelayServer

@Suite struct OperatorClusterTests {
    private typealias Channel = RelayStatistics.Channel

    private static func member(_ number: Int, _ name: String, isTalking: Bool = false) -> RelayStatistics.Member {
        let bytes = (0..<32).map { UInt8(truncatingIfNeeded: number >> (8 * ($0 % 4))) }
        return .init(
            id: MemberID(PublicKeyPin(bytes)!), name: DisplayName(name)!, isTalking: isTalking, isSilent: false)
    }

    private static func channel(_ name: String, members: Int, talker: Int? = nil, of text: String = "Ada") -> Channel {
        Channel(
            name: DisplayName(name)!, id: ChannelID(),
            members: (0..<members).map { member($0, text + "\($0)", isTalking: $0 == talker) }, waiting: 0,
            counters: RelayChannelCounters())
    }

    private static func relay(_ channels: [Channel]) -> RelayStatistics {
        RelayStatistics(
            uptime: .seconds(60), connections: 3, counters: RelayCounters(), transport: .init(),
            forwarding: LatencyHistogram(), pushTokens: 0, isDraining: false, channels: channels)
    }

    private static func bytes(_ look: OperatorRelay) throws -> Int { try JSONEncoder().encode(look).count }

    // MARK: What a relay tells

    @Test func `a look has the channels where somebody talks first, then those with most members, then the names`() {
        let look = OperatorRelay(
            Self.relay([
                Self.channel("Zoo", members: 0), Self.channel("Small", members: 1), Self.channel("Big", members: 7),
                Self.channel("Ark", members: 0), Self.channel("Busy", members: 2, talker: 1),
            ]), version: "1", byteCount: OperatorRelay.byteCountMaximum)
        #expect(look.channels.map(\.name) == ["Busy", "Big", "Small", "Ark", "Zoo"])
        #expect(look.memberCounts == [2, 7, 1, 0, 0])
        #expect(look.channels[0].members.map(\.name) == ["Ada1", "Ada0"], "who talks is first")
        #expect(look.channelCount == 5 && look.memberCount == 10)
    }

    /// Each of 128 bytes that is two in JSON, and numbers as long as they get.
    @Test(arguments: [OperatorRelay.byteCountMinimum, 20_000, OperatorRelay.byteCountMaximum, .max, 0, .min])
    func `a look is not longer than it may be, whatever its channels and members are called`(byteCount: Int) throws {
        let name = String(repeating: "\"/\\", count: 40)
        var channels = (0..<600).map { number in
            Self.channel(name + "\(number)", members: number % 90, talker: number % 7, of: name)
        }
        for index in channels.indices { channels[index].waiting = .max }
        var relay = Self.relay(channels)
        relay.connections = .max
        for _ in 0..<50 { relay.forwarding.count(.seconds(1)) }
        let look = OperatorRelay(relay, version: String(repeating: "9", count: 100), byteCount: byteCount)
        let most = min(OperatorRelay.byteCountMaximum, max(OperatorRelay.byteCountMinimum, byteCount))
        #expect(try Self.bytes(look) <= most)
        #expect(look.channelCount == 600 && !look.channels.isEmpty && look.channels.count < 600)
        #expect(look.memberCount == channels.reduce(0) { $0 + $1.members.count })
    }

    @Test func `a crowd on one channel hides no other channel`() throws {
        let crowd = (0..<100).map { Self.channel("Crowd \($0)", members: 500) }
        let quiet = (0..<150).map { Self.channel("Quiet \($0)", members: 1) }
        let look = OperatorRelay(
            Self.relay(crowd + quiet), version: "1", byteCount: OperatorRelay.byteCountMaximum)
        #expect(look.channels.count == 250)
        #expect(look.channels.allSatisfy { $0.members.count <= OperatorStatus.membersMaximum })
        #expect(look.memberCounts.reduce(0, +) == look.memberCount)
        #expect(try Self.bytes(look) <= OperatorRelay.byteCountMaximum)
    }

    @Test func `ten thousand channels give a full look, and the relays of a large cluster share the room`() throws {
        let relay = Self.relay((0..<10_000).map { Self.channel("Channel \($0)", members: $0 < 400 ? 3 : 0) })
        var shown = 0
        for relays in [1, 3, 64] {
            let byteCount = OperatorRelay.byteCount(relays: relays)
            #expect(byteCount * relays <= 1 << 20 || byteCount == OperatorRelay.byteCountMinimum)
            let look = OperatorRelay(relay, version: "1", byteCount: byteCount)
            #expect(try Self.bytes(look) <= byteCount)
            #expect(try Self.bytes(look) > byteCount / 3, "it uses its room")
            if relays == 3 { shown = look.channels.count }
        }
        #expect(shown > 250, "of each of three relays as many as somebody reads")
    }

    // MARK: What the page is given

    private static func cluster(_ answers: [(String, OperatorCluster.Answer)]) -> OperatorCluster {
        OperatorCluster(
            name: "radio", shares: 64, unserved: 0,
            relays: answers.enumerated().map { number, answer in
                .init(
                    name: answer.0, place: "10.0.0.\(number):4433", shares: 10, writes: number == 1, isOwn: number == 0,
                    answer: answer.1)
            })
    }

    private static func look(_ channels: [Channel]) -> OperatorRelay {
        OperatorRelay(relay(channels), version: "1.2.3", byteCount: OperatorRelay.byteCountMinimum)
    }

    private static func status(_ cluster: OperatorCluster) async throws -> OperatorStatus? {
        let token = OperatorToken()
        let endpoint = OperatorEndpoint(
            configuration: .init(listenPort: 0, token: token), version: "1.2.3",
            source: .init(
                isServing: { true }, statistics: { nil },
                cluster: .init(
                    view: { cluster },
                    figures: { ClusterFigures(relaysKnown: 0, relays: 0, shares: 0, unserved: 0, writes: false) })),
            logger: EndpointRig.quiet)
        let answer = await endpoint.answer(
            method: "GET", path: "/status.json", authorization: "Bearer \(token.text)")
        guard answer.status == 200 else { return nil }
        return try JSONDecoder().decode(OperatorStatus.self, from: Data(answer.body.utf8))
    }

    @Test func `the page has the channels of all relays that have told, and says of each relay how it is`() async throws
    {
        let status = try #require(
            try await Self.status(
                Self.cluster([
                    ("b", .told(Self.look([Self.channel("Yard", members: 0), Self.channel("Dock", members: 2)]))),
                    ("a", .told(Self.look([Self.channel("Gate", members: 1, talker: 0)]))), ("c", .silent),
                    ("d", .otherVersion), ("e", .away(seconds: 12)),
                ])))
        #expect(status.channels.map(\.name) == ["Gate", "Dock", "Yard"])
        #expect(status.channels.map(\.relay) == ["a", "b", "b"])
        #expect(status.memberCounts == [1, 2, 0])
        let cluster = try #require(status.cluster)
        #expect(cluster.relays.map(\.name) == ["a", "b", "c", "d", "e"])
        #expect(cluster.relays.map(\.state) == [.told, .told, .silent, .otherVersion, .away])
        #expect(cluster.relays.map(\.isOwn) == [false, true, false, false, false])
        #expect(cluster.relays.map(\.told?.members) == [1, 2, nil, nil, nil])
        #expect(cluster.relays.map(\.awaySeconds) == [nil, nil, nil, nil, 12])
        #expect(cluster.relays[0].told?.channelsLeftOut == 0)
    }

    @Test func `channels that there is no room for are counted`() async throws {
        let many = (0..<1_000).map { Self.channel("Channel \($0)", members: $0 < 500 ? 2 : 0) }
        let status = try #require(try await Self.status(Self.cluster([("a", .told(Self.look(many)))])))
        let told = try #require(status.cluster?.relays.first?.told)
        #expect(told.channels == 1_000 && told.members == 1_000)
        #expect(told.channelsLeftOut == 1_000 - status.channels.count && told.channelsLeftOut > 900)
        #expect(told.membersLeftOut == 1_000 - status.memberCounts.reduce(0, +) && told.membersLeftOut > 900)
    }

    @Test func `a relay that does not run has no page, whatever the others say`() async throws {
        #expect(try await Self.status(Self.cluster([("a", .silent), ("b", .told(Self.look([])))])) == nil)
    }

    @Test func `the page draws what the data of a cluster have`() throws {
        let status = OperatorStatus(
            Self.cluster([("a", .told(Self.look([]))), ("e", .away(seconds: 12))]), own: Self.look([]))
        let cluster = try #require(status.cluster)
        let page = OperatorEndpoint.page
        func check(_ value: some Encodable) throws {
            let object = try JSONSerialization.jsonObject(with: JSONEncoder().encode(value))
            for key in try #require(object as? [String: Any]).keys {
                #expect(page.contains(".\(key)") || page.contains("\"\(key)\""), "\(key) is not drawn")
            }
        }
        try check(cluster)
        for relay in cluster.relays { try check(relay) }
        try check(try #require(cluster.relays[0].told))
    }

    @Test func `a relay in no cluster says nothing of one`() throws {
        let object = try JSONSerialization.jsonObject(
            with: Data(OperatorStatus(Self.relay([Self.channel("Yard", members: 1)]), version: "1").text.utf8))
        let status = try #require(object as? [String: Any])
        #expect(status["cluster"] == nil)
        let channel = try #require((status["channels"] as? [[String: Any]])?.first)
        #expect(channel["relay"] == nil && channel.count == 10)
    }

    // MARK: Metrics

    @Test func `the metrics of a cluster are those of this relay's part in it`() {
        var passages = LinkPassages()
        (passages.openTo, passages.begunTo, passages.failedTo) = (2, 7, 1)
        (passages.openFrom, passages.begunFrom) = (3, 9)
        var figures = ClusterFigures(
            relaysKnown: 3, relays: 2, shares: 32, unserved: 0, writes: true, position: 17, behind: 4,
            passages: passages)
        let relay = Self.relay([])
        let lines = Set(MetricsText.text(relay, version: "1", cluster: figures).split(separator: "\n").map(String.init))
        for line in [
            "pttrelay_cluster_relays_known 3", "pttrelay_cluster_relays 2", "pttrelay_cluster_shares 32",
            "pttrelay_cluster_shares_unserved 0", "pttrelay_cluster_writes_records 1",
            "pttrelay_cluster_log_position 17", "pttrelay_cluster_log_records_behind 4",
            #"pttrelay_web_passages{direction="to"} 2"#, #"pttrelay_web_passages{direction="from"} 3"#,
            #"pttrelay_web_passages_begun_total{direction="to"} 7"#,
            #"pttrelay_web_passages_begun_total{direction="from"} 9"#, "pttrelay_web_passages_failed_total 1",
        ] {
            #expect(lines.contains(line), "\(line)")
        }
        // What is not known is not there.
        (figures.position, figures.behind, figures.passages) = (nil, nil, nil)
        let text = MetricsText.text(relay, version: "1", cluster: figures)
        #expect(!text.contains("cluster_log") && !text.contains("web_passages") && text.contains("cluster_shares 32"))
        let alone = MetricsText.text(relay, version: "1")
        #expect(!alone.contains("pttrelay_cluster") && !alone.contains("web_passages"))
    }
}
