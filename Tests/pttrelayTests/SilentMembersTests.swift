// The program is killed and starts again: members that have nothing to say do not wait for their next keep-alive.
import Files
import Glibc
import RelayProtocol
import TestSupport
import Testing

@testable import pttrelay

@Suite(.serialized, .timeLimit(.minutes(2))) struct SilentMembersTests {
    @Test func `a member that says nothing is called back by the next start of a program that was killed`()
        async throws
    {
        let folder = try StateFolder()
        let first = try RunningProgram(in: folder)
        let port = try first.standing.port
        let device = try await Device("Ada", first.standing)
        try await device.isReady()
        let file = folder.path + "/connections"
        try await wait("the file", for: .seconds(20)) { (FileFacts(of: file)?.byteCount ?? 0) > 0 }
        #expect(FileFacts(of: file)?.mode == 0o600)
        first.end()
        let second = try RunningProgram(in: folder, port: port)
        let ready = ContinuousClock.now
        try await wait("the member", for: .seconds(20)) { device.readyCount > 1 }
        // By its keep-alive it would notice after up to 25 s.
        print("it is back \(ContinuousClock.now - ready) after the start")
        #expect(ContinuousClock.now - ready < .seconds(8))
        second.end()
    }

    @Test(arguments: ["nonsense", "pipe", "huge", "directory"])
    func `whatever is in the place of the file, the program starts`(what: String) throws {
        let folder = try StateFolder()
        let path = folder.path + "/connections"
        switch what {
        case "pipe": #expect(mkfifo(path, 0o600) == 0)
        case "huge": try AtomicFile.write([UInt8](repeating: 10, count: 2 << 20), to: path)
        case "directory": #expect(mkdir(path, 0o700) == 0)
        default: try AtomicFile.write((0..<10_000).map { UInt8(truncatingIfNeeded: $0 &* 31) }, to: path)
        }
        let program = try RunningProgram(in: folder)
        #expect(program.isRunning)
        program.end()
    }

    private func wait(_ what: Comment, for time: Duration, until condition: () -> Bool) async throws {
        let deadline = ContinuousClock.now + time
        while !condition() {
            try #require(ContinuousClock.now < deadline, what)
            try await Task.sleep(for: .milliseconds(5))
        }
    }
}
