// Attempts that fail: each is repeated at growing pauses, and one part that does not work leaves the rest working.
import BlueZ
import MonotonicTime
import Testing

@testable import Accessories
@testable import AccessoryTestSupport

private let puck = DeviceFacts.button("ptt-z")
private let configured = AccessoryConfiguration(id: AccessoryID("puck"), address: puck.address)

@Suite struct AccessoryRetryTests {
    /// A deadline that has passed and stays would be run again and again.
    @Test func servicesThatAreFoundAtTheLastMomentWithoutCharacteristicsAreWaitedForWithoutACircle() {
        var bluetooth = SimulatedBluetooth([configured])
        var hollow = puck
        (hollow.characteristics, hollow.isConnected) = ([], true)
        bluetooth.add(hollow)
        bluetooth.send(.radio(.on))
        bluetooth.advance(GATTAccessoryStateMachine.resolveTimes[0] - .milliseconds(100))
        bluetooth.change(puck.id) { $0.servicesResolved = true }
        bluetooth.advance(.seconds(1))
        #expect(bluetooth.machine.nextDeadline.map { $0 > bluetooth.now } == true)
        bluetooth.change(puck.id) { $0.characteristics = puck.characteristics }
        #expect(bluetooth.status("puck")?.isReady == true)
    }

    @Test(arguments: [BluetoothFailure.inProgress, .notConnected, .notReady])
    func aConnectionThatIsAlwaysUnderWayIsAskedForAtLongerAndLongerPauses(failure: BluetoothFailure) {
        var bluetooth = SimulatedBluetooth([configured])
        bluetooth.add(puck)
        bluetooth.failures = Array(repeating: ({ $0 == .connect(device: puck.id) }, failure), count: 10_000)
        bluetooth.send(.radio(.on))
        bluetooth.advance(.seconds(600))
        #expect((5..<25).contains(bluetooth.commands.count { $0 == .connect(device: puck.id) }))
        bluetooth.failures = []
        bluetooth.advance(.seconds(61))
        #expect(bluetooth.status("puck")?.isReady == true)
    }

    @Test func aButtonThatForgetsEveryPairingIsNotAskedAgainAndAgain() {
        let aina = DeviceFacts.button("aina-v2", name: "APTT12")
        var bluetooth = SimulatedBluetooth([AccessoryConfiguration(id: AccessoryID("a"), address: aina.address)])
        bluetooth.add(aina)
        bluetooth.forgetsPairings = true
        bluetooth.failures = Array(
            repeating: ({ $0 == .startNotify(characteristic: aina.key) }, .authentication), count: 1000)
        bluetooth.send(.radio(.on))
        bluetooth.advance(.seconds(600))
        #expect((3..<20).contains(bluetooth.commands.count { $0 == .pair(device: aina.id) }))
        #expect(bluetooth.status("a")?.problem?.contains("pairing") == true)
    }

    @Test func aButtonThatHangsUpWhenItIsPairedIsNotAskedAtEachConnection() {
        let profile = AccessoryProfile.read(
            """
            id = "bonds"
            title = "Bonds"
            confidence = "capture"
            sources = ["test"]
            bonding = "required"
            [match]
            names = ["PTT-Z"]
            [[input]]
            service = "ffe0"
            characteristic = "ffe1"
            decode = "value"
            [[input.control]]
            name = "ptt"
            pressed = 0x01
            released = 0x00
            """)
        var bluetooth = SimulatedBluetooth([configured], library: ProfileLibrary([profile]))
        bluetooth.add(puck)
        bluetooth.failures = Array(repeating: ({ $0 == .pair(device: puck.id) }, .other("refused")), count: 1000)
        bluetooth.send(.radio(.on))
        for _ in 0..<300 {
            bluetooth.dropLink(puck.id)
            bluetooth.wake(puck.id)
            bluetooth.advance(.seconds(1))
        }
        #expect((3..<20).contains(bluetooth.commands.count { $0 == .pair(device: puck.id) }))
        bluetooth.failures = []
        bluetooth.advance(.seconds(61))
        #expect(bluetooth.status("puck")?.isReady == true)
    }

