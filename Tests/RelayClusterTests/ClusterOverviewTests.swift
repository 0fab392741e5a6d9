// A cluster as an operator sees it: what is read from the table of shares, and which relays are away.
import Testing

@testable import RelayCluster

@Suite struct ClusterOverviewTests {
    private static func member(_ name: String) -> ClusterMember {
        ClusterMember(node: name, identifier: "id-\(name)", incarnation: "run-\(name)", place: "\(name).example:4433")
    }

    private static func table(_ names: String...) -> ShareTable {
        var table = ShareTable()
        for name in names {
            var node = ShareTable.Node(member(name))
            node.isReady = true
            _ = table.enter(node)
        }
        return table
    }

    private static func report(_ name: String, at time: Int64) -> ClusterNodeReport {
        ClusterNodeReport(
            node: name, identifier: "id-\(name)", place: "\(name).example:4433", serves: false, position: 1, at: time,
            version: "1")
    }

    @Test func `the table says who serves how much, and who writes`() {
        var table = Self.table("b", "a")
        table.assignFree()
        table.assignWriter(preferring: "run-b")
        let overview = ClusterOverview(table, of: "radio", seenBy: Self.member("a"))
        #expect(overview.name == "radio" && overview.unserved == 0)
        #expect(overview.relays.map(\.name) == ["a", "b"])
        #expect(overview.relays.map(\.shares) == [32, 32])
        #expect(overview.relays.map(\.isOwn) == [true, false])
        #expect(overview.relays.map(\.writes) == [false, true])
        #expect(overview.relays.map(\.place) == ["a.example:4433", "b.example:4433"])
    }

    @Test func `shares without a relay are counted`() {
        var table = Self.table("a", "b")
        table.assignFree()
        // One whose entry has gone while others have not read it yet.
        table.shares[0].owner = "run-x"
        table.shares[1].owner = nil
        #expect(ClusterOverview(table, of: "radio", seenBy: Self.member("a")).unserved == 2)
    }

    @Test func `a relay that is in no table yet sees itself`() {
        for table in [nil, Self.table("b")] {
            let overview = ClusterOverview(table, of: "radio", seenBy: Self.member("a"))
            #expect(overview.relays.first?.name == "a" && overview.relays.first?.isOwn == true)
            #expect(overview.relays.first?.shares == 0 && overview.unserved == 64)
        }
    }

    @Test func `a relay that has reported and is not in the table is away, for a week`() {
        let overview = ClusterOverview(Self.table("a", "b"), of: "radio", seenBy: Self.member("a"))
        let (now, week): (Int64, Int64) = (10_000_000, 7 * 24 * 3_600)
        let away = overview.away(
            [
                Self.report("b", at: now), Self.report("e", at: now - 12), Self.report("d", at: now - week + 1),
                Self.report("c", at: now - week),
                // Its clock is ahead.
                Self.report("f", at: now + 30),
            ], at: now)
        #expect(away.map(\.name) == ["d", "e", "f"])
        #expect(away.map(\.seconds) == [week - 1, 12, 0])
        #expect(away.map(\.place) == ["d.example:4433", "e.example:4433", "f.example:4433"])
    }
}
