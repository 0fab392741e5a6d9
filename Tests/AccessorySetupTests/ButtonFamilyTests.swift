// A thousand made-up families of buttons: how many are learned, and which of them other keys disturb.
import MonotonicTime
import TestSupport
import Testing

@testable import Accessories
@testable import AccessorySetup

@Suite struct ButtonFamilyTests {
    private static let count = 1_000
    private static let shards = 8

    private static func results() async -> [FamilyResult] {
        await withTaskGroup(of: [FamilyResult].self) { group in
            for shard in 0..<shards {
                group.addTask {
                    stride(from: shard, to: count, by: shards).map { FamilySimulation.run(seed: UInt64($0)) }
                }
            }
            return await group.reduce(into: []) { $0 += $1 }
        }
    }

    @Test(
        "of a thousand button families 99 in 100 are learned, and no other key opens the microphone or keeps it open"
    )
    func families() async {
        let results = await Self.results()
        let works = results.filter(\.works)
        let times = works.map(\.learningTime).sorted()
        let median = times.isEmpty ? .zero : times[times.count / 2]
        let last = times.isEmpty ? .zero : times[times.count * 95 / 100]
        for (kind, all) in Dictionary(grouping: results, by: \.kind).sorted(by: { $0.key < $1.key }) {
            func sum(_ value: (FamilyResult) -> Int) -> Int { all.reduce(0) { $0 + value($1) } }
            print(
                "families: \(kind): \(all.count { $0.works }) of \(all.count) learned; talk while another key is held: "
                    + "\(sum(\.togetherHeard)) of \(sum(\.together)); ended by another key \(sum(\.endedByOthers)), by nothing "
                    + "\(sum(\.endedByNothing))")
        }
        print(
            "families: \(works.count) of \(results.count) learned and working, in \(median) (median), \(last) (95 %); "
                + "\(results.count { !$0.isSafe }) open the microphone or keep it open without the talk key")
        for result in results where !result.works || !result.isSafe {
            print("families: not as it should be: \(result)")
        }
        #expect(results.count { !$0.isSafe } == 0)
        #expect(works.count * 100 >= results.count * 99)
        let masks = works.filter { $0.kind == "mask" }
        #expect(masks.count { $0.togetherHeard < $0.together } * 100 <= masks.count)
        #expect(median <= .seconds(20))
    }
}
