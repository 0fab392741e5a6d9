// That a relay allocates nothing for a listener's packet, counted in a process of its own.
import Glibc
import Testing

@Suite struct RelayAllocationTests {
    /// The probe beside the running tests. It is an executable of this package, which `swift build --build-tests` builds.
    private static var probe: String? {
        var path = [CChar](repeating: 0, count: 4_096)
        guard readlink("/proc/self/exe", &path, path.count - 1) > 0 else { return nil }
        // `swift test` may run the tests from a helper program; their folder is then in the arguments.
        let own = path.withUnsafeBufferPointer { $0.baseAddress.map { String(cString: $0) } ?? "" }
        for candidate in CommandLine.arguments + [own] {
            var folder = candidate
            while let slash = folder.lastIndex(of: "/") {
                folder = String(folder[..<slash])
                if access(folder + "/RelayProbe", X_OK) == 0 { return folder + "/RelayProbe" }
            }
        }
        return nil
    }

    /// Allocations of the relay's threads for each packet that a talker sends.
    private func allocationsPerPacket(_ relay: Relay) throws -> Double {
        let program = try #require(Self.probe, "RelayProbe was not built: swift build --build-tests")
        let output = try #require(popen("'\(program)' \(relay.listeners) \(relay.workers) \(relay.helpers)", "r"))
        var line = [CChar](repeating: 0, count: 256)
        let read = fgets(&line, Int32(line.count), output) != nil
        #expect(pclose(output) == 0)
        let text = String(decoding: line.prefix { $0 != 0 }.map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
        try #require(read, "the probe says nothing")
        var values: [Substring: Int] = [:]
        for word in text.split(whereSeparator: \.isWhitespace) {
            let parts = word.split(separator: "=")
            if parts.count == 2 { values[parts[0]] = Int(parts[1]) }
        }
        let allocations = try #require(values["allocations"], "\(text)")
        let packets = try #require(values["packets"], "\(text)")
        #expect(try #require(values["out"]) >= packets * relay.listeners)
        #expect((values["helped"] ?? 0 > 0) == (relay.helpers > 0))
        return Double(allocations) / Double(packets)
    }

    struct Relay: CustomTestStringConvertible {
        var listeners = 1
        var workers = 1
        var helpers = 0
        var testDescription: String { "\(listeners) listeners, \(workers) + \(helpers) threads" }
    }

    @Test(arguments: [
        (Relay(), Relay(listeners: 33)), (Relay(workers: 3), Relay(listeners: 33, workers: 3)),
        // Helpers take part from 256 listeners on.
        (Relay(listeners: 280), Relay(listeners: 280, helpers: 2)),
    ])
    func `a listeners packet costs no allocation`(_ less: Relay, _ more: Relay) throws {
        // On a busy machine the relay's other work falls into the count, once a second for each listener: then once more.
        var (few, many) = (0.0, Double.infinity)
        for _ in 1...6 where many - few >= 8 {
            few = try allocationsPerPacket(less)
            many = try allocationsPerPacket(more)
        }
        // What comes from the talker is kept for repair and decided upon: the same, however many listen.
        // A quarter of one for each of 32 listeners is what an unoptimised build's other work comes to.
        #expect(many - few < 8, "\(few) with \(less.testDescription), \(many) with \(more.testDescription)")
    }
}
