import Foundation
import Glibc
import Logging
import Logs
import Testing

@Suite struct LineLogHandlerTests {
    private func line(_ format: LogFormat = .text, _ body: (Logger) -> Void) -> String {
        var ends: [Int32] = [0, 0]
        pipe(&ends)
        defer {
            close(ends[0])
            close(ends[1])
        }
        let writer = LogWriter(ends[1])
        body(Logger(label: "test") { LineLogHandler(label: $0, level: .info, format: format, writer: writer) })
        #expect(writer.flush(within: .seconds(10)))
        writer.close()
        var flags = [UInt8](repeating: 0, count: 65_536)
        _ = fcntl(ends[0], F_SETFL, O_NONBLOCK)
        let count = read(ends[0], &flags, flags.count)
        return String(decoding: flags.prefix(max(0, count)), as: UTF8.self)
    }

    @Test func `an event is one line with its metadata sorted`() {
        let text = line { $0.info("floor granted", metadata: ["t": "12", "channel": "Local One"]) }
        #expect(text.hasSuffix("info test: floor granted channel=\"Local One\" t=12\n"))
    }

    @Test func `a peer cannot forge a line`() {
        let text = line { $0.warning("bad name", metadata: ["name": "x\n0.0 info pttd: forged\u{1b}\"q"]) }
        #expect(text.split(separator: "\n").count == 1)
        #expect(text.contains("\\n0.0 info") && text.contains("\\x1b") && text.contains("\\\"q"))
        // A terminal takes these, too, for the begin of a sequence, and for a line end.
        let others = line { $0.warning("bad name", metadata: ["name": "\u{9b}2J\u{85}\u{7f}\\"]) }
        #expect(others.hasSuffix(" name=\\x9b2J\\x85\\x7f\\\n"))
    }

    @Test func `as JSON an event is one object, whatever is in it`() throws {
        let text = line(.json) {
            $0.warning(
                "bad \"name\"",
                metadata: [
                    "name": "x\n{\u{1b}\u{85}\\é", "list": ["a", .stringConvertible(2)], "in": ["b": "c"],
                ])
        }
        #expect(text.split(separator: "\n", omittingEmptySubsequences: false).count == 2)
        let journal = text.drop { $0 != "{" }
        let object = try #require(try JSONSerialization.jsonObject(with: Data(journal.utf8)) as? [String: Any])
        #expect(Set(object.keys) == ["time", "level", "label", "message", "metadata"])
        #expect(object["level"] as? String == "warning" && object["label"] as? String == "test")
        #expect(object["message"] as? String == "bad \"name\"")
        let metadata = try #require(object["metadata"] as? [String: Any])
        #expect(metadata["name"] as? String == "x\n{\u{1b}\u{85}\\é")
        #expect(metadata["list"] as? [String] == ["a", "2"])
        #expect(metadata["in"] as? [String: String] == ["b": "c"])
        let time = try #require(object["time"] as? String)
        #expect(time.wholeMatch(of: #/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z/#) != nil, "\(time)")
        #expect(!text.contains("\u{1b}") && !text.contains("\u{85}"))
        #expect(!line(.json) { $0.info("plain") }.contains("metadata"))
    }

    @Test func `a line without end is cut, and says so`() {
        let text = line { $0.info("long", metadata: ["name": "\(String(repeating: "x", count: 30_000))"]) }
        #expect(text.utf8.count < 17_000 && text.hasSuffix(" bytes more\n"), "\(text.suffix(40))")
    }

    @Test func `events below the level are not written`() {
        #expect(line { $0.debug("quiet") }.isEmpty)
    }
}
