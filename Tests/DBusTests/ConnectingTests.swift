// Connecting: several callers at once, and a bus that accepts nothing.
import BusTestSupport
import DBus
import Glibc
import Logging
import MonotonicTime
import Reactor
import Testing

@Suite struct ConnectingTests {
    @Test func `callers at the same time share one attempt and return when it is over`() async throws {
        try await withBus { fixture in
            let connection = DBusConnection(to: .address(fixture.bus.address), on: fixture.loop, logger: fixture.logger)
            try await withThrowingTaskGroup(of: String?.self) { group in
                for _ in 0..<8 {
                    group.addTask {
                        try await connection.connect()
                        return await connection.uniqueName
                    }
                }
                let names = try await group.reduce(into: Set<String?>()) { $0.insert($1) }
                #expect(names.count == 1 && !names.contains(nil))
            }
            await connection.close()
        }
    }

    @Test func `a connection that is closed while it connects can be connected again`() async throws {
        try await withBus { fixture in
            let connection = DBusConnection(to: .address(fixture.bus.address), on: fixture.loop, logger: fixture.logger)
            for _ in 0..<20 {
                let first = Task { await failure { try await connection.connect() } }
                await Task.yield()
                await connection.close()
                _ = await first.value
                try await connection.connect()
                #expect(await connection.uniqueName != nil)
                await connection.close()
                #expect(await connection.uniqueName == nil)
            }
        }
    }

    @Test func `a bus that accepts nothing keeps the loop from nothing`() async throws {
        let path = "/tmp/pttd-full-\(getpid())"
        unlink(path)
        defer { unlink(path) }
        let full = try FullListener(path)
        let loop = try EventLoop(name: "test")
        defer { loop.stop() }
        var logger = Logger(label: "test")
        logger.logLevel = .critical
        let connection = DBusConnection(to: .address("unix:path=\(path)"), on: loop, logger: logger, reconnects: false)
        let attempt = Task { await failure { try await connection.connect() } }
        // The loop that would wait in connect(2) answers.
        for _ in 0..<20 {
            try await loop.run {}
            try await Task.sleep(for: .milliseconds(5))
        }
        #expect(await connection.uniqueName == nil)
        full.end()
        #expect(await attempt.value != nil)
        await connection.close()
    }
}

/// A listening socket whose backlog is full: connect(2) waits for somebody to accept.
private final class FullListener {
    private let listener: Int32
    private var clients: [Int32] = []

    init(_ path: String) throws {
        listener = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        try withUnsafePointer(to: &address) { pointer in
            try pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { target in
                let length = socklen_t(MemoryLayout<sockaddr_un>.size)
                try #require(bind(listener, target, length) == 0 && listen(listener, 0) == 0)
                while true {
                    let client = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue), 0)
                    clients.append(client)
                    try #require(clients.count < 100)
                    guard connect(client, target, length) == 0 else { break }
                }
            }
        }
    }

    func end() {
        for client in clients { close(client) }
        clients = []
        close(listener)
    }
}
