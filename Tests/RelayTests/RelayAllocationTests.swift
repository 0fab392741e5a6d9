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

    /// Allocations of the relay's threads for each packet that a talker sends to so many listeners.
    private func allocationsPerPacket(listeners: Int, workers: Int, helpers: Int) throws -> Double {
        let program = try #require(Self.probe, "RelayProbe was not built: swift build --build-tests")
        let output = try #require(popen("'\(program)' \(listeners) \(workers) \(helpers)", "r"))
        var line = [CChar](repeating: 0, count: 256)
        let read = fgets(&line, Int32(line.count), output) != nil
        #expect(pclose(output) == 0)
        let text = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        try #require(read, "the probe says nothing")
        var values: [Substring: Int] = [:]
        for word in text.split(whereSeparator: \.isWhitespace) {
            let parts = word.split(separator: "=")
            if parts.count == 2 { values[parts[0]] = Int(parts[1]) }
        }
        let allocations = try #require(values["allocations"], "\(text)")
        let packets = try #require(values["packets"], "\(text)")
        #expect(try #require(values["out"]) >= packets * listeners)
        return Double(allocations) / Double(packets)
    }

    /// Who listens, and which threads the relay has; helpers take part from 256 listeners on.
    @Test(arguments: [(33, 1, 0), (33, 3, 0), (280, 1, 2)])
    func aListenersPacketCostsNoAllocation(listeners: Int, workers: Int, helpers: Int) throws {
        // On a busy machine the relay's other work falls into the count, once a second for each listener: then once more.
        // A quarter of one for each listener is what an unoptimised build's other work comes to.
        let bound = Double(listeners - 1) / 4
        var (one, many) = (0.0, Double.infinity)
        for _ in 1...6 where many - one >= bound {
            one = try allocationsPerPacket(listeners: 1, workers: workers, helpers: helpers)
            many = try allocationsPerPacket(listeners: listeners, workers: workers, helpers: helpers)
        }
        // What comes from the talker is kept for repair and decided upon: the same, however many listen.
        #expect(many - one < bound, "\(one) for one listener, \(many) for \(listeners)")
    }
}
