// Buttons that BlueZ should connect by itself and does not: they are asked for, seldom, one at a time, at no bad moment.
import BlueZ
import MonotonicTime
import Testing

@testable import Accessories
@testable import AccessoryTestSupport

private let puck = DeviceFacts.button("ptt-z")
private let other = DeviceFacts.button("aina-v2", number: 2, name: "APTT12")
private let puckID = AccessoryConfiguration(id: AccessoryID("puck"), address: puck.address)
private let otherID = AccessoryConfiguration(id: AccessoryID("other"), address: other.address)

@Suite struct AskingTests {
    /// Both ready, the puck lost and not asked for yet.
    private func lost() -> SimulatedBluetooth {
        var bluetooth = SimulatedBluetooth([puckID, otherID])
        bluetooth.add(puck)
        bluetooth.add(other)
        bluetooth.send(.radio(.on))
        bluetooth.advance(.seconds(5))
        bluetooth.dropLink(puck.id)
        bluetooth.commands = []
        return bluetooth
    }

    private func asks(_ bluetooth: SimulatedBluetooth, _ device: DeviceFacts = puck) -> Int {
        bluetooth.commands.count { $0 == .connect(device: device.id) }
    }

    @Test func aButtonThatBlueZNeverConnectsIsConnectedAllTheSame() {
        var bluetooth = lost()
        // It advertises, and BlueZ does nothing.
        bluetooth.awake.insert(puck.id)
        bluetooth.advance(.seconds(14))
        #expect(asks(bluetooth) == 0 && bluetooth.status("puck")?.isReady == false)
        bluetooth.advance(.seconds(2))
        #expect(asks(bluetooth) == 1 && bluetooth.status("puck")?.isReady == true)
    }

    @Test func aButtonThatIsAwayIsAskedForLessAndLess() {
        var bluetooth = lost()
        bluetooth.advance(.seconds(120))
        #expect((2...4).contains(asks(bluetooth)))
        bluetooth.advance(.seconds(3_600))
        let hour = asks(bluetooth)
        bluetooth.advance(.seconds(24 * 3_600))
        #expect(asks(bluetooth) - hour <= 24 * 12 + 1)
        #expect(bluetooth.status("puck")?.problem?.contains("press its button") == true)
        // Back again, it is asked for soon after the next loss.
        bluetooth.wake(puck.id)
        #expect(bluetooth.status("puck")?.isReady == true)
        bluetooth.dropLink(puck.id)
        bluetooth.commands = []
        bluetooth.advance(.seconds(16))
        #expect(asks(bluetooth) == 1)
    }

    @Test func nobodyIsAskedForWhileAnotherIsOrWhileSomebodyPresses() {
        var bluetooth = lost()
        bluetooth.notify(other.key, [0x01])
        bluetooth.advance(.seconds(60))
        #expect(asks(bluetooth) == 0, "asked for while a button is held")
        bluetooth.holdsConnects = true
        bluetooth.notify(other.key, [0x00])
        bluetooth.advance(.seconds(1))
        #expect(asks(bluetooth) == 1)
        // The answer is still out.
        bluetooth.dropLink(other.id)
        bluetooth.advance(.seconds(120))
        #expect(asks(bluetooth, other) == 0 && asks(bluetooth) == 1)
        bluetooth.send(.completed(.connect(device: puck.id), .abortedLocally))
        #expect(asks(bluetooth, other) == 1)
        // BlueZ does it meanwhile: whichever comes first.
        bluetooth.wake(other.id)
        #expect(bluetooth.status("other")?.isReady == true)
        bluetooth.send(.completed(.connect(device: other.id), .inProgress))
        #expect(bluetooth.status("other")?.isReady == true)
    }

    @Test func aPersonsScanIsNotDisturbed() {
        var bluetooth = lost()
        bluetooth.send(.scan(true))
        bluetooth.advance(.seconds(60))
        #expect(asks(bluetooth) == 0 && bluetooth.isScanning)
        bluetooth.send(.scan(false))
        bluetooth.advance(.seconds(1))
        #expect(asks(bluetooth) == 1)
    }

    @Test func anAskThatIsOutWhenTheAdapterGoesIsForgotten() {
        var bluetooth = lost()
        bluetooth.holdsConnects = true
        bluetooth.advance(.seconds(20))
        #expect(asks(bluetooth) == 1)
        bluetooth.send(.radio(.off))
        bluetooth.send(.completed(.connect(device: puck.id), .notReady))
        bluetooth.holdsConnects = false
        bluetooth.awake.insert(puck.id)
        bluetooth.send(.radio(.on))
        bluetooth.advance(.seconds(1))
        #expect(bluetooth.status("puck")?.isReady == true)
    }
}
