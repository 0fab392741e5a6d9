// What becomes of a flood of calls: the rule, and a real bus.
import BusTestSupport
import CDBus
import Glibc
import Logging
import MonotonicTime
import Synchronization
import Testing

@testable import DBus

@Suite struct CallGateTests {
    private static let bound = DBusCallBound(
        caller: .init(burst: 10, perSecond: 10), all: .init(burst: 20, perSecond: 20),
        share: .init(burst: 2, perSecond: 1), endings: ["Stop", "End"])

    private func gate() -> CallGate<Int> { CallGate(Self.bound, at: .zero) }

    private func taken(_ gate: inout CallGate<Int>, _ sender: String, _ count: Int, at now: Instant) -> Int {
        (0..<count).count { number in
            if case .take = gate.arrive(sender, "Begin", at: now, keeping: { number }) { true } else { false }
        }
    }

    @Test func `a caller is taken at its rate, and one that called little beside a crowd, too`() {
        var gate = gate()
        #expect(taken(&gate, "a", 1_000, at: .zero) == 10)
        #expect(taken(&gate, "a", 1_000, at: .zero + .seconds(1)) == 10)
        for flooder in 0..<100 { _ = taken(&gate, "flooder \(flooder)", 100, at: .zero + .seconds(2)) }
        #expect(taken(&gate, "quiet", 1, at: .zero + .seconds(2)) == 1)
        #expect(taken(&gate, "quiet", 10, at: .zero + .seconds(2)) == 1)
    }

    @Test func `of the ends that find no room the last of each kind is taken in its turn`() {
        var gate = gate()
        #expect(taken(&gate, "a", 100, at: .zero) == 10)
        var replaced: [Int] = []
        for number in 1...50 {
            let member = number % 2 == 0 ? "Stop" : "End"
            guard case .keep(let old) = gate.arrive("a", member, at: .zero, keeping: { number }) else {
                Issue.record("\(number) is not kept")
                return
            }
            if let old { replaced.append(old) }
        }
        #expect(replaced == Array(1...48))
        let early = gate.takeDue(at: .zero)
        #expect(early.isEmpty)
        let due = gate.nextDeadline(at: .zero)
        #expect(due.map { $0 - Instant.zero < .milliseconds(101) } == true)
        // No begin overtakes them.
        #expect(taken(&gate, "a", 1, at: .zero + .seconds(1)) == 0)
        #expect(gate.takeDue(at: .zero + .milliseconds(101)) == [49])
        #expect(gate.takeDue(at: .zero + .seconds(2)) == [50])
        #expect(gate.nextDeadline(at: .zero + .seconds(2)) == nil)
        #expect(taken(&gate, "a", 1, at: .zero + .seconds(2)) == 1)
    }

    @Test func `callers without number are not remembered without number`() {
        var gate = gate()
        for number in 0..<100_000 { _ = gate.arrive("\(number)", "Stop", at: .zero, keeping: { number }) }
        #expect(taken(&gate, "a", 1, at: .zero + .seconds(60)) == 1)
    }
}

@Suite(.timeLimit(.minutes(2))) struct CallFloodTests {
    private static let interface = DBusInterface("org.example.Taker", methods: [.init("Begin"), .init("Stop")])

    @Test func `each call of a flood is answered, the last end is done, and others are served meanwhile`() async throws
    {
        try await withBus { fixture in
            let connection = DBusConnection(to: .address(fixture.bus.address), on: fixture.loop, logger: fixture.logger)
            try await connection.connect()
            let name = try #require(await connection.uniqueName)
            let done = Recorder<String>()
            try await connection.export(
                [
                    try DBusExport(
                        Self.interface,
                        methods: [
                            "Begin": { call in
                                done.record("begin \(call.sender)")
                                return []
                            },
                            "Stop": { call in
                                done.record("stop \(call.sender)")
                                return []
                            },
                        ])
                ], at: "/taker")
            await connection.bound(
                calls: DBusCallBound(
                    caller: .init(burst: 16, perSecond: 20), all: .init(burst: 64, perSecond: 100),
                    share: .init(burst: 4, perSecond: 1), endings: ["Stop"]))
            let client = try await fixture.connect()
            let pairs = 500
            let (flooder, answers) = try await onThread {
                let peer = try RawPeer(fixture.bus.address)
                var waiting: Set<UInt32> = []
                for number in 0..<(2 * pairs) {
                    let message = try RawPeer.call(name, number % 2 == 0 ? "Begin" : "Stop")
                    var serial: UInt32 = 0
                    dbus_connection_send(peer.connection, message, &serial)
                    dbus_message_unref(message)
                    waiting.insert(serial)
                }
                let deadline = Instant.now + .seconds(30)
                while !waiting.isEmpty, Instant.now < deadline {
                    dbus_connection_read_write(peer.connection, 100)
                    while let message = dbus_connection_pop_message(peer.connection) {
                        waiting.remove(dbus_message_get_reply_serial(message))
                        dbus_message_unref(message)
                    }
                }
                let own = dbus_bus_get_unique_name(peer.connection).map { String(cString: $0) } ?? ""
                return (own, 2 * pairs - waiting.count)
            }
            #expect(answers == 2 * pairs)
            let ofFlooder = done.all.filter { $0.hasSuffix(flooder) }
            #expect(ofFlooder.last == "stop \(flooder)")
            #expect(ofFlooder.count < 300, "\(ofFlooder.count)")
            try await client.call(
                destination: name, path: "/taker", interface: "org.example.Taker", method: "Begin")
            await connection.close()
            await client.close()
        }
    }

    @Test func `an end is carried out while as many calls run as may`() async throws {
        try await withBus { fixture in
            let connection = try await fixture.connect()
            let client = try await fixture.connect()
            let name = try #require(await connection.uniqueName)
            let door = Door()
            let begun = Recorder<Void>()
            try await connection.export(
                [
                    try DBusExport(
                        Self.interface,
                        methods: [
                            "Begin": { _ in
                                begun.record(())
                                await door.pass()
                                return []
                            },
                            "Stop": { _ in [] },
                        ])
                ], at: "/taker")
            await connection.bound(
                calls: DBusCallBound(
                    caller: .init(burst: 1_000, perSecond: 1_000), all: .init(burst: 1_000, perSecond: 1_000),
                    share: .init(burst: 1, perSecond: 1), endings: ["Stop"]))
            for _ in 0..<DBusLimits.runningHandlersPerCaller {
                try await client.send(
                    destination: name, path: "/taker", interface: "org.example.Taker", method: "Begin")
            }
            try await begun.wait(for: DBusLimits.runningHandlersPerCaller, .seconds(60))
            let refusal = await #expect(throws: DBusError.self) {
                try await client.call(
                    destination: name, path: "/taker", interface: "org.example.Taker", method: "Begin")
            }
            #expect(refusal?.remoteName == "org.freedesktop.DBus.Error.LimitsExceeded")
            try await client.call(
                destination: name, path: "/taker", interface: "org.example.Taker", method: "Stop")
            await door.open()
            await connection.close()
            await client.close()
        }
    }
}

/// Calls that are not answered until it opens.
private actor Door {
    private var waiting: [CheckedContinuation<Void, Never>] = []
    private var isOpen = false

    func pass() async {
        guard !isOpen else { return }
        await withCheckedContinuation { waiting.append($0) }
    }

    func open() {
        isOpen = true
        for continuation in waiting { continuation.resume() }
        waiting = []
    }
}
