// The writer's thread: nobody waits for a reader, nothing is lost unseen, and nothing runs while nothing is written.
import Foundation
import Glibc
import Logging
import MonotonicTime
import Testing

@testable import Logs

/// A pipe whose reading end is the test's.
private final class Pipe: Sendable {
    let reading: Int32
    let writing: Int32

    init() throws {
        var ends: [Int32] = [0, 0]
        try #require(pipe(&ends) == 0)
        (reading, writing) = (ends[0], ends[1])
    }

    deinit {
        close(reading)
        close(writing)
    }

    /// Reads until `mark` has come, or for ten seconds.
    func read(until mark: String) -> String {
        var all: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        let deadline = Instant.now + .seconds(10)
        while Instant.now < deadline {
            var wish = pollfd(fd: reading, events: Int16(POLLIN), revents: 0)
            guard poll(&wish, 1, 100) > 0 else { continue }
            let count = Glibc.read(reading, &buffer, buffer.count)
            all += buffer.prefix(max(0, count))
            if all.count >= mark.utf8.count, String(decoding: all.suffix(300), as: UTF8.self).contains(mark) { break }
        }
        return String(decoding: all, as: UTF8.self)
    }
}

@Suite(.serialized, .timeLimit(.minutes(1))) struct LogWriterTests {
    @Test func `a log that nobody reads keeps nobody waiting, and says what is missing when somebody does`() throws {
        let pipe = try Pipe()
        let writer = LogWriter(pipe.writing)
        let logger = Logger(label: "test") { LineLogHandler(label: $0, level: .info, writer: writer) }
        let begun = Instant.now
        for number in 0..<20_000 { logger.info("line", metadata: ["n": "\(number)"]) }
        logger.error("the last error")
        // A write that waited would wait for ever.
        #expect(Instant.now - begun < .seconds(20))
        #expect(!writer.flush(within: .milliseconds(50)))
        let text = pipe.read(until: "lines dropped")
        let numbers = text.split(separator: "\n").compactMap { line in
            line.contains("test: line n=") ? line.split(separator: "=").last.flatMap { Int($0) } : nil
        }
        let dropped = text.split(separator: "\n").filter { $0.contains("lines dropped") }
            .compactMap { $0.split(separator: "=").last.flatMap { Int($0) } }.reduce(0, +)
        #expect(numbers == numbers.sorted() && numbers.first == 0)
        #expect(numbers.count + dropped == 20_000 && dropped > 0, "\(numbers.count) + \(dropped)")
        #expect(text.contains("the last error"))
        #expect(writer.flush(within: .seconds(10)))
        writer.close()
    }

    @Test func `the end waits for a slow reader, and not for one that never reads`() throws {
        let pipe = try Pipe()
        let writer = LogWriter(pipe.writing)
        #expect(writer.flush(within: .zero))
        writer.write(String(repeating: "x", count: 100_000) + "\n")
        let begun = Instant.now
        #expect(!writer.flush(within: .milliseconds(100)))
        #expect(Instant.now - begun < .seconds(5))
        Thread.detachNewThread { _ = pipe.read(until: "the end") }
        writer.write("the end\n")
        #expect(writer.flush(within: .seconds(10)))
        writer.close()
    }

    @Test func `a service ends with its last lines written, and runs nothing that libraries do at an exit`() async {
        let result = await #expect(processExitsWith: .exitCode(3), observing: [\.standardErrorContent]) {
            atexit { _exit(9) }
            LogWriter.standardError.write("the last line\n")
            ServiceEnd.now(3)
        }
        let said = result.map { String(decoding: $0.standardErrorContent, as: UTF8.self) }
        #expect(said?.contains("the last line") == true)
    }

    @Test func `while nothing is logged the thread sleeps`() throws {
        let pipe = try Pipe()
        let writer = LogWriter(pipe.writing)
        writer.write("one\n")
        #expect(writer.flush(within: .seconds(10)))
        func switches() throws -> [String] {
            try FileManager.default.contentsOfDirectory(atPath: "/proc/self/task").sorted().compactMap { task in
                guard let status = try? String(contentsOfFile: "/proc/self/task/\(task)/status", encoding: .utf8),
                    status.hasPrefix("Name:\tlog\n")
                else { return nil }
                return status.split(separator: "\n").filter { $0.contains("ctxt_switches") }.joined()
            }
        }
        usleep(50_000)
        let before = try switches()
        #expect(!before.isEmpty)
        usleep(1_000_000)
        #expect(try switches() == before)
        writer.close()
    }

    @Test func `errors find room where ordinary lines do not, and all of it has a bound`() {
        var backlog = LineBacklog()
        let line = [UInt8](repeating: 1, count: 1_000)
        for _ in 0..<1_000 { backlog.add(line, isImportant: false) }
        backlog.add([2], isImportant: true)
        for _ in 0..<1_000 { backlog.add(line, isImportant: true) }
        let (bytes, dropped) = backlog.take()
        #expect(bytes.count <= LineBacklog.bytesMax && bytes.contains(2))
        #expect(dropped == 2_000 - (bytes.count - 1) / 1_000)
        #expect(backlog.isEmpty)
        // Even a line that never fits is counted.
        backlog.add([UInt8](repeating: 1, count: LineBacklog.bytesMax + 1), isImportant: true)
        #expect(!backlog.isEmpty && backlog.take().dropped == 1)
    }

    @Test func `only the stream that JOURNAL_STREAM names is the journal`() throws {
        let pipe = try Pipe()
        var status = stat()
        try #require(fstat(pipe.writing, &status) == 0)
        let name = "\(status.st_dev):\(status.st_ino)"
        #expect(LogWriter.isJournal(pipe.writing, name))
        // Inherited from a service whose standard error it was.
        #expect(!LogWriter.isJournal(STDOUT_FILENO, name))
        #expect(!LogWriter.isJournal(pipe.writing, "\(status.st_dev):\(status.st_ino + 1)"))
        for wrong in [nil, "", "8", "x:y", "1:2:3", "99999999999999999999:1"] {
            #expect(!LogWriter.isJournal(pipe.writing, wrong))
        }
    }
}
