// The relays of a cluster, and the NATS between them: the stream of their table, and their questions to each other.
import MonotonicTime
import QUIC
import RelayProtocol
import TestSupport

@testable import RelayCluster
@testable import RelayServer

/// Three relays with one name, each of which serves some shares of the channels.
///
/// The stream is there for those who reach it. It answers late, loses questions and answers, and gets some of what was given up all the same.
final class SimulatedCluster {
    static let nodeCount = 3
    /// Those of the relays.
    static let addresses = (1...nodeCount).compactMap { SocketAddress("192.0.2.\($0)", port: 1) }
    /// Where the name of the invitations leads: now and then first to where nobody is, as from a host without IPv6.
    let namedAddresses: [SocketAddress]

    private let world: World
    private var chances: SeededGenerator
    private(set) var nodes: [SimulatedNode] = []
    /// The table's stream, as far as it is kept.
    private var messages: [(sequence: UInt64, message: ShareTableMessage?)] = []
    private var last: UInt64 = 0
    /// The table as whoever has read all of the stream has it.
    private var chain = ShareTableChain()
    /// Until when no server can write, for they look for a leader.
    private var leaderlessUntil = Instant.zero
    /// How long a message to or from NATS takes at most, in milliseconds.
    private let slowest: Int
    /// Nothing goes wrong with NATS, nor with the disks.
    let isPeaceful: Bool
    /// What all relays have in their records: the number of the channels' rules, and the members.
    private var rules: Int
    /// Of the relay that has begun to write them last.
    private var writerEpoch: UInt64 = 0
    private var memberships: [ChannelID: [MemberID: RelayMembership]] = [:]
    private let home: Int
    private let channels: [String]

    init(_ world: World, fleet: Fleet, channels: [RelayChannelConfiguration]) {
        self.world = world
        chances = world.random("NATS")
        isPeaceful = fleet.schedule.isPeaceful
        slowest = (isPeaceful ? [5, 30] : [5, 30, 200]).randomElement(using: &chances)!
        rules = fleet.schedule.rules
        home = channels[0].id.share()
        var name = world.random("name")
        namedAddresses =
            (name.chance(15) ? [SocketAddress("2001:db8::1", port: 1)].compactMap(\.self) : []) + Self.addresses
        self.channels = channels.map(\.name.text)
        nodes = (0..<Self.nodeCount).map { number in
            let place = RelayPlace(host: "node\(number)", port: 1)!
            let relay = SimulatedRelay(
                world, fleet: fleet, number: number, place: place, channels: channels, isOfCluster: true)
            let node = SimulatedNode(self, relay: relay, chances: world.random("node \(number)"))
            relay.node = node
            return node
        }
    }

    /// Channels in shares of any numbers: those with great ones move most often.
    static func channels(_ random: SeededGenerator) -> [ChannelID] {
        var random = random
        return (0..<3).map { index in
            let share = Int.random(in: 0..<ChannelID.shareCount, using: &random)
            var number = index * 10_000
            while true {
                let digits = String(String(number + 1_000_000_000_000).dropFirst())
                let id = ChannelID("00000000-0000-4000-8000-\(digits)")!
                if id.share() == share { return id }
                number += 1
            }
        }
    }

    // MARK: The cluster

    func start() { for node in nodes { node.start() } }

    /// The one that an action is about: one of them, or whichever serves.
    func node(_ number: Int) -> SimulatedNode {
        if number < nodes.count { return nodes[number] }
        return serving?.node ?? nodes[0]
    }

    func relay(at place: String) -> SimulatedRelay? { nodes.first { "\($0.relay.place)" == place }?.relay }

    /// The relay that the table names for the first channel.
    var serving: SimulatedRelay? { owner(of: home)?.relay }

    private func owner(of share: Int) -> SimulatedNode? {
        guard let owner = chain.table?.shares[share].owner else { return nil }
        return nodes.first { $0.incarnation == owner && $0.relay.isUp }
    }

