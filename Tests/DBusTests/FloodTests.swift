// What others send is too long, too much, or never read: the connection and everybody else go on.
import BusTestSupport
import CDBus
import Glibc
import Logging
import MonotonicTime
import Reactor
import Synchronization
import Testing

@testable import DBus

/// Keeps what is logged.
private final class LogLines: Sendable {
    private let lines = Mutex<[String]>([])
    var warnings: [String] { lines.withLock { $0 } }

    struct Handler: LogHandler {
        let all: LogLines
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.warning
        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }
        func log(event: LogEvent) {
            let details = (event.metadata ?? [:]).sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
            all.lines.withLock { $0.append(([event.message.description] + details).joined(separator: " ")) }
        }
    }

    var logger: Logger { Logger(label: "test") { _ in Handler(all: self) } }
}

/// A service with everything that these tests call.
private struct Service: Sendable {
    static let interface = DBusInterface(
        "org.example.Taker",
        methods: [
            .init("Take", in: [.init("bytes", .array(.byte))]),
            .init("TakeArrays", in: [.init("arrays", .array(.array(.int32)))]),
            .init("Give", out: [.init("bytes", .array(.byte))]), .init("Plain"),
        ])

    let connection: DBusConnection
    let name: String
    let log = LogLines()
    let states = Recorder<DBusConnectionState>()

    init(_ fixture: BusFixture) async throws {
        connection = DBusConnection(to: .address(fixture.bus.address), on: fixture.loop, logger: log.logger)
        try await connection.connect()
        name = try #require(await connection.uniqueName)
        let export = try DBusExport(
            Self.interface,
            methods: [
                "Take": { _ in [] }, "TakeArrays": { _ in [] }, "Plain": { _ in [] },
                "Give": { _ in [.bytes([UInt8](repeating: 1, count: 1 << 20))] },
            ])
        try await connection.export([export], at: "/taker")
        await connection.onStateChange { [states] in states.record($0) }
    }

    func isAnswering(_ client: DBusConnection) async -> Bool {
        do {
            try await client.call(
                destination: name, path: "/taker", interface: "org.example.Taker", method: "Plain",
                timeout: .seconds(20))
            return true
        } catch { return false }
    }
}

private let limitsExceeded = "org.freedesktop.DBus.Error.LimitsExceeded"

@Suite(.timeLimit(.minutes(3))) struct FloodTests {
    @Test(arguments: [5_000_000, 30_000_000])
    func `a call longer than is taken is refused, and the connection stays`(bytes: Int) async throws {
        try await withBus { fixture in
            let service = try await Service(fixture)
            let client = try await fixture.connect()
            let answer = try await onThread {
                let peer = try RawPeer(fixture.bus.address)
                let message = try RawPeer.call(service.name, "Take")
                RawPeer.append(bytes: bytes, to: message)
                return peer.errorName(message)
            }
            #expect(answer == limitsExceeded)
            #expect(await service.isAnswering(client))
            #expect(service.states.all.isEmpty)
            #expect(service.log.warnings.count == 1)
            let warning = try #require(service.log.warnings.first)
            #expect(warning.contains("bytes=\(bytes)") && warning.contains("sender=:1."), "\(warning)")
            await service.connection.close()
            await client.close()
        }
    }

    @Test func `a call of very many small values is refused before they fill the memory`() async throws {
        try await withBus { fixture in
            let service = try await Service(fixture)
            let client = try await fixture.connect()
            let answer = try await onThread {
                let peer = try RawPeer(fixture.bus.address)
                let message = try RawPeer.call(service.name, "TakeArrays")
                RawPeer.append(emptyArrays: DBusLimits.messageValues + 1, to: message)
                return peer.errorName(message)
            }
            #expect(answer == limitsExceeded)
            #expect(await service.isAnswering(client))
            await service.connection.close()
            await client.close()
        }
    }

    @Test func `signals that nobody asked for, long or with many descriptors, change nothing and are told of once`()
        async throws
    {
        try await withBus { fixture in
            let service = try await Service(fixture)
            let client = try await fixture.connect()
            let believed = Recorder<String>()
            // As BlueZ is listened to: the name is there, and its owner is somebody else.
            try await client.requestName("org.example.Source")
            try await service.connection.addMatch(
                DBusMatchRule(sender: "org.example.Source", interface: "org.example.Noise")
            ) { believed.record($0.sender ?? "") }
            try await onThread {
                let peer = try RawPeer(fixture.bus.address)
                for _ in 0..<5 {
                    let long = try RawPeer.signal(to: service.name)
                    RawPeer.append(bytes: 5_000_000, to: long)
                    peer.send(long)
                    let many = try RawPeer.signal(to: service.name)
                    RawPeer.append(descriptors: 200, to: many)
                    peer.send(many)
                }
            }
            #expect(await service.isAnswering(client))
            #expect(try await eventually { !service.log.warnings.isEmpty })
            #expect(service.states.all.isEmpty && believed.all.isEmpty)
            #expect(service.log.warnings.count == 1, "\(service.log.warnings)")
            await service.connection.close()
            await client.close()
        }
    }

    @Test func `a caller that never reads is warned of once, and the others are answered`() async throws {
        try await withBus { fixture in
            let service = try await Service(fixture)
            let client = try await fixture.connect()
            let isOver = Mutex(false)
            let flooded = Recorder<Bool>()
            async let flood: Void = onThread {
                let peer = try RawPeer(fixture.bus.address)
                // One answer fills libdbus's queue, and then the socket is not read.
                dbus_connection_set_max_received_size(peer.connection, 1)
                // A bus keeps 127 MiB of what one sender's receivers do not read.
                for _ in 0..<200 { peer.send(try RawPeer.call(service.name, "Give")) }
                flooded.record(true)
                while !isOver.withLock({ $0 }) { usleep(10_000) }
            }
            try await flooded.wait(for: 1, .seconds(60))
            for _ in 0..<20 { #expect(await service.isAnswering(client)) }
            isOver.withLock { $0 = true }
            try await flood
            #expect(service.states.all.isEmpty)
            #expect(service.log.warnings.count == 1, "\(service.log.warnings)")
            await service.connection.close()
            await client.close()
        }
    }

    @Test func `a caller that reads is answered however much it asks for`() async throws {
        try await withBus { fixture in
            let service = try await Service(fixture)
            let client = try await fixture.connect()
            for _ in 0..<60 {
                let answer = try await client.call(
                    destination: service.name, path: "/taker", interface: "org.example.Taker", method: "Give")
                #expect(try answer.argument(0, as: [UInt8].self).count == 1 << 20)
            }
            #expect(service.log.warnings.isEmpty)
            await service.connection.close()
            await client.close()
        }
    }
}
