// JetStream's streams, with a real nats-server.
import FoundationEssentials
import Glibc
import Synchronization
import TestSupport
import Testing

@testable import NATS

@Suite(.timeLimit(.minutes(2)), .serialized) struct NATSTests {
    private let log = NATSStream(
        name: "LOG", subject: "test.log", replicas: 1, bytesMaximum: 1 << 20, keepsLastOnly: false)
    private let state = NATSStream(
        name: "STATE", subject: "test.state.>", replicas: 1, bytesMaximum: 1 << 20, keepsLastOnly: true)

    private func kind(_ body: () throws -> Void) -> NATSError.Kind? {
        #expect(throws: NATSError.self) { try body() }?.kind
    }

    @Test func `a log keeps what was written, in order, and takes only what follows`() throws {
        let server = try NATSServer()
        let connection = try NATSConnection(server.options)
        #expect(kind { _ = try connection.state(of: "LOG", wait: .seconds(2)) } == .noStream)
        #expect(kind { _ = try connection.message(1, of: "LOG", wait: .seconds(2)) } == .noStream)
        try connection.add(log, wait: .seconds(2))
        try connection.add(log, wait: .seconds(2))
        #expect(try connection.message(1, of: "LOG", wait: .seconds(2)) == nil)
        let first = try connection.publish([1, 0, 255], to: "test.log", of: "LOG", after: .none, wait: .seconds(2))
        #expect(first == 1)
        for last: UInt64 in [0, 2, 7] {
            #expect(
                kind {
                    _ = try connection.publish(
                        [2], to: "test.log", of: "LOG", after: .ofStream(last), wait: .seconds(2))
                }
                    == .otherLast)
        }
        #expect(try connection.publish([], to: "test.log", of: "LOG", after: .ofStream(1), wait: .seconds(2)) == 2)
        #expect(try connection.message(1, of: "LOG", wait: .seconds(2))?.bytes == [1, 0, 255])
        #expect(try connection.message(2, of: "LOG", wait: .seconds(2))?.bytes == [])
        #expect(try connection.message(3, of: "LOG", wait: .seconds(2)) == nil)
        let known = try connection.state(of: "LOG", wait: .seconds(2))
        #expect(known.first == 1 && known.last == 2 && known.bytesMaximum == 1 << 20 && known.replicas == 1)
        var other = log
        other.bytesMaximum = 1 << 10
        #expect(kind { try connection.add(other, wait: .seconds(2)) } == .differs)
        // A restart of the server loses nothing, and the connection is made again.
        server.stop()
        let lost = kind { _ = try connection.message(1, of: "LOG", wait: .milliseconds(300)) }
        #expect(lost == .unreachable || lost == .noAnswer)
        try server.start()
        var found: [UInt8]?
        for _ in 0..<100 where found == nil {
            usleep(100_000)
            found = (try? connection.message(1, of: "LOG", wait: .milliseconds(200)))?.bytes
        }
        #expect(found == [1, 0, 255])
    }

    @Test func `of a subject only the last message is kept, and one of two writers wins`() throws {
        let server = try NATSServer()
        let connections = try (0..<2).map { _ in try NATSConnection(server.options) }
        try connections[0].add(state, wait: .seconds(2))
        #expect(try connections[0].last(of: "test.state.a", in: "STATE", wait: .seconds(2)) == nil)
        var revision: UInt64 = 0
        for round: UInt8 in 0..<100 {
            let results = connections.map { connection in
                try? connection.publish(
                    [round], to: "test.state.a", of: "STATE", after: revision == 0 ? .none : .ofSubject(revision),
                    wait: .seconds(2))
            }
            #expect(results.compactMap { $0 }.count == 1)
            revision = try #require(results[0] ?? results[1])
        }
        _ = try connections[1].publish([1], to: "test.state.b.c", of: "STATE", after: .none, wait: .seconds(2))
        let last = try connections[1].last(of: "test.state.a", in: "STATE", wait: .seconds(2))
        #expect(last?.sequence == revision && last?.bytes == [99])
        #expect(
            try connections[0].subjects("test.state.>", of: "STATE", wait: .seconds(2)).sorted()
                == ["test.state.a", "test.state.b.c"])
        #expect(try connections[0].subjects("test.state.x.>", of: "STATE", wait: .seconds(2)) == [])
    }

    @Test func `a full log, a server without JetStream and one that is not there are told apart`() throws {
        let server = try NATSServer()
        let connection = try NATSConnection(server.options)
        var small = log
        small.bytesMaximum = 4_096
        try connection.add(small, wait: .seconds(2))
        var last: UInt64 = 0
        let full = kind {
            for _ in 0..<10 {
                last = try connection.publish(
                    Array(repeating: 7, count: 1_000), to: "test.log", of: "LOG", after: .ofStream(last),
                    wait: .seconds(2))
            }
        }
        #expect(full == .full && last > 0)
        #expect(try connection.message(1, of: "LOG", wait: .seconds(2))?.bytes.count == 1_000, "nothing is forgotten")
        var replicated = state
        replicated.replicas = 3
        #expect(kind { try connection.add(replicated, wait: .seconds(2)) } == .unsuitable)
        // More than a server takes.
        #expect(connection.payloadMaximum == 1 << 20)
        let nobody = NATSOptions(servers: ["nats://127.0.0.1:1"], name: "test")
        #expect(kind { _ = try NATSConnection(nobody) } == .unreachable)
        let error = #expect(throws: NATSError.self) { _ = try NATSConnection(nobody) }
        #expect(error.map { "\($0)" }?.contains("conn.c") == false)
    }

    @Test func `a password that is wrong is said to be`() throws {
        let server = try NATSServer(configuration: "authorization { user: relay, password: secret }")
        var options = server.options
        options.servers = ["nats://relay:secret@127.0.0.1:\(server.port)"]
        let connection = try NATSConnection(options)
        try connection.add(log, wait: .seconds(2))
        for servers in ["nats://relay:other@127.0.0.1:\(server.port)", "nats://127.0.0.1:\(server.port)"] {
            options.servers = [servers]
            #expect(kind { _ = try NATSConnection(options) } == .refused)
        }
        options.credentials = "\(server.folder.path)/missing"
        #expect(throws: NATSError.self) { _ = try NATSConnection(options) }
    }

    @Test func `over TLS a server is known by its authority and its name`() throws {
        let folder = try TemporaryFolder()
        let authority = try NATSAuthority(in: folder)
        let server = try NATSServer(configuration: authority.server("IP:127.0.0.1"))
        var options = NATSOptions(
            servers: ["tls://127.0.0.1:\(server.port)"], name: "test", authorities: authority.certificate)
        options.timeout = .seconds(5)
        let connection = try NATSConnection(options)
        try connection.add(log, wait: .seconds(2))
        #expect(try connection.publish([1, 2], to: "test.log", of: "LOG", after: .none, wait: .seconds(2)) == 1)

        // Another authority, those of the system, and a connection without TLS.
        let other = try NATSAuthority(in: TemporaryFolder())
        for authorities in [other.certificate, nil] {
            options.authorities = authorities
            let error = #expect(throws: NATSError.self) { _ = try NATSConnection(options) }
            #expect(error?.kind == .refused && "\(error!)".contains("'ca' in [cluster]"), "\(error!)")
        }
        #expect(kind { _ = try NATSConnection(server.options) } == .refused)
        // The right authority, for another machine.
        server.stop()
        try server.start(authority.server("DNS:nats.example"))
        options.authorities = authority.certificate
        let error = #expect(throws: NATSError.self) { _ = try NATSConnection(options) }
        #expect(error?.kind == .refused, "\(error!)")
        options.authorities = folder.file("missing.pem")
        #expect(throws: NATSError.self) { _ = try NATSConnection(options) }
        // The server has no TLS.
        server.stop()
        try server.start()
        options.authorities = authority.certificate
        #expect(kind { _ = try NATSConnection(options) } == .refused)
    }

    @Test func `a credentials file opens its account, and no other file does`() throws {
        let owner = NATSOperator()
        let server = try NATSServer(configuration: owner.configuration)
        let file = server.folder.file("relay.creds")
        var options = server.options
        options.credentials = file
        try Data(owner.credentials().utf8).write(to: URL(filePath: file))
        let connection = try NATSConnection(options)
        try connection.add(log, wait: .seconds(2))
        #expect(try connection.publish([1, 2], to: "test.log", of: "LOG", after: .none, wait: .seconds(2)) == 1)

        // Of an account that the operator does not know; damaged; without a file.
        try Data(owner.credentials(by: NATSKey(.account)).utf8).write(to: URL(filePath: file))
        #expect(kind { _ = try NATSConnection(options) } == .refused)
        try Data("-----BEGIN NATS USER JWT-----\n".utf8).write(to: URL(filePath: file))
        #expect(throws: NATSError.self) { _ = try NATSConnection(options) }
        #expect(kind { _ = try NATSConnection(server.options) } == .refused)
    }

    /// Three servers that keep streams together.
    private func cluster() throws -> [NATSServer] {
        let ports = try (0..<3).map { _ in try freePort() }
        let routes = ports.map { "nats://127.0.0.1:\($0)" }.joined(separator: ", ")
        return try ports.enumerated().map { number, port in
            try NATSServer(
                configuration: """
                    server_name: n\(number)
                    cluster { name: test, listen: "127.0.0.1:\(port)", routes: [\(routes)] }
                    """)
        }
    }

    private func until<T>(_ what: Comment, _ body: () throws -> T) throws -> T {
        for _ in 0..<150 {
            if let value = try? body() { return value }
            usleep(100_000)
        }
        Issue.record(what)
        return try body()
    }

    private func eventually(_ condition: () -> Bool) -> Bool {
        for _ in 0..<200 {
            if condition() { return true }
            usleep(100_000)
        }
        return false
    }

    @Test func `a stream that does not answer twice in a row gets another leader`() throws {
        let servers = try cluster()
        let connection = try NATSConnection(servers[0].options)
        var replicated = log
        replicated.replicas = 3
        try until("the stream is made") { try connection.add(replicated, wait: .seconds(1)) }
        // Who leads takes messages from then on.
        _ = try until("a message is taken") {
            try connection.publish([1], to: "test.log", of: "LOG", after: .any, wait: .seconds(1))
        }
        // Somebody hears these messages, and answers none.
        let silent = try connection.answer("test.silent", waitingMaximum: 8) { _ in }
        defer { silent.cancel() }
        let requests = Atomic(0)
        let elections = Atomic(0)
        let audit = try connection.answer("$JS.EVENT.ADVISORY.API", waitingMaximum: 64) { advisory in
            if String(decoding: advisory.bytes, as: UTF8.self).contains("STREAM.LEADER.STEPDOWN.LOG") {
                requests.add(1, ordering: .relaxed)
            }
        }
        defer { audit.cancel() }
        let elected = "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.LOG"
        let leaders = try connection.answer(elected, waitingMaximum: 64) { _ in elections.add(1, ordering: .relaxed) }
        defer { leaders.cancel() }
        let unanswered = {
            kind {
                _ = try connection.publish([2], to: "test.silent", of: "LOG", after: .any, wait: .milliseconds(300))
            }
        }
        let requested = { requests.load(ordering: .relaxed) }

        #expect(unanswered() == .noAnswer)
        usleep(500_000)
        #expect(requested() == 0, "one message may be lost")
        let electionsBefore = elections.load(ordering: .relaxed)
        #expect(unanswered() == .noAnswer)
        #expect(eventually { requested() == 1 })
        #expect(eventually { elections.load(ordering: .relaxed) > electionsBefore })
        // Counted from the start again.
        #expect(unanswered() == .noAnswer)
        usleep(500_000)
        #expect(requested() == 1)
        _ = try until("a message is taken") {
            try connection.publish([3], to: "test.log", of: "LOG", after: .any, wait: .seconds(1))
        }
    }

    @Test func `a server that stands still is noticed in time`() throws {
        let server = try NATSServer()
        let connection = try NATSConnection(server.options)
        try connection.add(state, wait: .seconds(2))
        server.send(SIGSTOP)
        defer { server.send(SIGCONT) }
        let times = (0..<3).map { _ in
            ContinuousClock().measure {
                let read = kind { _ = try connection.last(of: "test.state.a", in: "STATE", wait: .milliseconds(300)) }
                #expect(read == .noAnswer)
            }
        }
        // A machine that halts meanwhile takes longer.
        #expect(times.contains { $0 < .seconds(1) }, "\(times)")
    }
}
