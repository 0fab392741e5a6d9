// What only the start of a program has used leaves the process, and what is used comes back.
import Glibc
import Reactor
import Testing

@Suite struct ProgramMemoryTests {
    /// Kibibytes of files that are in memory for this process, by /proc/self/status.
    private func ofFiles() throws -> Int {
        let descriptor = open("/proc/self/status", O_RDONLY | O_CLOEXEC)
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: 8_192)
        let count = read(descriptor, &bytes, bytes.count)
        let text = String(decoding: bytes.prefix(max(0, count)), as: UTF8.self)
        let line = try #require(text.split(separator: "\n").first { $0.hasPrefix("RssFile:") })
        return try #require(line.split(separator: " ").dropLast().last.flatMap { Int($0) })
    }

    @Test func `code that is not used any more leaves the process, which goes on`() throws {
        let before = try ofFiles()
        ProgramMemory.giveBackCode()
        let after = try ofFiles()
        #expect(after < before / 2, "\(before) KiB before, \(after) KiB after")
        // Code and constants of the program and of libraries, and what is written beside them.
        #expect((0..<1_000).map { "\($0)" }.joined().utf8.count == 2_890)
        #expect(getenv("PATH") != nil)
    }
}