    /// Each share has an owner that serves it and nobody else does, the shares are divided evenly, and no channel is held.
    var unrest: String? {
        guard let table = chain.table else { return "there is no table of shares" }
        let most = (table.shares.count + nodes.count - 1) / nodes.count
        for node in nodes {
            let shares = table.shares(of: node.incarnation)
            if !node.serves(shares, of: table) { return "\(node.relay.name) does not serve what the table says" }
            if shares.count > most { return "\(node.relay.name) has \(shares.count) shares" }
        }
        if let free = table.shares.firstIndex(where: { table.node($0.owner) == nil }) {
            return "share \(free) has no owner"
        }
        guard let writer = table.node(table.writer?.incarnation)?.incarnation,
            nodes.allSatisfy({ $0.writer?.incarnation == writer })
        else { return "not all know the relay that writes the records" }
        return table.shares.contains { $0.earlier != nil || !$0.held.isEmpty } ? "an earlier owner has channels" : nil
    }

    func setRules(_ number: Int) { rules = number }

    /// Two relays never would grant the floor of one channel, nor have done so. A frozen one looks at its clock before anything else.
    func check() {
        for node in nodes { node.check() }
        for channel in channels {
            var others: [SimulatedRelay] = []
            for node in nodes where node.relay.isRunning && node.relay.watch.mayGrant(channel) {
                others.append(node.relay)
            }
            if others.count > 1 {
                world.fail("I4", "\(others.map(\.name).joined(separator: " and ")) may grant the floor of \(channel)")
            }
        }
    }

    // MARK: Records

    /// A channel as the records have it, and its members.
    func record(of id: ChannelID, in known: [RelayChannelConfiguration]) -> (
        configuration: RelayChannelConfiguration, members: [MemberID: RelayMembership]
    )? {
        guard var configuration = known.first(where: { $0.id == id }) else { return nil }
        configuration.rules = FleetRules.all[rules]
        return (configuration, memberships[id] ?? [:])
    }

    /// A relay begins to write the records.
    func writes(_ relay: SimulatedRelay, _ epoch: UInt64) {
        if epoch <= writerEpoch {
            world.fail("I4", "\(relay.name) writes the records in epoch \(epoch), after one in \(writerEpoch)")
        }
        writerEpoch = epoch
    }

    /// The relay that writes the records makes somebody a member, as a relay asks it to.
    func enrol(_ enrolment: RelayEnrolment, by node: SimulatedNode) -> RelayEnrolmentVerdict {
        let writer = nodes.first { $0.isListening && $0.relay.isRunning && $0.incarnation == node.writer?.incarnation }
        guard let writer, world.now >= max(leaderlessUntil, node.cutOffUntil, writer.cutOffUntil) else {
            return .refused(.relayBusy, "the cluster cannot write its records now")
        }
        memberships[enrolment.channel, default: [:]][enrolment.member] = RelayMembership()
        for other in nodes where other !== writer && other !== node {
            other.learn(of: enrolment.member, on: enrolment.channel)
        }
        return .admitted(RelayMembership())
    }

    // MARK: The table

    func loseLeader(for time: Duration) { leaderlessUntil = max(leaderlessUntil, world.now + time) }

    /// Whether that relay reaches the streams.
    func isReached(by node: SimulatedNode) -> Bool {
        world.now >= max(leaderlessUntil, node.cutOffUntil, node.withoutTableUntil)
    }

    func read(by node: SimulatedNode) {
        ask(node, orElse: .readFailed) { [self] in
            follow(node) ? .read(node.chain.table, revision: node.chain.accepted) : .readFailed
        }
    }