    @Test func aKnownButtonThatIsNotTrustedAnyMoreIsConnectedByOurselves() {
        var bluetooth = SimulatedBluetooth([configured])
        bluetooth.add(puck)
        bluetooth.send(.radio(.on))
        bluetooth.dropLink(puck.id)
        bluetooth.change(puck.id) { $0.isTrusted = false }
        bluetooth.wake(puck.id)
        bluetooth.advance(.seconds(10))
        #expect(bluetooth.status("puck")?.isReady == true)
    }

    @Test(arguments: [BluetoothFailure.notSupported, .notPermitted, .other("ATT error: 0x0e")])
    func anOptionalCharacteristicThatDoesNotNotifyLeavesTheOthersAtWork(failure: BluetoothFailure) {
        let bit = DeviceFacts.button("micro-bit", name: "BBC micro:bit [zuvop]")
        let optional = bit.characteristics[1].id
        var bluetooth = SimulatedBluetooth([AccessoryConfiguration(id: AccessoryID("bit"), address: bit.address)])
        bluetooth.add(bit)
        bluetooth.failures = Array(repeating: ({ $0 == .startNotify(characteristic: optional) }, failure), count: 1000)
        bluetooth.send(.radio(.on))
        #expect(bluetooth.status("bit")?.isReady == true)
        bluetooth.notify(bit.key, [1])
        bluetooth.change(bit.id) { $0.battery = 50 }
        bluetooth.notify(bit.key, [0])
        #expect(bluetooth.intents == ["began bit/ptt", "ended bit/ptt released"])
        #expect(bluetooth.commands.count { $0 == .startNotify(characteristic: optional) } == 1)
    }

    @Test func characteristicsThatDoNotComeLeadToANewConnectionAndThenToAnExplanation() {
        var bluetooth = SimulatedBluetooth([configured])
        var hollow = puck
        hollow.characteristics = []
        bluetooth.add(hollow)
        bluetooth.send(.radio(.on))
        bluetooth.advance(.seconds(60))
        let reconnections = bluetooth.commands.count { $0 == .disconnect(device: puck.id) }
        #expect(reconnections == GATTAccessoryStateMachine.incompleteRetries)
        #expect(bluetooth.status("puck")?.problem?.contains("no profile fits") == true)
        #expect(bluetooth.machine.nextDeadline == nil)
        bluetooth.change(puck.id) { $0.characteristics = puck.characteristics }
        #expect(bluetooth.status("puck")?.isReady == true)
    }

    @Test func anAttemptGivenUpByTheControllerIsRepeatedAtOnceAFewTimes() {
        var bluetooth = SimulatedBluetooth([configured])
        bluetooth.add(puck)
        bluetooth.failures = Array(
            repeating: ({ $0 == .connect(device: puck.id) }, .abortedLocally),
            count: GATTAccessoryStateMachine.quickRetries)
        bluetooth.send(.radio(.on))
        bluetooth.advance(.seconds(1))
        #expect(bluetooth.status("puck")?.isReady == true)
    }

    @Test func aSleepingButtonIsTriedAtLongerAndLongerPauses() {
        var bluetooth = SimulatedBluetooth([configured])
        bluetooth.add(puck, awake: false)
        bluetooth.send(.radio(.on))
        bluetooth.advance(.seconds(120))
        let attempts = bluetooth.commands.count { $0 == .connect(device: puck.id) }
        #expect((5...8).contains(attempts))
        bluetooth.awake.insert(puck.id)
        bluetooth.advance(.seconds(61))
        #expect(bluetooth.status("puck")?.isReady == true)
    }

