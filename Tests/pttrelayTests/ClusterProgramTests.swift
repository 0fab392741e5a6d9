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

        private let cluster: String

        init(_ name: String, _ server: NATSServer) throws {
            self.name = name
            folder = try StateFolder()
            port = try freePort()
            cluster = """
                [cluster]
                servers = ["\(server.url)"]
                place = "127.0.0.1:\(port)"
                node = "\(name)"
                replicas = 1
                log-megabytes = 16

                """
            try configure()
        }

        /// - Parameter channel: One that the configuration declares.
        func configure(inCluster: Bool = true, channel: String? = nil) throws {
            let declared = channel.map { "[[channel]]\nname = \"\($0)\"\n" } ?? ""
            try RunningProgram.write(
                "[relay]\nlisten = \"127.0.0.1:\(port)\"\nhost = \"127.0.0.1\"\nworkers = 1\n\(declared)\(inCluster ? cluster : "")",
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

    /// What `words` says, as soon as it has each of `parts` in it.
    private func eventually(_ node: Node, _ words: [String], _ parts: [String]) throws {
        let deadline = ContinuousClock.now + .seconds(30)
        while true {
            let answer = try node.command(words)
            if answer.status == 0, parts.allSatisfy(answer.output.contains) { return }
            try #require(ContinuousClock.now < deadline, "\(answer) has not \(parts)")
            usleep(100_000)
        }
    }

    @Test func `a second relay with the name of a cluster is told that it needs another one`() throws {
        let server = try NATSServer()
        let (first, stranger) = (try Node("a", server), try Node("b", server))
        for node in [first, stranger] {
            try node.configure(inCluster: false, channel: "Team")
            let process = try node.start()
            try node.waits(for: "ready\n")
            _ = end(process, with: SIGTERM)
            try node.configure(channel: "Team")
        }
        #expect(try first.command(["cluster", "import"]).status == 0)
        #expect(try first.command(["cluster", "status"]).status == 0)
        for words in [["cluster", "import"], ["cluster", "status"]] {
            let refused = try stranger.command(words)
            #expect(
                refused.status == 1 && refused.output.isEmpty
                    && refused.errors.contains("the cluster 'relay' is another relay's")
                    && refused.errors.contains("set another 'name' in [cluster]"), "\(words) \(refused)")
        }
        #expect(try stranger.command(["cluster", "leave"]).errors.contains("is in no cluster"))
    }

    @Test func `a cluster is made, both relays serve, and take over from each other`() throws {
        let server = try NATSServer()
        let (first, second) = (try Node("a", server), try Node("b", server))
        // The first start is one without a cluster.
        let early = try first.command(["cluster", "status"])
        #expect(early.status == 1 && early.errors.contains("has no records yet"), "\(early)")
        try first.configure(inCluster: false, channel: "Team")
        var process = try first.start()
        try first.waits(for: "ready\n")
        #expect(try first.command(["channel", "add", "Yard"]).status == 0)
        _ = end(process, with: SIGTERM)
        try first.configure(channel: "Team")
        let made = try first.command(["cluster", "import"])
        #expect(
            made.status == 0 && made.output.hasPrefix("the cluster 'relay' has the records of 2 channels\n")
                && made.output.contains("remove [[channel]]"), "\(made)")
        #expect(try first.command(["cluster", "import"]) == made, "once more changes nothing")
        // What the configuration declares is in the records now, and nowhere else.
        process = try first.start()
        #expect(end(process, with: 0) >> 8 == 78 && first.log.contains("remove [[channel]]"), "\(first.log)")
        try first.configure()
        process = try first.start()
        try first.waits(for: "ready\n")
        #expect(try first.command(["channels"]).output.contains("Team"))

        // The second one needs the key, and nothing else.
        let keyless = try second.start()
        #expect(end(keyless, with: 0) >> 8 == 78 && second.log.contains("copy identity.pem"), "\(second.log)")
        #expect(system("cp \(first.folder.path)/identity.pem \(second.folder.path)/") == 0)
        var other = try second.start()
        try second.waits(for: "ready\n")
        // Either takes commands.
        #expect(try second.command(["channel", "add", "Gate"]).status == 0)
        #expect(try first.command(["channels"]).output.contains("Gate"))
        for node in [first, second] {
            let health = try node.command(["health"])
            #expect(health.status == 0 && health.output.contains("members can join"), "\(health)")
        }
        try eventually(
            first, ["cluster", "status"],
            [
                "cluster 'relay': 'a' at 127.0.0.1:\(first.port) writes the records",
                "b at 127.0.0.1:\(second.port): serves",
                "has all records",
            ])

        // Killed: the other one serves all there was, also what was added last.
        _ = end(process, with: SIGKILL)
        try eventually(
            second, ["cluster", "status"], ["'b' at 127.0.0.1:\(second.port) writes the records", "serves 64 of 64"])
        #expect(try second.command(["channels"]).output.contains("Gate"))
        process = try first.start()
        try first.waits(for: "ready\n")
        #expect(try first.command(["channel", "remove", "Gate", "--yes"]).status == 0)
        // Stopped: it hands over.
        #expect(end(other, with: SIGTERM) == 0)
        #expect(second.log.contains("successor=127.0.0.1:\(first.port)"), "\(second.log)")
        try eventually(
            first, ["cluster", "status"], ["'a' at 127.0.0.1:\(first.port) writes the records", "serves 64 of 64"])
        #expect(try !first.command(["channels"]).output.contains("Gate"))
        // One that has not the records yet says so, and ends at once when it is told to.
        server.send(SIGSTOP)
        other = try second.start()
        try second.waits(for: "waiting for the records of the cluster\n")
        let health = try second.command(["health"])
        #expect(health.status == 0 && health.output.contains("waits for the records"), "\(health)")
        let refused = try second.command(["channel", "add", "Nowhere"])
        #expect(refused.status == 1 && refused.errors.contains("run the command on another relay"), "\(refused)")
        #expect(end(other, with: SIGTERM) == 0)
        server.send(SIGCONT)

        // Records of a cluster are not written past it.
        let past = try second.command(["channel", "add", "Past"])
        #expect(past.status == 1 && past.errors.contains("these records are those of a cluster"), "\(past)")
        #expect(try second.command(["cluster", "leave"]).status == 0)
        #expect(try second.command(["channel", "add", "Past"]).status == 0)
        #expect(try second.command(["cluster", "leave"]).errors.contains("is in no cluster"))
        #expect(end(process, with: SIGTERM) == 0)
    }
}
