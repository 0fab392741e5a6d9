// Accessories of every transport in one fleet: local devices, streams, refused families, bonds, and changes while it runs.
import BlueZ
import MonotonicTime
import Testing
import Vocabulary

@testable import Accessories
@testable import AccessoryTestSupport

private let puck = DeviceFacts.button("ptt-z")
private let f13: UInt16 = 183

private func streamDevice(number: Int = 7, isPaired: Bool = true) -> DeviceFacts {
    DeviceFacts(
        id: DeviceIdentifier(path: "/org/bluez/hci0/dev_00_11_22_33_44_0\(number)")!,
        address: "00:11:22:33:44:0\(number)", name: "Microphone", services: [BluetoothUUID("1101")],
        isPaired: isPaired, isTrusted: true, isConnected: false, servicesResolved: false, battery: nil,
        characteristics: [])
}

@Suite struct AccessoryFleetTests {
    // MARK: Local devices

    @Test func aTaggedInputDeviceIsAnAccessoryAtOnce() {
        var world = SimulatedBluetooth([])
        let pedal = LocalDeviceFacts.keys("/dev/input/event7")
        world.send(.local(.added(pedal)))
        #expect(world.status("Foot Switch")?.isReady == true)
        #expect(world.status("Foot Switch")?.transport == .input)
        world.key(pedal, f13, true)
        #expect(world.status("Foot Switch")?.isHeld == true)
        world.key(pedal, f13, false)
        #expect(world.intents == ["began Foot Switch/ptt", "ended Foot Switch/ptt released"])
    }

    @Test func unplugReleasesAndTheDeviceComesBackAsTheSameAccessory() {
        var world = SimulatedBluetooth([])
        let pedal = LocalDeviceFacts.keys("/dev/input/event7", accessory: "pedal")
        world.send(.local(.added(pedal)))
        world.key(pedal, f13, true)
        world.send(.local(.removed(pedal.id)))
        #expect(world.intents == ["began pedal/ptt", "ended pedal/ptt unplugged"])
        #expect(world.events.last == .removed(AccessoryID("pedal")))
        let again = LocalDeviceFacts.keys("/dev/input/event9", accessory: "pedal")
        world.send(.local(.added(again)))
        world.key(again, f13, true)
        world.key(again, f13, false)
        #expect(world.intents.count == 4)
        #expect(world.machine.statuses.map(\.id.text) == ["pedal"])
    }

    @Test func aConfiguredAccessoryIsJoinedByTheNameInTheRule() {
        var world = SimulatedBluetooth([
            AccessoryConfiguration(id: AccessoryID("pedal"), profileID: "foot-switch", gesture: .toggle)
        ])
        #expect(world.status("pedal")?.problem?.contains("udev rule") == true)
        let pedal = LocalDeviceFacts.keys("/dev/input/event7", accessory: "pedal", profile: nil)
        world.send(.local(.added(pedal)))
        #expect(world.status("pedal")?.problem == nil)
        for isDown in [true, false, true, false] { world.key(pedal, f13, isDown) }
        #expect(world.intents == ["began pedal/ptt", "ended pedal/ptt released"])
        world.send(.local(.removed(pedal.id)))
        #expect(world.status("pedal")?.isConnected == false)
    }

    @Test func aTaggedDeviceWithoutAProfileSaysWhatToWrite() {
        var world = SimulatedBluetooth([])
        world.send(.local(.added(.keys("/dev/input/event1", name: "Thing", profile: nil, keys: [30]))))
        #expect(world.status("Thing")?.isReady == false)
        #expect(world.status("Thing")?.problem?.contains("ENV{PTTD_PROFILE}") == true)
        world.send(.local(.added(.keys("/dev/input/event2", name: "Other", profile: "no-such"))))
        #expect(world.status("Other")?.problem?.contains("no profile \"no-such\"") == true)
        world.send(.local(.added(.keys("/dev/input/event3", name: "Third", profile: "ptt-z"))))
        #expect(world.status("Third")?.problem?.contains("not one of an input device") == true)
    }

    @Test func aDeviceThatCannotBeOpenedSaysSoUntilItCan() {
        var world = SimulatedBluetooth([])
        let pedal = LocalDeviceFacts.keys("/dev/input/event7", accessory: "pedal")
        world.send(.local(.problem(pedal.id, "permission denied")))
        #expect(world.notes == ["/dev/input/event7: permission denied"])
        world.send(.local(.added(pedal)))
        world.send(.local(.problem(pedal.id, "cannot be grabbed")))
        #expect(world.status("pedal")?.problem == "cannot be grabbed")
        world.send(.local(.problem(pedal.id, nil)))
        #expect(world.status("pedal")?.problem == nil)
    }

