// The client against a fake bluetoothd: the way of a press, and every way in which it is disturbed.
import BusTestSupport
import DBus
import MonotonicTime
import Testing

@testable import BlueZ
@testable import FakeBlueZ

@Suite struct ClientTests {
    @Test func `a press arrives with its time, the first one too, and repeats as well`() async throws {
        try await World.run { world in
            let characteristic = try await world.connectButton()
            let before = Instant.now
            for command in ["press", "press", "notify 81", "release"] { _ = await world.fake.perform("B \(command)") }
            try await world.waitForValues([[1], [1], [0x81], [0]])
            for case .valueChanged(let identifier, _, let time) in world.events.all {
                #expect(identifier == characteristic)
                #expect(time >= before && time <= .now)
            }
        }
    }

    @Test func `values are read and written, and refusals have kinds`() async throws {
        try await World.run { world in
            let characteristic = try await world.connectButton()
            _ = await world.fake.perform("B press")
            #expect(try await world.client.readValue(characteristic) == [1])
            let error = await #expect(throws: BlueZError.self) {
                try await world.client.writeValue([1], to: characteristic)
            }
            #expect(error?.kind == .notPermitted)
            let long = await #expect(throws: BlueZError.self) {
                try await world.client.writeValue(Array(repeating: 0, count: 513), to: characteristic)
            }
            #expect(long?.kind == .invalidArguments)
            _ = await world.fake.perform("B drop")
            let gone = await #expect(throws: BlueZError.self) { try await world.client.readValue(characteristic) }
            #expect(gone?.kind == .notConnected)
        }
    }

    @Test(arguments: [(true, true), (true, false), (false, true)])
    func `BlueZ reconnects a button by itself only with the profile registered and trust`(
        isRegistered: Bool, isTrusted: Bool
    ) async throws {
        try await World.run { world in
            if isRegistered {
                await world.client.setReconnectingServices([world.service])
                try await world.event(.reconnectionArmed(world.adapter))
            }
            _ = try await world.connectButton(trusted: isTrusted)
            _ = await world.fake.perform("B vanish")
            try await world.event(.deviceDisconnected(world.device, .unknown))
            world.events.clear()
            _ = await world.fake.perform("B adv on")
            if isRegistered && isTrusted {
                try await world.event(.servicesResolved(world.device, true))
                // The subscription was kept.
                _ = await world.fake.perform("B press")
                try await world.waitForValues([[1]])
            } else {
                try await Task.sleep(for: .milliseconds(200))
                #expect(await world.client.device(world.device)?.isConnected == false)
            }
        }
    }

    @Test func `other UUIDs are registered anew, none ends it`() async throws {
        try await World.run { world in
            await world.client.setReconnectingServices(["180d"])
            try await world.event(.reconnectionArmed(world.adapter))
            _ = try await world.connectButton()
            world.events.clear()
            await world.client.setReconnectingServices(["180d", world.service])
            try await world.event(.reconnectionArmed(world.adapter))
            _ = await world.fake.perform("B drop")
            try await world.event(.deviceConnected(world.device))
            await world.client.setReconnectingServices([])
            #expect(try await eventually { await world.client.reconciler.registered.isEmpty })
            world.events.clear()
            _ = await world.fake.perform("B drop")
            try await Task.sleep(for: .milliseconds(150))
            #expect(!world.events.all.contains(.deviceConnected(world.device)))
        }
    }

    @Test func `a restarted bluetoothd is read again, and everything is registered again`() async throws {
        try await World.run { world in
            await world.client.setReconnectingServices([world.service])
            try await world.client.registerAgent()
            let old = try await world.connectButton()
            _ = await world.fake.perform("B press")
            try await world.waitForValues([[1]])
            world.events.clear()
            _ = await world.fake.perform("daemon stop")
            try await world.event(.unavailable)
            let ends = world.events.all
            #expect(ends.contains(.deviceDisconnected(world.device, .serviceGone)))
            #expect(ends.contains(.characteristicRemoved(old)))
            #expect(ends.contains(.adapterRemoved(world.adapter)))
            #expect(ends.last == .unavailable)
            let error = await #expect(throws: BlueZError.self) { try await world.client.connect(world.device) }
            #expect(error?.kind == .unavailable)
            world.events.clear()
            _ = await world.fake.perform("daemon start")
            try await world.event(.available)
            try await world.event(.reconnectionArmed(world.adapter))
            try await world.event("characteristicAdded") { if case .characteristicAdded = $0 { true } else { false } }
            try await world.client.startNotify(old)
            _ = await world.fake.perform("B press")
            try await world.waitForValues([[1]])
            #expect(try await eventually { await !world.fake.agents.isEmpty })
        }
    }

    @Test func `a bus that is killed and restarted is survived as well`() async throws {
        try await World.run { world in
            await world.client.setReconnectingServices([world.service])
            _ = try await world.connectButton()
            world.events.clear()
            world.fixture.bus.stop()
            try await world.event(.unavailable)
            await world.fake.stop()
            try world.fixture.bus.start()
            try await world.fake.start()
            try await world.event(.available)
            try await world.event(.servicesResolved(world.device, true))
        }
    }

    @Test func `an adapter that is pulled out and plugged in again is registered again`() async throws {
        try await World.run { world in
            await world.client.setReconnectingServices([world.service])
            _ = try await world.connectButton()
            world.events.clear()
            _ = await world.fake.perform("adapter remove")
            try await world.event(.adapterRemoved(world.adapter))
            #expect(world.events.all.contains(.deviceDisconnected(world.device, .removed)))
            world.events.clear()
            _ = await world.fake.perform("adapter add")
            try await world.event(.reconnectionArmed(world.adapter))
            try await world.event(.servicesResolved(world.device, true))
            _ = await world.fake.perform("adapter off")
            try await world.event(.adapterPowered(world.adapter, false))
            try await world.event(.deviceDisconnected(world.device, .unknown))
            let error = await #expect(throws: BlueZError.self) { try await world.client.connect(world.device) }
            #expect(error?.kind == .notReady)
            world.events.clear()
            _ = await world.fake.perform("adapter on")
            try await world.event(.adapterPowered(world.adapter, true))
            try await world.event(.servicesResolved(world.device, true))
        }
    }

    @Test func `a device that is connected already at the start is reported so`() async throws {
        try await World.run { world in
            _ = try await world.connectButton()
            let later = Recorder<BlueZEvent>()
            let other = try await world.fixture.connect()
            let client = BlueZClient(on: other, logger: world.fixture.logger) { later.record($0) }
            try await client.start()
            let all = try await later.wait { $0.contains(.available) }
            #expect(all.contains(.deviceConnected(world.device)))
            #expect(all.contains(.servicesResolved(world.device, true)))
            #expect(await client.characteristics(of: world.device).count == 1)
            await client.stop()
            await other.close()
        }
    }

    @Test func `an aborted link is an error of its own, and the next attempt works`() async throws {
        try await World.run { world in
            try await world.client.startDiscovery(on: world.adapter)
            try await world.event("deviceAdded") { if case .deviceAdded = $0 { true } else { false } }
            _ = await world.fake.perform("B abort 1")
            let error = await #expect(throws: BlueZError.self) { try await world.client.connect(world.device) }
            #expect(error?.kind == .connectionAborted)
            try await world.client.connect(world.device)
            try await world.event(.servicesResolved(world.device, true))
            try await world.client.connect(world.device)
        }
    }

    @Test func `a second attempt while one is under way is told apart`() async throws {
        try await World.run { world in
            try await world.client.startDiscovery(on: world.adapter)
            try await world.event("deviceAdded") { if case .deviceAdded = $0 { true } else { false } }
            _ = await world.fake.perform("B adv off")
            async let first: Void = world.client.connect(world.device)
            try await Task.sleep(for: .milliseconds(50))
            let error = await #expect(throws: BlueZError.self) { try await world.client.connect(world.device) }
            #expect(error?.kind == .inProgress)
            _ = await world.fake.perform("B adv on")
            try await first
        }
    }

    @Test func `discovery may be started twice and stopped twice`() async throws {
        try await World.run { world in
            for _ in 0..<2 { try await world.client.startDiscovery(on: world.adapter) }
            for _ in 0..<2 { try await world.client.stopDiscovery(on: world.adapter) }
            _ = await world.fake.perform("adapter remove")
            try await world.event(.adapterRemoved(world.adapter))
            try await world.client.stopDiscovery(on: world.adapter)
        }
    }

    @Test func `services that flap take their characteristics with them and bring them back`() async throws {
        try await World.run { world in
            let characteristic = try await world.connectButton()
            world.events.clear()
            _ = await world.fake.perform("B flap")
            try await world.event(.servicesResolved(world.device, true))
            let order = world.events.all.compactMap { event -> String? in
                switch event {
                case .servicesResolved(_, let isTrue): "resolved \(isTrue)"
                case .characteristicAdded: "added"
                case .characteristicRemoved: "removed"
                case .deviceDisconnected: "disconnected"
                default: nil
                }
            }
            #expect(order == ["resolved false", "removed", "added", "resolved true"])
            try await world.client.startNotify(characteristic)
            _ = await world.fake.perform("B press")
            try await world.waitForValues([[1]])
        }
    }

    @Test func `objects that come after services were said to be resolved are found`() async throws {
        var configuration = FakeBlueZ.Configuration()
        configuration.objectsLate = .milliseconds(100)
        try await World.run(configuration: configuration) { world in
            _ = try await world.connectButton()
            let all = world.events.all
            let resolved = try #require(all.firstIndex(of: .servicesResolved(world.device, true)))
            let added = try #require(all.firstIndex { if case .characteristicAdded = $0 { true } else { false } })
            #expect(resolved < added)
            _ = await world.fake.perform("B press")
            try await world.waitForValues([[1]])
        }
    }

    @Test func `subscribing twice, and while there is no link, is no error`() async throws {
        try await World.run { world in
            let characteristic = try await world.connectButton()
            try await world.client.startNotify(characteristic)
            _ = await world.fake.perform("B vanish")
            try await world.event(.deviceDisconnected(world.device, .unknown))
            try await world.client.startNotify(characteristic)
            _ = await world.fake.perform("B adv on")
            world.events.clear()
            try await world.client.connect(world.device)
            try await world.event(.servicesResolved(world.device, true))
            _ = await world.fake.perform("B press")
            try await world.waitForValues([[1]])
        }
    }

    @Test func `battery and forgetting`() async throws {
        try await World.run { world in
            _ = try await world.connectButton()
            try await world.event(.batteryChanged(world.device, 77))
            _ = await world.fake.perform("B battery 42")
            try await world.event(.batteryChanged(world.device, 42))
            try await world.client.disconnect(world.device)
            try await world.client.disconnect(world.device)
            try await world.event(.batteryChanged(world.device, nil))
            try await world.client.removeDevice(world.device)
            try await world.event(.deviceRemoved(world.device))
            try await world.client.removeDevice(world.device)
        }
    }

    @Test func `an adapter that is switched on after the start is waited for`() async throws {
        var configuration = FakeBlueZ.Configuration()
        configuration.powerOnDelay = .milliseconds(150)
        try await World.run(configuration: configuration) { world in
            await world.client.setReconnectingServices([world.service])
            try await world.event(.reconnectionArmed(world.adapter))
            try await world.event(.adapterPowered(world.adapter, true))
            _ = try await world.connectButton()
            world.events.clear()
            _ = await world.fake.perform("daemon restart")
            try await world.event(.unavailable)
            try await world.event(.servicesResolved(world.device, true))
        }
    }

    @Test func `bluetoothd may start long after us`() async throws {
        try await World.run(startsDaemon: false) { world in
            #expect(await !world.client.isAvailable)
            await world.client.setReconnectingServices([world.service])
            try await world.client.registerAgent()
            try await world.fake.start()
            try await world.event(.reconnectionArmed(world.adapter))
            #expect(try await eventually { await !world.fake.agents.isEmpty })
        }
    }
}
