// What runs beside a relay: the order in which it ends, and what it does when no file can be opened any more.
import Glibc
import Logging
import Reactor
import RelayHTTP
import RelayProtocol
import RelayServer
import ServiceLifecycle
import Synchronization
import Testing

@testable import pttrelay

@Suite struct ServicesTests {
    /// Stands for what takes its time to end; notes when it is told to, and when it does.
    private struct Slow: Service {
        let name: String
        let notes: Notes
        var opened: AsyncStream<Void>?

        func run() async throws {
            try await gracefulShutdown()
            notes.add("\(name) is told")
            if let opened { for await _ in opened { break } }
            notes.add("\(name) ends")
        }
    }

    private final class Notes: Sendable {
        private let kept = Mutex<[String]>([])
        var all: [String] { kept.withLock(\.self) }
        func add(_ note: String) { kept.withLock { $0.append(note) } }
    }

    /// Blocks a thread of its own.
    private func elsewhere<T: Sendable>(_ body: @escaping @Sendable () throws -> T) async throws -> T {
        let loop = try EventLoop(name: "elsewhere", mayWait: true)
        defer { loop.stop() }
        return try await loop.run(body)
    }

    @Test(.timeLimit(.minutes(1)))
    func `the relay ends first; health, metrics and commands are served until it has, and not after it`() async throws {
        let relay = try await RunningRelay.start(try StateFolder(), clock: { 1_000 })
        let server = relay.server
        let notes = Notes()
        let (end, letEnd) = AsyncStream.makeStream(of: Void.self)
        let (ports, found) = AsyncStream.makeStream(of: UInt16.self)
        let token = OperatorToken()
        let isDraining = Mutex(false)
        let page = OperatorEndpoint(
            configuration: .init(listenPort: 0, token: token), version: "1",
            source: .init(
                isServing: { isDraining.withLock { !$0 } }, statistics: { await server.statistics }),
            logger: quiet("page"), onListening: { found.yield($0) })
        let services = RelayServices(
            administration: AdministrationService(administration: relay.administration, registrar: relay.registrar),
            page: page, api: nil, pushes: Slow(name: "pushes", notes: notes), web: nil,
            reload: Slow(name: "reload", notes: notes),
            relay: Slow(name: "relay", notes: notes, opened: end))
        let group = ServiceGroup(configuration: .init(services: services.all, logger: quiet("services")))
        let running = Task { try await group.run() }
        let port = await ports.first { _ in true } ?? 0
        let get: @Sendable (String) async throws -> Int? = { path in
            try await elsewhere { PageRequest(path, port: port, authorization: token.text)?.status(within: 10) }
        }
        #expect(try await get("/healthz") == 200)

        isDraining.withLock { $0 = true }
        await group.triggerGracefulShutdown()
        while notes.all.isEmpty { try await Task.sleep(for: .milliseconds(2)) }
        #expect(try await get("/healthz") == 503)
        #expect(try await get("/metrics") == 200)
        guard case .channels = try await relay.ask(.channels()) else { return #expect(Bool(false), "no commands") }
        #expect(notes.all == ["relay is told"])

        letEnd.yield()
        try await running.value
        #expect(
            notes.all == [
                "relay is told", "relay ends", "reload is told", "reload ends", "pushes is told", "pushes ends",
            ])
        #expect(try await get("/healthz") == nil)
        let path = relay.folder.path
        #expect(try await elsewhere { try AdministrationClient.ask(.channels(), in: path) } == nil)
        #expect(access(path + "/control", F_OK) != 0)
        await server.stop()
    }

    @Test(.timeLimit(.minutes(1)))
    func `without a file left to open, who connects waits, the program neither spins nor ends, and it says so once`()
        async throws
    {
        let program = try RunningProgram()
        let path = program.folder.path
        try program.exhaust()
        let page = try #require(PageRequest("/healthz", port: program.pagePort))
        let command = Task { try await elsewhere { try AdministrationClient.ask(.channels(), in: path) } }
        // Long enough for three tries of each.
        let before = program.processorTime
        try await Task.sleep(for: .milliseconds(2_500))
        #expect(program.processorTime - before < .milliseconds(800), "it tries again and again")
        #expect(program.isRunning)
        let told = program.log.split(separator: "\n").count { $0.contains(AcceptPause.advice) }
        #expect(told == 2, "once each by the page and by the socket for commands: \(program.log)")
        try program.relieve()
        #expect(try await elsewhere { page.status(within: 10) } == 200)
        guard case .channels(let lines, _) = try await command.value else { return #expect(Bool(false)) }
        #expect(lines.map(\.name) == ["Team"])
    }

    @Test(.timeLimit(.minutes(1)))
    func `a port that something else has does not end the API: it is tried again until it is free`() async throws {
        let (ports, found) = AsyncStream.makeStream(of: UInt16.self)
        let endpoint: @Sendable (UInt16) -> APIEndpoint = { port in
            APIEndpoint(
                configuration: .init(listenPort: port, token: OperatorToken()), logger: quiet("api"),
                onListening: { found.yield($0) }
            ) { _ in APIAnswer(status: 204) }
        }
        var listened = ports.makeAsyncIterator()
        let first = Task { try await endpoint(0).run() }
        let port = await listened.next() ?? 0
        let loop = try EventLoop(name: "retries")
        let (failures, failed) = AsyncStream.makeStream(of: Void.self)
        let retrying = RetryingService(
            service: endpoint(port), loop: loop, logger: quiet("api"), onFailure: { failed.yield() })
        let second = Task { try await retrying.run() }
        for await _ in failures { break }
        first.cancel()
        _ = await first.result
        #expect(await listened.next() == port)
        second.cancel()
        _ = await second.result
        loop.stop()
    }
}
