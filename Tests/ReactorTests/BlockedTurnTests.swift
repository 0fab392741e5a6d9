// The watch of debug builds that finds work which waits on an event loop.
#if DEBUG
import Glibc
import Testing

@Suite struct BlockedTurnTests {
    @Test func `a turn that waits is reported with its stack`() throws {
        let said = try run("wait")
        #expect(said.contains("BLOCKED TURN: event loop 'probe' waits for more than 20 ms in one turn"))
        #expect(said.contains("blocked-turn-probe(+0x"), "\(said)")
        #expect(said.components("BLOCKED TURN") == 2, "once for the turn")
    }

    @Test(arguments: ["compute", "short", "allowed"])
    func `a turn that computes, short waits and a loop that may wait are not reported`(kind: String) throws {
        #expect(try run(kind) == "")
    }

    /// What a process with such a loop says.
    private func run(_ kind: String) throws -> String {
        let program = try #require(probe, "blocked-turn-probe was not built: swift build --build-tests")
        let stream = try #require(popen("PTTD_BLOCKED_TURNS=1 '\(program)' \(kind) 2>&1", "r"))
        defer { pclose(stream) }
        var text = ""
        var line = [CChar](repeating: 0, count: 4_096)
        while fgets(&line, Int32(line.count), stream) != nil {
            text += String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        }
        return text
    }

    /// The program beside the tests' own.
    private var probe: String? {
        for argument in CommandLine.arguments {
            var folder = argument[...]
            while let slash = folder.lastIndex(of: "/") {
                folder = folder[..<slash]
                if access(folder + "/blocked-turn-probe", X_OK) == 0 { return folder + "/blocked-turn-probe" }
            }
        }
        return nil
    }
}

extension String {
    /// Parts between occurrences of `text`.
    fileprivate func components(_ text: String) -> Int {
        split(separator: text, omittingEmptySubsequences: false).count
    }
}
#endif
