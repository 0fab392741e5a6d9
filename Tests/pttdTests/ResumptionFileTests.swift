// The file with which pttd returns to its relays: damage is told and does no harm.
import Files
import Glibc
import Logging
import Reactor
import RelayClient
import Synchronization
import Testing

@testable import pttd

@Suite struct ResumptionFileTests {
    /// What a log handler was given.
    private final class Warnings: Sendable {
        let texts = Mutex<[String]>([])
    }

    private struct Handler: LogHandler {
        let warnings: Warnings
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.warning
        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }
        func log(event: LogEvent) { warnings.texts.withLock { $0.append("\(event.message)") } }
    }

    private func temporary() throws -> String {
        var template = Array("/tmp/pttd-resumption-XXXXXX".utf8CString)
        let made = mkdtemp(&template)
        try #require(made != nil)
        return String(decoding: template.dropLast().map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
    }

    private func restore(_ path: String) throws -> [String] {
        let warnings = Warnings()
        let loop = try EventLoop(name: "disk", mayWait: true)
        defer { loop.stop() }
        _ = ResumptionFile(path: path, disk: loop, logger: Logger(label: "test") { _ in Handler(warnings: warnings) })
            .restore()
        return warnings.texts.withLock { $0 }
    }

    @Test func `no file and an intact one are no news, a damaged one or a directory is told and not used`() throws {
        let directory = try temporary()
        let path = directory + "/resumption"
        defer {
            unlink(path)
            rmdir(directory)
        }
        #expect(try restore(path) == [])
        for form in ["pttd resumption 1\n", "pttd resumption 2\n"] {
            try AtomicFile.write(Array(form.utf8), to: path, isSecret: true, waits: false)
            #expect(try restore(path) == [])
        }
        var status = stat()
        #expect(stat(path, &status) == 0 && status.st_mode & 0o777 == 0o600)
        for damage in [Array("pttd resumption 3\n".utf8), [0], [UInt8](repeating: 1, count: 600_000)] {
            try AtomicFile.write(damage, to: path, isSecret: true)
            #expect(try restore(path).count == 1)
        }
        unlink(path)
        // The one that was too large.
        #expect(unlink(path + ".damaged-1") == 0)
        #expect(mkdir(path, 0o700) == 0)
        #expect(try restore(path).count == 1 && rmdir(path + ".damaged-1") == 0)
        #expect(mkfifo(path, 0o600) == 0)
        #expect(try restore(path).count == 1 && unlink(path + ".damaged-1") == 0)
    }
}
