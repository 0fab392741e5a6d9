// Callers that begin and stop as fast as they can: the rule, and org.pttd on a real bus.
import BusTestSupport
import DBus
import FoundationEssentials
import MonotonicTime
import PTTBus
import Reactor
import TestSupport
import Testing

@testable import DaemonAPI

@Suite struct BeginPaceTests {
    private let key = BeginPace.Key(caller: "a", use: .talkKey)

    private func pace() -> BeginPace {
        BeginPace(
            caller: .init(burst: 2, perSecond: 10), all: .init(burst: 5, perSecond: 20), at: .zero)
    }

    @Test func `begins that come too fast become one, which comes soon`() throws {
        var pace = pace()
        #expect(pace.begin(key, at: .zero) == nil)
        #expect(pace.begin(key, at: .zero) == nil)
        let waiting = (0..<100).compactMap { _ in pace.begin(key, at: .zero) }
        #expect(waiting.count == 100)
        let deadline = pace.nextDeadline(at: .zero)
        let due = try #require(deadline)
        #expect(due <= Instant.zero + .milliseconds(101))
        let early = pace.takeDue(at: .zero + .milliseconds(50))
        #expect(early.isEmpty)
        #expect(pace.takeDue(at: due) == waiting)
        #expect(pace.nextDeadline(at: due) == nil)
    }

    @Test func `an end is never delayed, and what waited before it is over`() {
        var pace = pace()
        for _ in 0..<2 { _ = pace.begin(key, at: .zero) }
        let waiting = (0..<3).compactMap { _ in pace.begin(key, at: .zero) }
        #expect(pace.end(key) == waiting)
        let (again, due, deadline) = (
            pace.end(key), pace.takeDue(at: .zero + .seconds(1)), pace.nextDeadline(at: .zero)
        )
        #expect(again.isEmpty && due.isEmpty && deadline == nil)
    }

    @Test func `however many begin and end, the last thing that each wants becomes so, at a bounded rate`() {
        var pace = pace()
        var generator = SeededGenerator()
        var wanted: [Int: Bool] = [:]
        var isHeld: [Int: Bool] = [:]
        var owner: [BeginPace.ID: Int] = [:]
        var changes = 0
        func take(_ ids: [BeginPace.ID]) {
            for caller in Set(ids.compactMap { owner[$0] }) {
                isHeld[caller] = true
                changes += 1
            }
        }
        for step in 0..<20_000 {
            let now = Instant.zero + .milliseconds(step / 2)
            take(pace.takeDue(at: now))
            let caller = Int.random(in: 0..<20, using: &generator)
            let key = BeginPace.Key(caller: "\(caller)", use: .talkKey)
            wanted[caller] = Bool.random(using: &generator)
            if wanted[caller] == false {
                _ = pace.end(key)
                isHeld[caller] = false
            } else if let id = pace.begin(key, at: now) {
                owner[id] = caller
            } else {
                isHeld[caller] = true
                changes += 1
            }
        }
        for second in 11..<30 { take(pace.takeDue(at: .zero + .seconds(second))) }
        for (caller, value) in wanted { #expect(isHeld[caller] == value, "\(caller)") }
        #expect(changes <= 5 + 20 * 29, "\(changes)")
    }
}

@Suite(.timeLimit(.minutes(2))) struct BeginFloodTests {
    @Test func `a caller that presses and lets go without end presses some times a second, and is let go at the end`()
        async throws
    {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let caller = DBusConnection(to: .address(fixture.bus.address), on: fixture.loop, logger: fixture.logger)
            try await caller.connect()
            let begun = Instant.now
            for _ in 0..<40 {
                try await caller.send(
                    destination: PTTBus.name, path: Served.path, interface: PTTBus.channelInterface,
                    method: "BeginTransmitting")
                #expect(await Self.isDone(caller, "StopTransmitting"))
            }
            let elapsed = Double((Instant.now - begun).nanoseconds) / 1e9
            let presses = await served.controls.presses.count
            #expect(Double(presses) <= 10 + elapsed * 8 + 1, "\(presses) in \(elapsed) s")
            #expect(await served.controls.holders.isEmpty)
            // A press that waits is done when its turn has come.
            #expect(await Self.isDone(caller, "BeginTransmitting"))
            #expect(await served.controls.holders.count == 1)
            await caller.close()
            #expect(try await eventually { await served.controls.holders.isEmpty })
            await served.close()
        }
    }

    @Test func `a stop behind more begins than may run at once ends the press`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let caller = try await fixture.connect()
            for _ in 0..<(DBusLimits.runningHandlersPerCaller + 12) {
                try await caller.send(
                    destination: PTTBus.name, path: Served.path, interface: PTTBus.channelInterface,
                    method: "BeginTransmitting")
            }
            #expect(await Self.isDone(caller, "StopTransmitting"))
            #expect(await served.controls.holders.isEmpty)
            #expect(await !served.controls.presses.isEmpty)
            await caller.close()
            await served.close()
        }
    }

    @Test func `a press that waits for its turn is a press of the channel that was active when it was made`()
        async throws
    {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let caller = try await fixture.connect()
            for _ in 0..<PTTBusLimits.begins.burst {
                #expect(await Self.isDone(caller, "BeginTransmitting"))
                #expect(await Self.isDone(caller, "StopTransmitting"))
            }
            try await caller.send(
                destination: PTTBus.name, path: Served.path, interface: PTTBus.channelInterface,
                method: "BeginTransmitting")
            // Answered after the press has come.
            _ = try await caller.getProperty(
                "Version", of: PTTBus.managerInterface, destination: PTTBus.name, path: "/org/pttd")
            var other = Served.channel
            other.uuid = "227face1-cb21-11e5-93d0-0002a5d5c51b"
            await served.api.update(channel: other)
            let count = PTTBusLimits.begins.burst + 1
            #expect(try await eventually { await served.controls.presses.count == count })
            #expect(await served.controls.presses == [UUID](repeating: Served.uuid, count: count))
            await caller.close()
            await served.close()
        }
    }

    private static func isDone(_ caller: DBusConnection, _ method: String) async -> Bool {
        do {
            try await caller.call(
                destination: PTTBus.name, path: Served.path, interface: PTTBus.channelInterface, method: method)
            return true
        } catch { return false }
    }
}