    @Test func aTrustedSleepingButtonIsLeftToBlueZ() {
        var bluetooth = SimulatedBluetooth([configured])
        var known = puck
        known.isTrusted = true
        bluetooth.add(known, awake: false)
        bluetooth.holdsConnects = true
        bluetooth.send(.radio(.on))
        bluetooth.send(.completed(.connect(device: puck.id), .timedOut))
        #expect(bluetooth.machine.nextDeadline == bluetooth.now + GATTAccessoryStateMachine.askPauses[0])
        bluetooth.wake(puck.id)
        #expect(bluetooth.status("puck")?.isReady == true)
    }

    @Test func aSubscriptionInProgressIsWaitedFor() {
        var bluetooth = SimulatedBluetooth([configured])
        bluetooth.add(puck)
        bluetooth.failures = Array(
            repeating: ({ $0 == .startNotify(characteristic: puck.key) }, .inProgress), count: 5)
        bluetooth.send(.radio(.on))
        #expect(bluetooth.status("puck")?.isReady == false)
        bluetooth.advance(.seconds(2))
        #expect(bluetooth.status("puck")?.isReady == true)
    }

    @Test func aSubscriptionThatFailsHalfWayIsFollowedByANewConnection() {
        var bluetooth = SimulatedBluetooth([configured])
        bluetooth.add(puck)
        bluetooth.failures = [({ $0 == .startNotify(characteristic: puck.key) }, .other("ATT error: 0x0e"))]
        bluetooth.send(.radio(.on))
        bluetooth.advance(.seconds(1))
        #expect(bluetooth.commands.contains(.disconnect(device: puck.id)))
        #expect(bluetooth.status("puck")?.isReady == true)
    }

    @Test func aButtonThatAlwaysRefusesIsLeftAloneForLongerAndLonger() {
        var bluetooth = SimulatedBluetooth([configured])
        bluetooth.add(puck)
        bluetooth.failures = Array(
            repeating: ({ $0 == .startNotify(characteristic: puck.key) }, .other("no")), count: 10_000)
        bluetooth.send(.radio(.on))
        bluetooth.advance(.seconds(600))
        #expect(bluetooth.commands.count < 60)
        #expect(bluetooth.status("puck")?.problem?.contains("could not be subscribed to (no)") == true)
    }

    @Test func aPuckIsNeverPairedEvenIfItAsks() {
        var bluetooth = SimulatedBluetooth([configured])
        bluetooth.add(puck)
        bluetooth.failures = [({ $0 == .startNotify(characteristic: puck.key) }, .authentication)]
        bluetooth.send(.radio(.on))
        bluetooth.advance(.seconds(60))
        #expect(!bluetooth.commands.contains(.pair(device: puck.id)))
        #expect(bluetooth.status("puck")?.problem?.contains("forbids") == true)
    }

    @Test func aButtonThatWantsPairingIsPairedOnce() {
        let aina = DeviceFacts.button("aina-v2", name: "APTT12")
        var bluetooth = SimulatedBluetooth([AccessoryConfiguration(id: AccessoryID("a"), address: aina.address)])
        bluetooth.add(aina)
        bluetooth.failures = [({ $0 == .startNotify(characteristic: aina.key) }, .authentication)]
        bluetooth.send(.radio(.on))
        #expect(bluetooth.commands.count { $0 == .pair(device: aina.id) } == 1)
        #expect(bluetooth.status("a")?.isReady == true)
        bluetooth.change(aina.id) { $0.battery = 71 }
        #expect(bluetooth.status("a")?.battery == 71)
    }

    @Test func keysThatNoLongerFitAreExplained() {
        var aina = DeviceFacts.button("aina-v2", name: "APTT12")
        aina.isPaired = true
        var bluetooth = SimulatedBluetooth([AccessoryConfiguration(id: AccessoryID("a"), address: aina.address)])
        bluetooth.add(aina)
        bluetooth.failures = [({ $0 == .startNotify(characteristic: aina.key) }, .authentication)]
        bluetooth.send(.radio(.on))
        #expect(bluetooth.status("a")?.problem?.contains("bluetoothctl remove \(aina.address)") == true)
    }
}
