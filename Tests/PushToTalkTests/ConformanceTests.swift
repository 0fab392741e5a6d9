// The table of conformance is complete, and the one that is committed.
import Foundation
import Testing

@Suite struct ConformanceTests {
    private static let page = SamplesTests.root.appendingPathComponent("docs/push-to-talk-conformance.md")

    @Test func `every row is shown by a test`() throws {
        let tests = try Conformance.tests()
        let rows = Conformance.sections.flatMap(\.rows).map(\.id)
        #expect(Set(rows).count == rows.count)
        for row in rows { #expect(tests[row]?.isEmpty == false, "no test shows \(row)") }
        for row in tests.keys { #expect(rows.contains(row), "there is no row \(row)") }
    }

    /// `PTTD_WRITE_CONFORMANCE=1` writes it.
    @Test func `the committed table is up to date`() throws {
        let table = try Conformance.table()
        if ProcessInfo.processInfo.environment["PTTD_WRITE_CONFORMANCE"] != nil {
            try table.write(to: Self.page, atomically: true, encoding: .utf8)
        } else {
            #expect(
                try String(contentsOf: Self.page, encoding: .utf8) == table,
                "run: PTTD_WRITE_CONFORMANCE=1 swift test --filter ConformanceTests")
        }
    }
}
