// Two relays as one, as an operator makes them: programs of their own and a real nats-server.
import Glibc
import TestSupport
import Testing

@testable import pttrelay

@Suite(.timeLimit(.minutes(3)), .serialized) struct ClusterProgramTests {
    /// A relay of the cluster.
    private final class Node: Sendable {
        let folder: StateFolder
        let port: UInt16
        private let name: String
        private var file: String { folder.path + "/pttrelay.toml" }

        init(_ name: String, _ server: NATSServer) throws {
            self.name = name
            folder = try StateFolder()
            port = try freePort()
            try configure(
                """
                [cluster]
                servers = ["\(server.url)"]
                place = "127.0.0.1:\(port)"
                node = "\(name)"
                replicas = 1
                log-megabytes = 16
                """)
        }

        func configure(_ lines: String) throws {
            try RunningProgram.write(
                "[relay]\nlisten = \"127.0.0.1:\(port)\"\nhost = \"127.0.0.1\"\nworkers = 1\n[[channel]]\nname = \"Team\"\n\(lines)\n",
                to: file)
        }

        func start() throws -> pid_t {
            try RunningProgram.spawn(
                ["run", "--config", file, "--state", folder.path], output: folder.path + "/output",
                errors: folder.path + "/errors")
        }

        var said: String { RunningProgram.contents(folder.path + "/output") }
        var log: String { RunningProgram.contents(folder.path + "/errors") }

        func waits(for text: String) throws {
            let deadline = ContinuousClock.now + .seconds(30)
            while !said.contains(text) {
                try #require(ContinuousClock.now < deadline, "'\(name)' does not say '\(text)': \(log)")
                usleep(5_000)
            }
        }

        /// A command, and what came of it.
        func command(_ words: [String]) throws -> (status: Int32, output: String, errors: String) {
            let (output, errors) = (folder.path + "/command-output", folder.path + "/command-errors")
            let process = try RunningProgram.spawn(
                words + ["--config", file, "--state", folder.path], output: output, errors: errors)
            var status: Int32 = 0
            while waitpid(process, &status, 0) < 0, errno == EINTR {}
            return (status >> 8 & 0xFF, RunningProgram.contents(output), RunningProgram.contents(errors))
        }
    }

    private func end(_ process: pid_t, with signal: Int32) -> Int32 {
        kill(process, signal)
        var status: Int32 = 0
        while waitpid(process, &status, 0) < 0, errno == EINTR {}
        return status
    }

    @Test func `a cluster is made, one relay serves, and the other one takes over`() throws {
        let server = try NATSServer()
        let (first, second) = (try Node("a", server), try Node("b", server))
        // The first start is one without a cluster.
        let early = try first.command(["cluster", "status"])
        #expect(early.status == 1 && early.errors.contains("has no records yet"), "\(early)")
        try first.configure("")
        var process = try first.start()
        try first.waits(for: "ready\n")
        #expect(try first.command(["channel", "add", "Yard"]).status == 0)
        _ = end(process, with: SIGTERM)
        try first.configure(
            "[cluster]\nservers = [\"\(server.url)\"]\nplace = \"127.0.0.1:\(first.port)\"\nnode = \"a\"\nreplicas = 1\nlog-megabytes = 16"
        )
        let made = try first.command(["cluster", "import"])
        #expect(
            made.status == 0 && made.output.hasPrefix("the cluster 'relay' has the records of 2 channels\n"), "\(made)")
        #expect(try first.command(["cluster", "import"]).errors.contains("has records already"))
        process = try first.start()
        try first.waits(for: "ready\n")

        // The second one needs the key, and nothing else.
        let keyless = try second.start()
        #expect(end(keyless, with: 0) >> 8 == 78 && second.log.contains("copy identity.pem"), "\(second.log)")
        #expect(system("cp \(first.folder.path)/identity.pem \(second.folder.path)/") == 0)
        var other = try second.start()
        try second.waits(for: "standing by\n")
        #expect(try first.command(["channel", "add", "Gate"]).status == 0)
        let deadline = ContinuousClock.now + .seconds(20)
        var status = ""
        while !status.contains("b at 127.0.0.1:\(second.port): stands by, has all records"),
            ContinuousClock.now < deadline
        {
            status = try first.command(["cluster", "status"]).output
            usleep(100_000)
        }
        #expect(status.contains("'a' at 127.0.0.1:\(first.port) serves"), "\(status)")
        #expect(status.contains("b at 127.0.0.1:\(second.port): stands by, has all records"), "\(status)")
        let refused = try second.command(["channel", "add", "Nowhere"])
        #expect(
            refused.status == 1
                && refused.errors.contains("'a' at 127.0.0.1:\(first.port) serves: run the command there"), "\(refused)"
        )
        let health = try second.command(["health"])
        #expect(health.status == 0 && health.output.contains("stands by"), "\(health)")

        // Killed: the other one serves what there was, also what was added last.
        _ = end(process, with: SIGKILL)
        try second.waits(for: "ready\n")
        #expect(try second.command(["channels"]).output.contains("Gate"))
        process = try first.start()
        try first.waits(for: "standing by\n")
        #expect(try second.command(["channel", "remove", "Gate", "--yes"]).status == 0)
        // Stopped: it hands over.
        #expect(end(other, with: SIGTERM) == 0)
        #expect(second.log.contains("successor=127.0.0.1:\(first.port)"), "\(second.log)")
        try first.waits(for: "ready\n")
        #expect(try !first.command(["channels"]).output.contains("Gate"))
        // One that stands by ends at once when it is told to.
        other = try second.start()
        try second.waits(for: "standing by\n")
        #expect(end(other, with: SIGTERM) == 0)

        // Records of a cluster are not written past it.
        let past = try second.command(["channel", "add", "Past"])
        #expect(past.status == 1 && past.errors.contains("these records are those of a cluster"), "\(past)")
        #expect(try second.command(["cluster", "leave"]).status == 0)
        #expect(try second.command(["channel", "add", "Past"]).status == 0)
        #expect(try second.command(["cluster", "leave"]).errors.contains("is in no cluster"))
        #expect(end(process, with: SIGTERM) == 0)
    }
}