    func write(_ table: ShareTable, over revision: UInt64, by node: SimulatedNode) {
        guard node.chain.accepted == revision else {
            return node.later(after: .milliseconds(1)) { $0.take(.refused) }
        }
        let message = ShareTableMessage(over: revision, parent: node.chain.digest, table: table)
        ask(node, orElse: .writeFailed, isWrite: true) { [self] in
            last += 1
            messages.append((last, message))
            if messages.count > ShareTableChain.messagesKept { messages.removeFirst() }
            chain.take(messages.last?.message, at: last)
            let sequence = last
            guard follow(node) else { return .writeFailed }
            return node.chain.accepted == sequence ? .written(revision: sequence) : .refused
        }
    }

    /// A node reads what it has not read of the stream, as `ShareTableStream` does.
    private func follow(_ node: SimulatedNode) -> Bool {
        defer {
            if node.chain.isForked { world.fail("I4", "\(node.relay.name) has read another table than others") }
        }
        let seen = node.chain.seen
        guard last > seen else { return true }
        if seen > 0, last - seen <= 100 {
            for (sequence, message) in messages where sequence > seen { node.chain.take(message, at: sequence) }
            return true
        }
        var begun = node.chain
        guard begun.begin(messages) else { return false }
        node.chain = begun
        return true
    }

    /// How long a message to or from NATS takes.
    func delay() -> Duration { .milliseconds(Int.random(in: 1...slowest, using: &chances)) }

    /// Something goes wrong in that many of a hundred cases.
    private func fails(_ percent: Int) -> Bool { !isPeaceful && chances.chance(percent) }

    private func milliseconds(_ range: ClosedRange<Int>) -> Duration {
        .milliseconds(Int.random(in: range, using: &chances))
    }

    /// A question and its answer: each takes its time, or is lost. A write that was given up may come to the stream later.
    private func ask(
        _ node: SimulatedNode, orElse failure: SharesStateMachine.Event, isWrite: Bool = false,
        _ question: @escaping () -> SharesStateMachine.Event
    ) {
        let life = node.life
        func tell(_ event: SharesStateMachine.Event, after delay: Duration) {
            world.after(delay) { node.relay.act { if node.life == life { node.take(event) } } }
        }
        world.after(delay()) { [self] in
            guard node.life == life || isWrite else { return }
            guard isReached(by: node), !fails(3) else {
                if isWrite, chances.chance(30) {
                    world.after(milliseconds(1...5_000)) { [self] in if isReached(by: node) { _ = question() } }
                }
                return tell(failure, after: milliseconds(1...1_000))
            }
            let answer = question()
            // Several messages are asked for one after the other.
            let wait = fails(2) ? milliseconds(500...4_000) : delay()
            tell(fails(4) ? failure : answer, after: wait)
        }
    }

    // MARK: Votes

    /// The caller gives up after this time.
    private static let answerTime = Duration.seconds(1)

    /// Asks the relays of these incarnations. That needs NATS, and no stream.
    func ask(_ question: ShareVotes.Question, _ others: [String], by node: SimulatedNode) {
        let (life, sent, asker) = (node.life, world.now, node.incarnation)
        let askedAt = node.relay.clock.now
        for other in others {
            guard world.now >= node.cutOffUntil, !fails(5),
                let asked = nodes.first(where: { $0.incarnation == other })
            else { continue }
            world.after(delay()) { [self] in
                guard world.now >= asked.cutOffUntil else { return }
                let itsLife = asked.life
                asked.relay.act { [self] in
                    guard asked.life == itsLife, asked.isListening, asked.answer(question, of: asker),
                        !fails(5)
                    else { return }
                    world.after(delay()) { [self] in
                        guard world.now >= max(node.cutOffUntil, asked.cutOffUntil), world.now < sent + Self.answerTime
                        else { return }
                        node.relay.act {
                            guard node.life == life else { return }
                            switch question {
                            case .promise: node.take(.promised(by: other, askedAt: askedAt))
                            case .consent(let relay): node.take(.consented(by: other, to: relay))
                            }
                        }
                    }
                }
            }
        }
    }
}