    @Test func aKeyOfTwoDevicesIsUpWhenBothAre() {
        var world = SimulatedBluetooth([])
        let left = LocalDeviceFacts.keys("/dev/input/event1", accessory: "pedals")
        let right = LocalDeviceFacts.keys("/dev/input/event2", accessory: "pedals")
        for device in [left, right] { world.send(.local(.added(device))) }
        world.key(left, f13, true)
        world.key(right, f13, true)
        world.key(left, f13, false)
        #expect(world.intents == ["began pedals/ptt"])
        world.send(.local(.removed(right.id)))
        #expect(world.intents == ["began pedals/ptt", "ended pedals/ptt unplugged"])
        #expect(world.status("pedals")?.isReady == true)
    }

    @Test func theMediaPlayerIsOneAccessoryThatToggles() {
        var world = SimulatedBluetooth([])
        let player = LocalDeviceFacts.keys(
            "media-player", name: "Media player (AVRCP)", profile: nil, keys: [163, 164, 165, 166, 200, 201])
        world.send(.local(.added(player)))
        #expect(world.status("media-player")?.problem == nil)
        for _ in 0..<2 {
            world.key(player, 200, true)
            world.key(player, 200, false)
            world.advance(.seconds(2))
        }
        #expect(world.intents == ["began media-player/ptt", "ended media-player/ptt released"])
    }

    @Test func aHIDButtonIsOneAccessoryWithItsBluetoothDeviceAndItsLossReleases() {
        var remote = puck
        (remote.name, remote.characteristics, remote.services) = ("Remote", [], [])
        (remote.isTrusted, remote.isConnected, remote.battery) = (true, true, 80)
        var world = SimulatedBluetooth([
            AccessoryConfiguration(id: AccessoryID("remote"), address: remote.address, profileID: "volume-remote")
        ])
        world.add(remote)
        world.send(.radio(.on))
        let keys = LocalDeviceFacts.keys(
            "/dev/input/event5", name: "Remote Keyboard", address: remote.address, profile: nil, keys: [114, 115])
        world.send(.local(.added(keys)))
        #expect(world.status("remote")?.isReady == true)
        #expect(world.status("remote")?.battery == 80)
        world.key(keys, 115, true)
        // BlueZ keeps the input device of a HID-over-GATT button whose link is gone: no release comes from the kernel.
        world.change(remote.id) { $0.isConnected = false }
        #expect(world.intents == ["began remote/ptt", "ended remote/ptt disconnected"])
        world.key(keys, 115, false)
        world.change(remote.id) { $0.isConnected = true }
        world.key(keys, 115, true)
        #expect(world.intents.count == 3)
        #expect(world.commands.allSatisfy { $0 == .startDiscovery || $0 == .stopDiscovery })
    }

    // MARK: Streams

    @Test func aStreamIsAnAccessoryLikeOthers() {
        let device = streamDevice()
        var world = SimulatedBluetooth([
            AccessoryConfiguration(id: AccessoryID("mic"), address: device.address, profileID: "common-spp")
        ])
        world.add(device)
        world.send(.radio(.on))
        #expect(world.status("mic")?.isReady == true)
        #expect(world.status("mic")?.transport == .spp)
        world.stream(device.id, Array("+PTT=P".utf8))
        world.closeStream(device.id)
        #expect(world.intents == ["began mic/ptt", "ended mic/ptt disconnected"])
        world.advance(.seconds(60))
        world.stream(device.id, Array("+PTT=P+PTT=R".utf8))
        #expect(world.intents.count == 4)
        world.send(.unconfigure(AccessoryID("mic")))
        #expect(world.streams.isEmpty)
    }

    // MARK: Refusals and bonds

    @Test func aRefusedFamilyIsAnsweredWithWhyAndUsedOnlyWhenNamed() {
        var tag = DeviceFacts.button("itag", name: "iTAG")
        tag.isTrusted = true
        var world = SimulatedBluetooth([], takesKnownDevices: true)
        world.add(tag)
        world.send(.radio(.on))
        #expect(world.status(tag.address)?.problem?.contains("clicks only") == true)
        #expect(world.commands.isEmpty)
        world.send(.configure(AccessoryConfiguration(id: AccessoryID("tag"), address: tag.address, profileID: "itag")))
        #expect(world.status("tag")?.isReady == true)
        #expect(world.machine.statuses.count == 1)
        world.notify(tag.key, [1])
        world.notify(tag.key, [1])
        #expect(world.intents == ["began tag/ptt", "ended tag/ptt released"])
    }

