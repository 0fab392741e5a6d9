// A relay whose standard output and standard error nobody reads.
import Glibc
import TestSupport
import Testing

@testable import pttrelay

@Suite(.timeLimit(.minutes(2))) struct UnreadOutputTests {
    @Test func `a relay that nobody reads serves, answers its page, and ends when it is told to`() async throws {
        let folder = try StateFolder()
        let port = try freePort()
        let file = folder.path + "/pttrelay.toml"
        try RunningProgram.write(
            "[relay]\nlisten = \"127.0.0.1:0\"\nworkers = 1\n[operator]\nlisten = \"127.0.0.1:\(port)\"\n", to: file)
        let pipe = folder.path + "/unread"
        try #require(mkfifo(pipe, 0o600) == 0)
        let reader = open(pipe, O_RDWR | O_CLOEXEC | O_NONBLOCK)
        try #require(reader >= 0)
        defer { close(reader) }
        // One page, which is full before the relay begins: F_SETPIPE_SZ, fcntl(2).
        try #require(fcntl(reader, 1_031, 4_096) >= 0)
        let filling = [UInt8](repeating: UInt8(ascii: "."), count: 4_096)
        try #require(write(reader, filling, filling.count) == filling.count)
        let process = try RunningProgram.spawn(
            ["run", "--config", file, "--state", folder.path, "--channel", "Team"], output: pipe, errors: pipe)
        let deadline = ContinuousClock.now + .seconds(30)
        var status: Int?
        while status == nil, ContinuousClock.now < deadline {
            status = PageRequest("/healthz", port: port)?.status(within: 5)
            try await Task.sleep(for: .milliseconds(20))
        }
        #expect(status == 200)
        kill(process, SIGTERM)
        var raw: Int32 = 0
        while waitpid(process, &raw, WNOHANG) == 0 {
            if ContinuousClock.now > deadline { kill(process, SIGKILL) }
            try await Task.sleep(for: .milliseconds(5))
        }
        #expect(raw == 0, "it has to be killed")
    }
}
