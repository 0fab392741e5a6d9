// Signals, bus names, and losing the bus.
import BusTestSupport
import Logging
import MonotonicTime
import Reactor
import Testing

@testable import DBus

@Suite struct SignalAndNameTests {
    @Test func `a match takes what fits its rule, in order, and nothing after its removal`() async throws {
        try await withBus { fixture in
            let sender = try await fixture.connect()
            let receiver = try await fixture.connect()
            let all = Recorder<Int32>()
            let narrow = Recorder<Int32>()
            let strict = Recorder<Int32>()
            let match = try await receiver.addMatch(DBusMatchRule(interface: "org.example.A")) {
                all.record($0.arguments[1].get() ?? -1)
            }
            try await receiver.addMatch(
                DBusMatchRule(pathNamespace: "/a", interface: "org.example.A", member: "M", argument0: "x")
            ) { narrow.record($0.arguments[1].get() ?? -1) }
            try await receiver.addMatch(DBusMatchRule(sender: sender.uniqueName, path: "/a/b")) {
                strict.record($0.arguments[1].get() ?? -1)
            }
            let signals: [(String, DBusObjectPath, String)] = [
                ("M", "/a", "x"), ("M", "/a/b", "x"), ("M", "/ab", "x"), ("N", "/a", "x"), ("M", "/a", "y"),
            ]
            for (index, (member, path, text)) in signals.enumerated() {
                try await sender.emitSignal(
                    member, of: "org.example.A", at: path, [.string(text), .int32(Int32(index))])
            }
            #expect(try await all.wait(for: 5) == [0, 1, 2, 3, 4])
            #expect(narrow.all == [0, 1])
            #expect(strict.all == [1])
            await receiver.removeMatch(match)
            try await sender.emitSignal("M", of: "org.example.A", at: "/a", [.string("x"), .int32(9)])
            #expect(try await narrow.wait(for: 3) == [0, 1, 9])
            #expect(all.all.count == 5)
            await sender.close()
            await receiver.close()
        }
    }

    @Test func `a signal sent to us directly by a stranger does not pass for the service's`() async throws {
        try await withBus { fixture in
            let service = try await fixture.connect()
            let stranger = try await fixture.connect()
            let receiver = try await fixture.connect()
            try await service.requestName("org.example.Service")
            let received = Recorder<String>()
            try await receiver.addMatch(DBusMatchRule(sender: "org.example.Service", interface: "org.example.A")) {
                received.record($0.arguments.first?.stringValue ?? "")
            }
            let target = try #require(await receiver.uniqueName)
            try await stranger.emitSignal("M", of: "org.example.A", at: "/a", [.string("forged")], to: target)
            try await service.emitSignal("M", of: "org.example.A", at: "/a", [.string("real")])
            #expect(try await received.wait(for: 1) == ["real"])
            // The name moves: its new owner is believed, the old one no longer.
            try await service.releaseName("org.example.Service")
            try await stranger.requestName("org.example.Service")
            try await service.emitSignal("M", of: "org.example.A", at: "/a", [.string("old")])
            try await stranger.emitSignal("M", of: "org.example.A", at: "/a", [.string("new")])
            #expect(try await received.wait(for: 2) == ["real", "new"])
            for connection in [service, stranger, receiver] { await connection.close() }
        }
    }

    @Test func `a name's owner is told now and at each change, unique names too`() async throws {
        try await withBus { fixture in
            let owner = try await fixture.connect()
            let watcher = try await fixture.connect()
            let name = try #require(await owner.uniqueName)
            let seen = Recorder<String?>()
            let left = Recorder<String?>()
            let watch = try await watcher.watchName("org.example.Name") { seen.record($0) }
            _ = try await watcher.watchName(name) { left.record($0) }
            #expect(seen.all == [nil])
            #expect(left.all == [name])
            try await owner.requestName("org.example.Name")
            #expect(try await seen.wait(for: 2) == [nil, name])
            try await owner.releaseName("org.example.Name")
            #expect(try await seen.wait(for: 3) == [nil, name, nil])
            await watcher.unwatchName(watch)
            try await owner.requestName("org.example.Name")
            await owner.close()
            #expect(try await left.wait(for: 2) == [name, nil])
            #expect(seen.all.count == 3)
            await watcher.close()
        }
    }

