import Testing

@testable import pttrelay

@Suite struct StartNeedsTests {
    @Test func `a relay takes as many connections as half the memory holds, within bounds`() {
        let gigabyte = 1_000_000_000
        #expect(StartNeeds.standardConnections(memory: 16 * gigabyte) == 20_000)
        #expect(StartNeeds.standardConnections(memory: gigabyte) == 11_111)
        #expect(StartNeeds.standardConnections(memory: gigabyte / 16) == 2_048)
        #expect(StartNeeds.standardConnections(memory: nil) == 2_048)
        #expect(StartNeeds.standardConnections(memory: Int.max) == 20_000)
    }

    @Test func `what is missing is said with what to do`() throws {
        let needs = StartNeeds(connections: 20_000, keptBytes: 100_000_000, hasLinks: true)
        #expect(needs.problems(memory: 1_000_000_000, descriptors: 20_256).isEmpty)
        #expect(needs.problems(memory: nil, descriptors: nil).isEmpty)
        let problems = needs.problems(memory: 512_000_000, descriptors: 1_024)
        try #require(problems.count == 2)
        #expect(problems[0].contains("20000 connections") && problems[0].contains("1000 MB"))
        #expect(problems[0].contains("512 MB") && problems[0].contains("'connections'"))
        #expect(problems[1].contains("1024") && problems[1].contains("LimitNOFILE"))
        // QUIC needs no descriptors.
        #expect(
            StartNeeds(connections: 20_000, keptBytes: 0, hasLinks: false).problems(memory: nil, descriptors: 1_024)
                .isEmpty)
    }

    @Test func `the tightest control group counts`() {
        let files = [
            "/sys/fs/cgroup/system.slice/pttrelay.service/memory.max": "max\n",
            "/sys/fs/cgroup/system.slice/memory.max": "700000000\n",
        ]
        let limits = MachineMemory.groupLimits(of: "0::/system.slice/pttrelay.service\n", read: { files[$0] })
        #expect(limits == [nil, 700_000_000, nil])
        // In a container the group is the root of what can be seen.
        #expect(MachineMemory.groupLimits(of: "0::/\n", read: { _ in "5\n" }) == [5])
        // Version 1 has no such line.
        #expect(MachineMemory.groupLimits(of: "4:memory:/user.slice\n", read: { _ in "5\n" }).isEmpty)
    }
}
