// The life of accessories against a simulated BlueZ: every way to become ready, and every way to be lost.
import BlueZ
import MonotonicTime
import Testing

@testable import Accessories
@testable import AccessoryTestSupport

private let puck = DeviceFacts.button("ptt-z")
private let configured = AccessoryConfiguration(id: AccessoryID("puck"), address: puck.address)

/// A puck that is connected and subscribed.
private func readyPuck(_ configuration: AccessoryConfiguration = configured) -> SimulatedBluetooth {
    var bluetooth = SimulatedBluetooth([configuration])
    bluetooth.add(puck)
    bluetooth.send(.radio(.on))
    return bluetooth
}

@Suite struct AccessoryLifeTests {
    @Test func aKnownButtonIsConnectedRecognisedTrustedAndSubscribed() {
        let bluetooth = readyPuck()
        #expect(
            bluetooth.commands == [
                .connect(device: puck.id), .autoConnect(services: puck.services), .trust(device: puck.id),
                .startNotify(characteristic: puck.key),
            ])
        #expect(bluetooth.status("puck")?.isReady == true)
        #expect(bluetooth.status("puck")?.profileID == "ptt-z")
        #expect(bluetooth.status("puck")?.problem == nil)
    }

    @Test func anUnknownButtonIsScannedForAndTheScanEndsBeforeTheConnection() throws {
        var bluetooth = SimulatedBluetooth([configured])
        bluetooth.undiscovered = [puck]
        bluetooth.awake = [puck.id]
        bluetooth.send(.radio(.on))
        #expect(bluetooth.status("puck")?.isReady == true)
        let stop = try #require(bluetooth.commands.firstIndex(of: .stopDiscovery))
        let connect = try #require(bluetooth.commands.firstIndex(of: .connect(device: puck.id)))
        #expect(stop < connect)
        #expect(!bluetooth.isScanning)
    }

    @Test func aSearchIsBoundedAndPausesGetLonger() {
        var bluetooth = SimulatedBluetooth([configured])
        bluetooth.send(.radio(.on))
        #expect(bluetooth.isScanning)
        bluetooth.advance(.seconds(31))
        #expect(!bluetooth.isScanning)
        #expect(bluetooth.status("puck")?.problem?.contains("press its button") == true)
        bluetooth.advance(.seconds(15))
        #expect(bluetooth.isScanning)
        bluetooth.commands = []
        bluetooth.advance(.seconds(3600))
        let scans = bluetooth.commands.count { $0 == .startDiscovery }
        #expect((8...16).contains(scans))
    }

    @Test func aScanThatIsRefusedIsNotAskedForInACircle() {
        var bluetooth = SimulatedBluetooth([configured])
        bluetooth.failures = Array(repeating: ({ $0 == .startDiscovery }, .notReady), count: 1000)
        bluetooth.send(.radio(.on))
        bluetooth.advance(.seconds(600))
        #expect(bluetooth.commands.count < 10)
    }

    @Test func aPressIsAnIntentWithTheTimeOfItsArrival() {
        var bluetooth = readyPuck()
        bluetooth.advance(.seconds(5))
        bluetooth.notify(puck.key, [1])
        let source = AccessorySource(accessory: AccessoryID("puck"), control: .ptt)
        #expect(
            bluetooth.events.contains(.intent(.transmitBegan(source, .normal), at: .zero + .seconds(5))))
        #expect(bluetooth.status("puck")?.isHeld == true)
        bluetooth.notify(puck.key, [0])
        #expect(bluetooth.intents == ["began puck/ptt", "ended puck/ptt released"])
    }

    @Test func aDropWhileHeldReleasesAndTheButtonComesBackByItself() {
        var bluetooth = readyPuck()
        bluetooth.notify(puck.key, [1])
        bluetooth.dropLink(puck.id)
        #expect(bluetooth.intents == ["began puck/ptt", "ended puck/ptt disconnected"])
        bluetooth.commands = []
        bluetooth.advance(.seconds(600))
        // BlueZ reconnects; nothing of ours runs but that it is asked for now and then.
        #expect(bluetooth.commands.allSatisfy { $0 == .connect(device: puck.id) } && bluetooth.commands.count <= 12)
        bluetooth.wake(puck.id)
        bluetooth.notify(puck.key, [1])
        bluetooth.notify(puck.key, [0])
        #expect(bluetooth.intents.suffix(2) == ["began puck/ptt", "ended puck/ptt released"])
    }

    @Test func aPressRightAfterAReconnectionCountsThoughTheSubscriptionIsNotConfirmedAgain() {
        var bluetooth = readyPuck()
        bluetooth.dropLink(puck.id)
        bluetooth.awake.insert(puck.id)
        // The link is up, services are not resolved: BlueZ has re-armed the notifications.
        bluetooth.change(puck.id) { $0.isConnected = true }
        bluetooth.notify(puck.key, [1])
        #expect(bluetooth.intents == ["began puck/ptt"])
        bluetooth.change(puck.id) { $0.servicesResolved = true }
        bluetooth.notify(puck.key, [0])
        #expect(bluetooth.intents == ["began puck/ptt", "ended puck/ptt released"])
    }

    @Test(arguments: ["adapter off", "service gone", "removed", "services gone", "characteristic gone"])
    func everyLossWhileHeldReleases(loss: String) {
        var bluetooth = readyPuck()
        bluetooth.notify(puck.key, [1])
        let reason: String
        switch loss {
        case "adapter off":
            bluetooth.send(.radio(.off))
            reason = "adapterOff"
        case "service gone":
            bluetooth.stopService()
            reason = "bluetoothStopped"
        case "removed":
            bluetooth.remove(puck.id)
            reason = "removed"
        case "services gone":
            bluetooth.change(puck.id) { $0.servicesResolved = false }
            reason = "disconnected"
        default:
            bluetooth.change(puck.id) { $0.characteristics = [] }
            reason = "disconnected"
        }
        #expect(bluetooth.intents == ["began puck/ptt", "ended puck/ptt \(reason)"])
        #expect(bluetooth.status("puck")?.isHeld == false)
        #expect(bluetooth.status("puck")?.name == "PTT-Z")
        #expect(bluetooth.status("puck")?.address == puck.address)
    }

    @Test func bluetoothdRestartingIsSurvived() {
        var bluetooth = readyPuck()
        bluetooth.stopService()
        #expect(bluetooth.status("puck")?.problem?.contains("systemctl start bluetooth") == true)
        bluetooth.advance(.seconds(10))
        bluetooth.commands = []
        bluetooth.startService()
        #expect(bluetooth.commands.contains(.autoConnect(services: puck.services)))
        #expect(!bluetooth.commands.contains(.startDiscovery))
        bluetooth.notify(puck.key, [1])
        #expect(bluetooth.intents == ["began puck/ptt"])
    }

    @Test func anAdapterThatComesBackIsUsedAgain() {
        var bluetooth = readyPuck()
        bluetooth.send(.radio(.off))
        bluetooth.dropLink(puck.id)
        #expect(bluetooth.status("puck")?.problem?.contains("rfkill") == true)
        bluetooth.awake.insert(puck.id)
        bluetooth.send(.radio(.on))
        #expect(bluetooth.status("puck")?.isReady == true)
    }

    @Test func flappingServicesEndInASubscription() {
        var bluetooth = readyPuck()
        bluetooth.change(puck.id) { $0.servicesResolved = false }
        bluetooth.change(puck.id) {
            $0.servicesResolved = true
            $0.characteristics = []
        }
        #expect(bluetooth.status("puck")?.isReady == false)
        bluetooth.advance(.seconds(1))
        bluetooth.change(puck.id) { $0.characteristics = puck.characteristics }
        #expect(bluetooth.status("puck")?.isReady == true)
        #expect(!bluetooth.commands.contains(.disconnect(device: puck.id)))
    }

    @Test func aNameThatVanishesOnConnectingStillCounts() {
        let elet = DeviceFacts.button("anytone-elet", name: "ELET-PTT60B02A")
        var bluetooth = SimulatedBluetooth([AccessoryConfiguration(id: AccessoryID("e"), address: elet.address)])
        bluetooth.add(elet, awake: false)
        bluetooth.send(.radio(.on))
        bluetooth.change(elet.id) { $0.name = nil }
        bluetooth.change(elet.id) { $0.isConnected = true }
        bluetooth.change(elet.id) { $0.servicesResolved = true }
        #expect(bluetooth.status("e")?.profileID == "anytone-elet")
        bluetooth.notify(elet.key, Array("BATT".utf8) + [40])
        #expect(bluetooth.status("e")?.battery == 40)
        // The same level is news on the next connection.
        bluetooth.dropLink(elet.id)
        #expect(bluetooth.status("e")?.battery == nil)
        bluetooth.change(elet.id) { $0.isConnected = true }
        bluetooth.change(elet.id) { $0.servicesResolved = true }
        bluetooth.notify(elet.key, Array("BATT".utf8) + [40])
        #expect(bluetooth.status("e")?.battery == 40)
    }

    @Test func aServiceThatIsNotAdvertisedIsFoundAfterConnecting() {
        var mic = DeviceFacts.button("td-q2l", name: nil)
        let services = mic.services
        mic.services = []
        var bluetooth = SimulatedBluetooth([AccessoryConfiguration(id: AccessoryID("m"), address: mic.address)])
        bluetooth.add(mic)
        bluetooth.send(.radio(.on))
        #expect(bluetooth.status("m")?.profileID == "td-q2l")
        #expect(bluetooth.registered == services)
    }

    @Test func anOptionalCharacteristicThatComesLateIsSubscribedWithoutReleasingTheOthers() {
        let whole = DeviceFacts.button("micro-bit", name: "BBC micro:bit [zuvop]")
        var half = whole
        half.characteristics.removeLast()
        var bluetooth = SimulatedBluetooth([AccessoryConfiguration(id: AccessoryID("bit"), address: whole.address)])
        bluetooth.add(half)
        bluetooth.send(.radio(.on))
        #expect(bluetooth.status("bit")?.isReady == true)
        bluetooth.notify(whole.characteristics[0].id, [1])
        bluetooth.change(whole.id) { $0.characteristics = whole.characteristics }
        bluetooth.notify(whole.characteristics[1].id, [1])
        bluetooth.notify(whole.characteristics[0].id, [0])
        bluetooth.notify(whole.characteristics[1].id, [0])
        #expect(bluetooth.intents == ["began bit/ptt", "ended bit/ptt2 released"])
    }

    @Test func twoHeldButtonsAreOneTransmissionAndLosingOneKeepsIt() {
        let second = DeviceFacts.button("ptt-z", number: 2)
        var bluetooth = SimulatedBluetooth([
            configured, AccessoryConfiguration(id: AccessoryID("other"), address: second.address),
        ])
        bluetooth.add(puck)
        bluetooth.add(second)
        bluetooth.send(.radio(.on))
        bluetooth.notify(puck.key, [1])
        bluetooth.notify(second.key, [1])
        bluetooth.dropLink(puck.id)
        #expect(bluetooth.intents == ["began puck/ptt"])
        bluetooth.notify(second.key, [0])
        #expect(bluetooth.intents == ["began puck/ptt", "ended other/ptt released"])
    }

    @Test func afterAnEndFromElsewhereAFreshPressIsNeeded() {
        var bluetooth = readyPuck()
        bluetooth.notify(puck.key, [1])
        bluetooth.send(.transmissionEnded)
        bluetooth.notify(puck.key, [1])
        bluetooth.notify(puck.key, [0])
        #expect(bluetooth.intents == ["began puck/ptt"])
        bluetooth.notify(puck.key, [1])
        #expect(bluetooth.intents == ["began puck/ptt", "began puck/ptt"])
    }

    @Test func sleepReleasesEverything() {
        var bluetooth = readyPuck()
        bluetooth.notify(puck.key, [1])
        bluetooth.send(.releaseAll(.suspended))
        #expect(bluetooth.intents == ["began puck/ptt", "ended puck/ptt suspended"])
    }

    @Test func aTrustedDeviceThatFitsAProfileIsTakenWithoutConfiguration() {
        var known = puck
        known.isTrusted = true
        var headset = puck
        headset.id = DeviceIdentifier(path: "/org/bluez/hci0/dev_00_11_22_33_44_99")!
        headset.name = "Headset"
        headset.isTrusted = true
        var stranger = DeviceFacts.button("ptt-z", number: 3)
        stranger.isTrusted = false
        var bluetooth = SimulatedBluetooth([], takesKnownDevices: true)
        for device in [known, headset, stranger] { bluetooth.add(device) }
        bluetooth.send(.radio(.on))
        #expect(bluetooth.machine.statuses.map(\.id.text) == [puck.address])
        #expect(bluetooth.status(puck.address)?.isReady == true)
        bluetooth.remove(known.id)
        #expect(bluetooth.machine.statuses.isEmpty)
        #expect(bluetooth.events.last == .removed(AccessoryID(puck.address)))
    }

    @Test func aSecondButtonOfTheSameNameTakesOverWhenTheFirstIsAway() {
        let second = DeviceFacts.button("ptt-z", number: 2)
        var bluetooth = SimulatedBluetooth([
            AccessoryConfiguration(id: AccessoryID("any"), name: NamePattern("PTT*"), profileID: "ptt-z")
        ])
        bluetooth.add(puck)
        bluetooth.send(.radio(.on))
        bluetooth.add(second, awake: false)
        #expect(bluetooth.status("any")?.address == puck.address)
        bluetooth.dropLink(puck.id)
        bluetooth.change(second.id) {
            $0.isConnected = true
            $0.servicesResolved = true
        }
        #expect(bluetooth.status("any")?.address == second.address)
        #expect(bluetooth.status("any")?.isReady == true)
    }

    @Test func aProfileThatDoesNotExistIsSaidAndNothingIsTried() {
        var bluetooth = SimulatedBluetooth([
            AccessoryConfiguration(id: AccessoryID("puck"), address: puck.address, profileID: "pttz")
        ])
        bluetooth.add(puck)
        bluetooth.send(.radio(.on))
        #expect(bluetooth.commands.isEmpty)
        #expect(bluetooth.status("puck")?.problem?.contains("no profile \"pttz\"") == true)
    }

    @Test(arguments: [
        (BlueZError.Kind.connectionAborted, "le-connection-abort-by-local", BluetoothFailure.abortedLocally),
        (.unreachable, "Host is down", .timedOut), (.notPermitted, "Notify acquired", .notPermitted),
        (.notPermitted, "Not paired", .authentication), (.noSuchObject, "", .doesNotExist),
        (.failed, "Operation failed with ATT error: 0x0e", .other("Operation failed with ATT error: 0x0e")),
    ])
    func answersOfBlueZAreToldApart(kind: BlueZError.Kind, message: String, failure: BluetoothFailure) {
        #expect(BluetoothFailure(BlueZError(kind, message, during: "test")) == failure)
    }
}