    @Test func `a taken name is refused, and may be taken over`() async throws {
        try await withBus { fixture in
            let first = try await fixture.connect()
            let second = try await fixture.connect()
            try await first.requestName("org.example.Name", allowingReplacement: true)
            await #expect(throws: DBusError.nameTaken("org.example.Name")) {
                try await second.requestName("org.example.Name")
            }
            await #expect(throws: DBusError.self) { try await second.requestName("nonsense") }
            try await second.requestName("org.example.Name", replacing: true)
            let expected = await second.uniqueName
            #expect(try await first.owner(of: "org.example.Name") == expected)
            await first.close()
            await second.close()
        }
    }

    @Test func `killing and restarting the bus restores matches, names and objects`() async throws {
        try await withBus { fixture in
            let connection = try await fixture.connect()
            let other = try await fixture.connect()
            let states = Recorder<DBusConnectionState>()
            await connection.onStateChange { states.record($0) }
            try await connection.requestName("org.example.Name")
            let peer = Recorder<String?>()
            _ = try await connection.watchName("org.example.Peer") { peer.record($0) }
            try await other.requestName("org.example.Peer")
            let received = Recorder<String>()
            try await connection.addMatch(DBusMatchRule(sender: "org.example.Peer", member: "M")) {
                received.record($0.arguments.first?.stringValue ?? "")
            }
            let interface = DBusInterface(
                "org.example.Test", methods: [.init("Hang")], properties: [.init("P", .int32)])
            let export = try DBusExport(
                interface, properties: ["P": .int32(1)],
                methods: [
                    "Hang": { _ in
                        try await Task.sleep(for: .seconds(1))
                        return []
                    }
                ])
            try await connection.export([export], at: "/test")

            let hanging = Task {
                await failure {
                    try await other.call(
                        destination: "org.example.Name", path: "/test", interface: "org.example.Test", method: "Hang")
                }
            }
            try await Task.sleep(for: .milliseconds(100))
            fixture.bus.stop()
            #expect(await hanging.value == .disconnected)
            #expect(try await peer.wait(until: { $0.last == .some(nil) && $0.count >= 3 }).last == .some(nil))
            await #expect(throws: DBusError.disconnected) { try await connection.owner(of: "org.example.Name") }
            // While there is no bus, what is asked for is kept.
            let late = Recorder<String>()
            try await connection.addMatch(DBusMatchRule(member: "Late")) { late.record($0.member ?? "") }
            try await connection.setProperties(["P": .int32(2)], of: "org.example.Test", at: "/test")
            try await Task.sleep(for: .milliseconds(300))
            try fixture.bus.start()

            let restored = try await peer.wait(until: { $0.last != .some(nil) && $0.count >= 4 }).last
            #expect(restored != .some(nil))
            let changes = try await states.wait(until: { $0.count >= 2 })
            #expect(changes.first == .disconnected(.disconnected))
            guard case .connected = changes.last else {
                Issue.record("\(changes)")
                return
            }
            #expect(
                try await eventually {
                    await other.uniqueName != nil
                })
            let expected = await connection.uniqueName
            #expect(try await other.owner(of: "org.example.Name") == expected)
            let value = try await other.getProperty(
                "P", of: "org.example.Test", destination: "org.example.Name", path: "/test")
            #expect(value == .int32(2))
            try await other.emitSignal("M", of: "org.example.A", at: "/a", [.string("again")])
            try await other.emitSignal("Late", of: "org.example.A", at: "/a")
            #expect(try await late.wait(for: 1) == ["Late"])
            #expect(received.all == ["again"])
            await connection.close()
            await other.close()
        }
    }

    @Test func `a bus that cannot be reached is an error that names it, and is retried when asked`() async throws {
        let loop = try EventLoop(name: "test")
        defer { loop.stop() }
        let bus = try PrivateBus()
        bus.stop()
        var logger = Logger(label: "test")
        logger.logLevel = .critical
        let connection = DBusConnection(to: .address(bus.address), on: loop, logger: logger)
        do {
            try await connection.connect(retrying: true)
            Issue.record("no error")
        } catch {
            guard case .connectFailed(let address, _) = error else {
                Issue.record("\(error)")
                return
            }
            #expect(address == bus.address)
        }
        try bus.start()
        #expect(try await eventually { await connection.uniqueName != nil })
        await connection.close()
        for nonsense in ["", "nonsense", "unix:path=/does/not/exist", "unix:path=a\0b", "tcp:host=256.0.0.1,port=1"] {
            let bad = DBusConnection(to: .address(nonsense), on: loop, logger: logger)
            await #expect(throws: DBusError.self) { try await bad.connect() }
            await bad.close()
        }
    }

    @Test func `reconnecting waits longer each time, up to a bound`() {
        var backoff = DBusConnection.reconnecting
        let delays = (0..<12).map { _ in backoff.delay() }
        #expect(delays.first == .milliseconds(50))
        #expect(zip(delays, delays.dropFirst()).allSatisfy { $0 <= $1 })
        #expect(delays.last == .seconds(10))
        backoff.reset()
        #expect(backoff.delay() == .milliseconds(50))
    }
}