    @Test func aFamilyThatIsRefusedOnceItsNameIsKnownIsReleased() {
        var tag = DeviceFacts.button("ptt-z", name: "PTT-Z")
        var world = SimulatedBluetooth([AccessoryConfiguration(id: AccessoryID("tag"), address: tag.address)])
        world.add(tag)
        world.send(.radio(.on))
        world.notify(tag.key, [1])
        world.change(tag.id) { $0.name = "iTAG" }
        #expect(world.intents == ["began tag/ptt", "ended tag/ptt disconnected"])
        #expect(world.status("tag")?.isReady == false)
        tag = world.devices[tag.id]!
        world.notify(tag.key, [1])
        #expect(world.intents.count == 2)
    }

    @Test func anUnbondedDeviceIsNotUsedWhereBondsAreAskedFor() {
        let aina = DeviceFacts.button("aina-v2", name: "APTT12")
        var world = SimulatedBluetooth([
            AccessoryConfiguration(id: AccessoryID("a"), address: aina.address, isBondedOnly: true)
        ])
        var connected = aina
        (connected.isConnected, connected.servicesResolved) = (true, true)
        world.add(connected)
        world.send(.radio(.on))
        #expect(world.status("a")?.problem?.contains("not bonded") == true)
        #expect(world.notifying.isEmpty)
        world.send(.value(characteristic: aina.key, bytes: [1]))
        #expect(world.intents.isEmpty)
        world.change(aina.id) { ($0.isPaired, $0.isPairedForNow) = (true, true) }
        #expect(world.status("a")?.isReady == false)
        world.change(aina.id) { $0.isPairedForNow = false }
        #expect(world.status("a")?.isReady == true)
        #expect(world.status("a")?.isBonded == true)
        world.notify(aina.key, [1])
        world.change(aina.id) { $0.isPaired = false }
        #expect(world.intents == ["began a/ptt", "ended a/ptt disconnected"])
        world.notify(aina.key, [1])
        #expect(world.intents.count == 2)
    }

    @Test func bondsAreAskedOfDevicesTakenUnaskedAndOfInputDevicesButNotOfWiredOnes() {
        var known = puck
        known.isTrusted = true
        var world = SimulatedBluetooth([], takesKnownDevices: true, isBondedOnly: true)
        world.add(known)
        world.send(.radio(.on))
        #expect(world.status(known.address)?.problem?.contains("bonded-only") == true)
        let wired = LocalDeviceFacts.keys("/dev/input/event1", name: "Wired")
        let wireless = LocalDeviceFacts.keys("/dev/input/event2", name: "Air", address: "00:11:22:33:44:09")
        for device in [wired, wireless] {
            world.send(.local(.added(device)))
            world.key(device, f13, true)
            world.key(device, f13, false)
        }
        #expect(world.intents == ["began Wired/ptt", "ended Wired/ptt released"])
        #expect(world.status("Air")?.problem?.contains("bonded-only") == true)
    }

    // MARK: Two adapters

    @Test(arguments: [true, false]) func aDeviceThatTwoAdaptersKnowIsOneAccessory(byAddress: Bool) {
        var (first, second) = (puck, puck)
        second.id = DeviceIdentifier(path: "/org/bluez/hci1/dev_00_11_22_33_44_01")!
        (first.isTrusted, second.isTrusted) = (true, true)
        var world = SimulatedBluetooth(
            [
                AccessoryConfiguration(
                    id: AccessoryID("vest"), address: byAddress ? puck.address : nil,
                    name: byAddress ? nil : NamePattern("PTT-Z*"))
            ], takesKnownDevices: true)
        world.add(first)
        world.send(.radio(.on))
        world.add(second)
        #expect(world.machine.statuses.map(\.id.text) == ["vest"])
        #expect(world.machine.links.map(\.device?.id) == [first.id])
        world.remove(first.id)
        #expect(world.machine.statuses.map(\.id.text) == ["vest"])
        #expect(world.machine.links.map(\.device?.id) == [second.id])
    }

    // MARK: Changes while it runs

