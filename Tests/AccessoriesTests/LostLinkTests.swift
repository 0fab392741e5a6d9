// A link that is gone while BlueZ says that it is there: nothing stays held, and the button is heard again when the link is back.
import BlueZ
import BusTestSupport
import DBus
import FakeBlueZ
import MonotonicTime
import Reactor
import Synchronization
import TestSupport
import Testing

@testable import Accessories
@testable import AccessoryTestSupport

private let puck = DeviceFacts.button("ptt-z")

/// A kernel whose links the test says.
private final class FakeKernel: Sendable {
    final class Listener: LELinkListener {
        let kernel: FakeKernel
        init(_ kernel: FakeKernel) { self.kernel = kernel }
        func links() throws(LEConnectionError) -> [LELink] { kernel.links.withLock { $0 } }
        func shut() { kernel.isOpen.withLock { $0 = false } }
    }

    let links = Mutex<[LELink]>([])
    let isOpen = Mutex(false)
    let ended = Mutex<(@Sendable (UInt16) -> Void)?>(nil)

    var listening: BlueZHost.Listening {
        { [self] _, _, onEnd, _ throws(LEConnectionError) in
            nonisolated(unsafe) let onEnd = onEnd
            ended.withLock { $0 = { onEnd($0) } }
            isOpen.withLock { $0 = true }
            return Listener(self)
        }
    }
}

@Suite struct LostLinkTests {
    @Test func aHeldButtonWhoseLinkIsGoneIsReleasedThoughBlueZSaysNothing() {
        var world = SimulatedBluetooth([AccessoryConfiguration(id: AccessoryID("a"), address: puck.address)])
        world.add(puck)
        world.send(.radio(.on))
        world.notify(puck.key, [1])
        world.change(puck.id) { $0.isLinkLost = true }
        #expect(world.intents == ["began a/ptt", "ended a/ptt disconnected"])
        #expect(world.status("a")?.isConnected == false && world.status("a")?.isReady == false)
        // What BlueZ had still to deliver begins nothing.
        world.notify(puck.key, [1])
        #expect(world.intents.count == 2)

        world.change(puck.id) { $0.isLinkLost = false }
        #expect(world.status("a")?.isReady == true)
        world.notify(puck.key, [0])
        world.notify(puck.key, [1])
        world.notify(puck.key, [0])
        #expect(world.intents.suffix(2) == ["began a/ptt", "ended a/ptt released"])
    }

    @Test func theKernelsWordIsToldAtOnceAndItsReturnIsLookedFor() async throws {
        try await withBus { fixture in
            let fake = FakeBlueZ(
                on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger,
                peripherals: [try #require(Peripheral("one=ptt-z", index: 0))])
            try await fake.start()
            let kernel = FakeKernel()
            let device = try #require(DeviceIdentifier(path: "/org/bluez/hci0/dev_C4_00_00_00_00_00"))
            let address = try #require(BluetoothAddress("C4:00:00:00:00:00"))
            let host = BlueZHost(
                on: try await fixture.connect(), logger: fixture.logger, listening: kernel.listening)
            let reports = Recorder<BluetoothReport>()
            try await host.start { reports.record($0) }
            func told(_ since: Int, _ holds: @escaping @Sendable (DeviceFacts) -> Bool) async throws -> Int {
                _ = try await reports.wait {
                    $0.dropFirst(since).contains { if case .device(let facts) = $0 { holds(facts) } else { false } }
                }
                return reports.all.count
            }
            _ = try await reports.wait { $0.contains { if case .radio(.on) = $0 { true } else { false } } }
            #expect(await host.perform(.startDiscovery) == nil)
            var count = try await told(0) { $0.id == device }
            kernel.links.withLock { $0 = [LELink(handle: 3, device: address)] }
            #expect(await host.perform(.connect(device: device)) == nil)
            count = try await told(0) { $0.isReachable }
            #expect(kernel.isOpen.withLock { $0 })

            // BlueZ says nothing, and goes on saying that it is connected.
            kernel.links.withLock { $0 = [] }
            let end = try #require(kernel.ended.withLock { $0 })
            fixture.loop.execute { end(3) }
            count = try await told(count) { $0.isConnected && $0.isLinkLost && !$0.isReachable }
            kernel.links.withLock { $0 = [LELink(handle: 3, device: address)] }
            count = try await told(count) { $0.isReachable }

            // Lost again; now BlueZ says so, too, and later that it is back.
            kernel.links.withLock { $0 = [] }
            fixture.loop.execute { end(3) }
            count = try await told(count) { $0.isLinkLost }
            #expect(await fake.perform("one drop").hasPrefix("ok"))
            count = try await told(count) { !$0.isConnected && !$0.isLinkLost }
            kernel.links.withLock { $0 = [LELink(handle: 4, device: address)] }
            #expect(await host.perform(.connect(device: device)) == nil)
            _ = try await told(count) { $0.isReachable }

            await host.stop()
            #expect(!kernel.isOpen.withLock { $0 })
            await fake.stop()
        }
    }
}
