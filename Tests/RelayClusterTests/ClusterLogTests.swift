// A log that is long begins anew, with a real nats-server: whoever follows, begins or was behind has all records, wherever it is interrupted.
import Cryptography
import NATS
import RelayProtocol
import RelayStore
import TestSupport
import Testing

@testable import RelayCluster

@Suite(.timeLimit(.minutes(3)), .serialized) struct ClusterLogTests {
    private let rig: ClusterRig
    private let connection: NATSConnection
    private let settings: ClusterConfiguration

    init() throws {
        rig = try ClusterRig()
        connection = try NATSConnection(rig.server.options)
        settings = rig.configuration("a")
    }

    private func state() throws -> NATSConnection.StreamState {
        try connection.state(of: settings.log.name, wait: .seconds(2))
    }

    private func description() throws -> ClusterDescription {
        try #require(try ClusterAdministration.description(settings, connection, of: rig.relay.pin, wait: .seconds(2)))
    }

    private func follower(_ store: RelayStore, _ description: ClusterDescription) -> ClusterFollower {
        ClusterFollower(
            connection: connection, configuration: settings, description: description, store: store, relay: rig.relay)
    }

    /// What the node that serves has of the log, with the records of `store`, which is at its end.
    private func serving(_ store: RelayStore, epoch: UInt64 = 1) throws -> ClusterLog {
        let log = ClusterLog(connection, settings.log, of: rig.relay) { _ in }
        log.begin(epoch, at: try follower(store, description()).take(epoch: epoch).position)
        store.share(with: log)
        return log
    }

    private func keeper(_ store: RelayStore, _ log: ClusterLog, messages: UInt64) -> ClusterLogKeeper {
        var limits = ClusterLogLimits()
        limits.messages = messages
        return ClusterLogKeeper(
            connection: connection, configuration: settings, store: store, relay: rig.relay, log: log, limits: limits)
    }

    private func isShortened(_ outcome: ClusterLogKeeper.Outcome) -> Bool {
        if case .shortened = outcome { true } else { false }
    }

    private func enrol(_ numbers: Range<Int>, in channel: ChannelRecord, _ records: RelayStore) throws {
        let token = try #require(try records.standingToken(of: channel.id))
        for number in numbers {
            let hash = sha256(Array("\(number)".utf8)).prefix(MemberID.byteCount)
            let member = try #require(MemberID(bytes: hash))
            _ = try records.enrol(member, named: try rig.name("D\(number)"), with: token, in: channel.id, now: 2)
        }
    }

    /// Makes the log longer than the records: the newest of many changes of the same record counts.
    private func changeOften(_ times: Int, _ records: RelayStore) throws {
        for number in 0..<times {
            try records.setLastStart(host: "relay-\(number).example", port: 4_400)
        }
    }

    @Test func `the end of an epoch that a later one has followed stops nobody`() throws {
        let (records, _) = try rig.makeCluster()
        let log = try serving(records, epoch: 2)
        // A catch-up for the first epoch, which has taken so long that the node has begun the second one meanwhile.
        log.end(1)
        try records.setLastStart(host: "relay.example", port: 4_433)
        log.end(2)
        #expect(throws: RelayStoreError.self) { try records.setLastStart(host: "relay.example", port: 4_434) }
    }

    @Test func `a long log begins anew while records change, and nobody lacks one`() async throws {
        let (records, yard) = try rig.makeCluster()
        let early = try description()
        // This one has the beginning, and follows no more until the end.
        let behind = try rig.store("behind")
        #expect(try follower(behind, early).follow().isEnd)
        var limits = ClusterLogLimits()
        (limits.messages, limits.interval) = (40, .milliseconds(50))
        let first = try rig.run(settings, records, logLimits: limits)
        #expect(try await rig.eventually { first.node.writes })
        let second = try rig.run(rig.configuration("b"), try rig.store("b"), logLimits: limits)
        for step in 0..<10 {
            try enrol(step * 10..<step * 10 + 10, in: yard, records)
            try changeOften(40, records)
        }
        #expect(try await rig.eventually { try state().last - state().first < 100 })
        let begun = first.record.lines.count { $0.contains("the cluster's log begins anew") }
        print("the log of \(try state().last) messages began anew \(begun) times, and has \(try state())")
        #expect(begun >= 2)
        #expect(try await rig.eventually { try second.store.logPlace() == records.logPlace() })
        // Who was behind; who begins with a description that was read long ago; who begins now.
        let late = try rig.store("late")
        for store in [behind, late] { #expect(try follower(store, early).follow().isEnd) }
        let third = try rig.run(rig.configuration("c"), try rig.store("c"))
        #expect(try await rig.eventually { try third.store.logPlace() == records.logPlace() })
        let all = try records.everything()
        #expect(try records.members()[yard.id]?.count == 100)
        for store in [second.store, behind, late, third.store] { #expect(try store.everything() == all) }
        // The next one goes on with the log, and with its length.
        #expect(await first.node.release() == "127.0.0.1:9")
        #expect(try await rig.eventually { second.node.writes || third.node.writes })
        let next = second.node.writes ? second : third
        let other = second.node.writes ? third : second
        try next.store.addChannel(try rig.name("Gate"), now: 3)
        #expect(try await rig.eventually { try other.store.everything() == next.store.everything() })
        #expect(second.record.ends.isEmpty && third.record.ends.isEmpty)
    }

    @Test func `a beginning that is interrupted at any step leaves a log that all can follow`() throws {
        let (records, yard) = try rig.makeCluster()
        let early = try description()
        let follows = try rig.store("b")
        _ = try serving(records)
        try enrol(0..<20, in: yard, records)
        try changeOften(100, records)
        func check() throws {
            let begins = try RelayStore.open(path: rig.folder.file("\(UInt64.random(in: 0 ... .max)).sqlite"))
            for store in [follows, begins] { #expect(try follower(store, early).follow().isEnd) }
            #expect(try follows.everything() == records.everything())
            #expect(try begins.everything() == records.everything())
        }
        try check()
        // After its first message: what follows is the next record.
        let cluster = try #require(Hexadecimal.decode(early.cluster))
        let record = ClusterRecord.beginning(
            .init(cluster: cluster, pin: rig.relay.pin, changes: try records.everything()))
        let parts = try #require(record.messages(epoch: 1, byteCountMaximum: 1_000))
        #expect(parts.count > 2)
        let last = try state().last
        _ = try connection.publish(
            rig.relay.seal(parts[0], at: last + 1, of: early.cluster), to: settings.log.subject, of: settings.log.name,
            after: .ofStream(last),
            wait: .seconds(2))
        let again = try serving(records, epoch: 2)
        try enrol(20..<25, in: yard, records)
        try check()
        // Before it is told where the log begins: it is one more record.
        _ = try records.repeatEverything { [relay = rig.relay] changes, place in
            try again.append(.init(cluster: cluster, pin: relay.pin, changes: changes), behind: place)
        }
        try enrol(25..<30, in: yard, records)
        try check()
        #expect(try description() == early)
        // Before the rest is removed: that is done at the next look.
        guard case .shortened(let before, let after) = try keeper(records, again, messages: 50).look() else {
            Issue.record("the log was not shortened")
            return
        }
        #expect(after < before / 2)
        let short = try description()
        #expect(short.first > early.first)
        #expect(try state().first == short.first)
        let message = try #require(
            try connection.last(of: settings.descriptionSubject, in: settings.state.name, wait: .seconds(2)))
        try changeOften(10, records)
        let position = try state().last
        let place = try #require(try records.logPlace())
        #expect(place.position == position)
        let beginning = try again.append(
            .init(cluster: cluster, pin: rig.relay.pin, changes: try records.everything()), behind: place)
        var told = short
        told.first = beginning.lowerBound
        _ = try connection.publish(
            told.message, to: settings.descriptionSubject, of: settings.state.name, after: .ofSubject(message.sequence),
            wait: .seconds(2))
        #expect(isShortened(try keeper(records, again, messages: 5_000).look()))
        #expect(try keeper(records, again, messages: 5_000).look() == .isShort)
        #expect(try state().first == beginning.lowerBound)
        try check()
    }

    @Test func `records that are as long as the log are not written again`() throws {
        let (records, yard) = try rig.makeCluster()
        let log = try serving(records)
        try enrol(0..<30, in: yard, records)
        #expect(isShortened(try keeper(records, log, messages: 10).look()))
        try enrol(30..<35, in: yard, records)
        let before = try state()
        let keeper = keeper(records, log, messages: 1)
        #expect(try keeper.look() == .isAllNeeded(bytes: before.bytes))
        #expect(try keeper.look(needed: before.bytes) == .isShort)
        #expect(try state() == before)
        // Once it is longer by a quarter, the records are looked at again.
        try changeOften(200, records)
        #expect(isShortened(try keeper.look(needed: before.bytes)))
        let short = try state()
        #expect(short.bytes < before.bytes && short.first > before.last)
        try enrol(35..<36, in: yard, records)
    }

    @Test func `who serves no longer shortens nothing`() throws {
        let (records, _) = try rig.makeCluster()
        let log = try serving(records)
        try changeOften(100, records)
        let other = try rig.store("b")
        let next = try serving(other, epoch: 2)
        let (before, told) = (try state(), try description())
        #expect(throws: RelayStoreError.self) { try keeper(records, log, messages: 10).look() }
        #expect(try state() == before)
        #expect(try description() == told)
        // Nor does one that has written the beginning and was deposed before it told where that is.
        #expect(isShortened(try keeper(other, next, messages: 10).look()))
        let now = try description()
        #expect(throws: NATSError.self) {
            try connection.publish(
                told.message, to: settings.descriptionSubject, of: settings.state.name, after: .ofSubject(1),
                wait: .seconds(2))
        }
        #expect(try description() == now)
        // Nothing is removed before something that is no beginning, whoever says that it is one.
        try changeOften(2, other)
        let position = try state().last
        for first in [position, position + 1] {
            var wrong = now
            wrong.first = first
            let last = try #require(
                try connection.last(of: settings.descriptionSubject, in: settings.state.name, wait: .seconds(2)))
            _ = try connection.publish(
                wrong.message, to: settings.descriptionSubject, of: settings.state.name,
                after: .ofSubject(last.sequence), wait: .seconds(2))
            #expect(throws: ClusterError.forged(position: first)) { try keeper(other, next, messages: 10).look() }
        }
        #expect(try state().last == position && state().first == now.first)
    }

    @Test func `a log that lacks records, or has another cluster's, is not taken for a whole one`() throws {
        let (records, yard) = try rig.makeCluster()
        let told = try description()
        let behind = try rig.store("b")
        #expect(try follower(behind, told).follow().isEnd)
        let place = try #require(try behind.logPlace())
        let log = try serving(records)
        try enrol(0..<10, in: yard, records)
        let last = try state().last
        try connection.purge(settings.log.name, before: last, wait: .seconds(2))
        for (store, missing) in [(behind, place.position + 1), (try rig.store("c"), told.first)] {
            #expect(throws: ClusterError.incomplete(position: missing)) { try follower(store, told).follow() }
        }
        #expect(try behind.logPlace() == place)
        let other = ClusterRecord.Beginning(
            cluster: Array(repeating: 7, count: 16), pin: rig.relay.pin, changes: try records.everything())
        let there = try log.append(other, behind: try #require(try records.logPlace()))
        #expect(throws: ClusterError.unreadable(position: there.upperBound)) {
            try follower(records, told).follow()
        }
    }
}
