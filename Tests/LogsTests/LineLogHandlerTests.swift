import Glibc
import Logging
import Logs
import Testing

@Suite struct LineLogHandlerTests {
    private func line(_ body: (Logger) -> Void) -> String {
        var ends: [Int32] = [0, 0]
        pipe(&ends)
        defer {
            close(ends[0])
            close(ends[1])
        }
        body(Logger(label: "test") { LineLogHandler(label: $0, level: .info, descriptor: ends[1]) })
        var flags = [UInt8](repeating: 0, count: 4096)
        _ = fcntl(ends[0], F_SETFL, O_NONBLOCK)
        let count = read(ends[0], &flags, flags.count)
        return String(decoding: flags.prefix(max(0, count)), as: UTF8.self)
    }

    @Test func anEventIsOneLineWithItsMetadataSorted() {
        let text = line { $0.info("floor granted", metadata: ["t": "12", "channel": "Local One"]) }
        #expect(text.hasSuffix("info test: floor granted channel=\"Local One\" t=12\n"))
    }

    @Test func aPeerCannotForgeALine() {
        let text = line { $0.warning("bad name", metadata: ["name": "x\n0.0 info pttd: forged\u{1b}\"q"]) }
        #expect(text.split(separator: "\n").count == 1)
        #expect(text.contains("\\n0.0 info") && text.contains("\\x1b") && text.contains("\\\"q"))
    }

    @Test func eventsBelowTheLevelAreNotWritten() {
        #expect(line { $0.debug("quiet") }.isEmpty)
    }
}