    @Test func anAccessoryThatIsConfiguredAnewReleasesAndWorksOn() {
        var world = SimulatedBluetooth([AccessoryConfiguration(id: AccessoryID("puck"), address: puck.address)])
        world.add(puck)
        world.send(.radio(.on))
        world.notify(puck.key, [1])
        world.send(
            .configure(
                AccessoryConfiguration(id: AccessoryID("puck"), address: puck.address, bindings: [.ptt: .channelUp])))
        #expect(world.intents == ["began puck/ptt", "ended puck/ptt removed"])
        #expect(world.status("puck")?.actions[.ptt] == .channelUp)
        world.notify(puck.key, [0])
        world.notify(puck.key, [1])
        #expect(world.happenings == ["channel-up by puck/ptt"])
        world.send(.unconfigure(AccessoryID("puck")))
        #expect(world.machine.statuses.isEmpty)
        world.notify(puck.key, [0])
        world.notify(puck.key, [1])
        #expect(world.happenings.count == 1)
    }

    @Test func aLearnedProfileIsUsedForTheDeviceThatHadNone() {
        var world = SimulatedBluetooth([])
        let thing = LocalDeviceFacts.keys("/dev/input/event1", name: "Thing", profile: nil, keys: [30])
        world.send(.local(.added(thing)))
        #expect(world.status("Thing")?.isReady == false)
        world.send(
            .profile(
                .read(
                    """
                    id = "thing"
                    title = "Thing"
                    confidence = "capture"
                    sources = ["learned"]
                    transport = "input"
                    [match]
                    names = ["Thing"]
                    [[input]]
                    decode = "keys"
                    [[input.control]]
                    name = "ptt"
                    keys = ["KEY_A"]
                    """)))
        #expect(world.status("Thing")?.profileID == "thing")
        world.key(thing, 30, true)
        world.key(thing, 30, false)
        #expect(world.intents.count == 2)
    }

    @Test func accessoriesAreBounded() {
        var world = SimulatedBluetooth([])
        for number in 0..<100 {
            world.send(.local(.added(.keys("/dev/input/event\(number)", name: "Pedal \(number)"))))
            world.send(.configure(AccessoryConfiguration(id: AccessoryID("c\(number)"), address: puck.address)))
        }
        #expect(world.machine.statuses.count == AccessorySettings.accessoriesMax)
        #expect(world.notes.contains { $0.contains("limit") })
    }

    @Test func aDeviceThatIsGoneIsShownByItsNameUntilAnotherTakesItsPlace() {
        var world = SimulatedBluetooth([AccessoryConfiguration(id: AccessoryID("vest"), name: NamePattern("PTT-Z*"))])
        world.send(.radio(.on))
        let first = DeviceFacts.button("ptt-z", name: "PTT-Z 1")
        world.add(first)
        world.remove(first.id)
        #expect(world.status("vest")?.name == "PTT-Z 1" && world.status("vest")?.address == first.address)
        let second = DeviceFacts.button("ptt-z", number: 2, name: "PTT-Z 2")
        world.add(second)
        #expect(world.status("vest")?.name == "PTT-Z 2" && world.status("vest")?.address == second.address)
    }

    @Test func aKnownProblemIsKeptWhenNoMoreProblemsAreKept() throws {
        var registry = DeviceRegistry()
        let devices = (0...DeviceRegistry.localDevicesMax).map { LocalDeviceID("/dev/input/event\($0)") }
        for device in devices { _ = registry.setProblem("no permission", of: device) }
        #expect(registry.problem(of: devices[0]) == "no permission")
        let last = try #require(devices.last)
        #expect(registry.problem(of: last) == nil)
        _ = registry.setProblem("taken by another program", of: devices[0])
        #expect(registry.problem(of: devices[0]) == "taken by another program")
        // One that is over makes room for another.
        _ = registry.setProblem(nil, of: devices[1])
        _ = registry.setProblem("no permission", of: last)
        #expect(registry.problem(of: last) == "no permission")
    }

    @Test func aPersonsScanRunsUntilItIsEndedAndPausesForConnections() {
        var world = SimulatedBluetooth([])
        world.send(.radio(.on))
        #expect(!world.isScanning)
        world.send(.scan(true))
        world.advance(.seconds(300))
        #expect(world.isScanning)
        world.send(.connecting(true))
        #expect(!world.isScanning)
        world.send(.connecting(false))
        #expect(world.isScanning)
        world.send(.scan(false))
        #expect(!world.isScanning)
    }
}
