// The records of several nodes: what one writes is in the log first, and the others get it from there.
import Cryptography
import RelayProtocol
import SQLite
import Synchronization
import Testing

@testable import RelayStore

/// A log in memory.
private final class Log: RecordLog {
    struct Failure: Error, Equatable {}
    private let state = Mutex<(entries: [[UInt8]], fails: Bool, isAhead: Bool)>(([], false, false))

    var entries: [[UInt8]] { state.withLock { $0.entries } }
    var fails: Bool {
        get { state.withLock { $0.fails } }
        set { state.withLock { $0.fails = newValue } }
    }
    var isAhead: Bool { state.withLock { $0.isAhead } }

    func append(_ changes: [UInt8], behind place: LogPlace) throws -> UInt64 {
        try state.withLock { state in
            guard !state.fails, place.position == UInt64(state.entries.count) else { throw Failure() }
            state.entries.append(changes)
            return UInt64(state.entries.count)
        }
    }

    func isAhead(because error: any Error) { state.withLock { $0.isAhead = true } }
}

@Suite struct ClusterRecordsTests {
    private let folders: [Folder]
    private let first: RelayStore
    private let second: RelayStore
    private let log = Log()
    private let cluster = "00112233445566778899aabbccddeeff"

    init() throws {
        folders = [try Folder(), try Folder()]
        first = try RelayStore.open(path: folders[0].file)
        second = try RelayStore.open(path: folders[1].file)
    }

    private func name(_ text: String) throws -> DisplayName { try #require(DisplayName(text)) }

    private func place(_ position: Int) -> LogPlace {
        LogPlace(cluster: cluster, epoch: 1, position: UInt64(position))
    }

    private func begin() throws {
        try first.begin(place(0))
        first.share(with: log)
        try second.apply(try first.everything(rowsEach: 2), upTo: place(0), isBeginning: true)
    }

    private func follow() throws {
        let from = Int(try #require(try second.logPlace()).position)
        for index in from..<log.entries.count { try second.apply([log.entries[index]], upTo: place(index + 1)) }
    }

    /// Every row of every table that is shared.
    private func contents(_ store: RelayStore) throws -> [String: [[Value]]] {
        try store.read { db in
            try Dictionary(
                uniqueKeysWithValues: RelayStoreSchema.sharedTables.map { table in
                    (table, try db.rows("SELECT * FROM \(table)").map(\.values).sorted { "\($0)" < "\($1)" })
                })
        }
    }

    @Test func `whatever one node writes, the other one has`() throws {
        let yard = try first.addChannel(try name("Yard"), now: 1)
        let standing = try #require(try first.standingToken(of: yard.id))
        _ = try first.enrol(device(0), named: try name("Before"), with: standing, in: yard.id, now: 1)
        try begin()
        #expect(try contents(first) == contents(second))
        try first.setLastStart(host: "relay.example", port: 4_433)
        try first.setLastStart(host: "relay.example", port: 4_434)
        for number in 1...5 {
            _ = try first.enrol(device(number), named: try name("D\(number)"), with: standing, in: yard.id, now: 2)
        }
        let token = InvitationToken()
        let invitation = try first.invite(to: yard.id, token: token, terms: .init(uses: 2), now: 2)
        _ = try first.enrol(device(6), named: try name("D6"), with: token, in: yard.id, now: 3)
        _ = try first.revoke(device(1), from: yard.id, now: 4)
        let gate = try first.addChannel(try name("Gate"), isAdded: true, isServed: true, now: 5)
        _ = try first.changeChannel(gate.id, name: try name("Square"), settings: ChannelSettings(), isServed: true)
        let secret = try first.retrySecret()
        try follow()
        #expect(try contents(first) == contents(second))
        #expect(try second.logPlace() == place(log.entries.count) && second.lastStart()?.port == 4_434)
        try first.removeChannel(yard.id)
        try follow()
        #expect(try contents(first) == contents(second))
        #expect(try second.channels().map(\.name.text) == ["Square"] && second.retrySecret() == secret)
        try second.check()
        // The next node goes on where the first one was: also with the numbers of invitations.
        let other = Log()
        for entry in log.entries { _ = try other.append(entry, behind: place(other.entries.count)) }
        second.share(with: other)
        #expect(try second.invite(to: gate.id, token: InvitationToken(), terms: .init(), now: 6) > invitation)
    }

    @Test func `what the log does not take is not kept`() throws {
        let yard = try first.addChannel(try name("Yard"), now: 1)
        try begin()
        let before = try contents(first)
        log.fails = true
        #expect(throws: RelayStoreError.self) { try first.addChannel(try name("Gate"), now: 2) }
        #expect(throws: RelayStoreError.self) { try first.removeChannel(yard.id) }
        #expect(try contents(first) == before && log.entries.isEmpty && !log.isAhead)
        log.fails = false
        try first.addChannel(try name("Gate"), now: 2)
        // What changes nothing is not told.
        let count = log.entries.count
        try first.setServed([], declared: [])
        try first.setServed([], declared: [])
        #expect(log.entries.count <= count + 1)
        try follow()
        #expect(try contents(first) == contents(second))
    }

    @Test func `a node with records of its own, or of another cluster, is told so and keeps them`() throws {
        try first.addChannel(try name("Yard"), now: 1)
        try second.addChannel(try name("Mine"), now: 1)
        let before = try contents(second)
        #expect(throws: RelayStoreError.differs("it has channels of its own")) {
            try second.apply(try first.everything(), upTo: place(1), isBeginning: true)
        }
        #expect(throws: RelayStoreError.differs("it is of another cluster")) {
            try second.apply([], upTo: place(1))
        }
        #expect(try contents(second) == before && second.logPlace() == nil)
    }

    @Test func `a change that does not fit is not applied, not even in part`() throws {
        let yard = try first.addChannel(try name("Yard"), now: 1)
        try begin()
        let token = try #require(try first.standingToken(of: yard.id))
        _ = try first.enrol(device(1), named: try name("D1"), with: token, in: yard.id, now: 2)
        _ = try first.revoke(device(1), from: yard.id, now: 3)
        // The second entry without the first one.
        #expect(throws: RelayStoreError.differs("a change of another node does not fit it")) {
            try second.apply([log.entries[1]], upTo: place(2))
        }
        // The first one twice.
        try second.apply([log.entries[0]], upTo: place(1))
        let before = try contents(second)
        #expect(throws: RelayStoreError.self) { try second.apply([log.entries[0]], upTo: place(2)) }
        #expect(try contents(second) == before && second.logPlace() == place(1))
        try second.check()
    }

    @Test func `records of a cluster are not written past it`() throws {
        try first.addChannel(try name("Yard"), now: 1)
        try first.begin(place(3))
        #expect(throws: RelayStoreError.inCluster) { try first.addChannel(try name("Gate"), now: 2) }
        try first.leaveCluster()
        try first.addChannel(try name("Gate"), now: 2)
        let again = try RelayStore.open(path: folders[0].file)
        #expect(try again.logPlace() == nil && again.nodeIdentifier() == first.nodeIdentifier())
        #expect(try first.nodeIdentifier() != second.nodeIdentifier())
    }
}
