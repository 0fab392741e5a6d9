// What is held when something changes under it: bonds, tests, sleep, a new configuration, a service that ends.
import BlueZ
import MonotonicTime
import Testing

@testable import Accessories
@testable import AccessoryTestSupport

private let puck = DeviceFacts.button("ptt-z")
private let aina = DeviceFacts.button("aina-v2", name: "APTT12")
private let f13: UInt16 = 183

/// A ready AINA. While a key is held it sends its value again and again, with and without 0x80.
private func readyAINA(_ configuration: AccessoryConfiguration? = nil) -> SimulatedBluetooth {
    var world = SimulatedBluetooth([
        configuration ?? AccessoryConfiguration(id: AccessoryID("a"), address: aina.address)
    ])
    world.add(aina)
    world.send(.radio(.on))
    return world
}

@Suite struct AccessoryLossTests {
    // MARK: Nothing begins by itself

    @Test func aKeyThatIsStillHeldBeginsNothingAfterTheAnnouncementOfSleep() {
        var world = readyAINA()
        world.notify(aina.key, [1])
        world.send(.releaseAll(.suspended))
        for value: UInt8 in [0x81, 1, 0x81] { world.notify(aina.key, [value]) }
        #expect(world.intents == ["began a/ptt", "ended a/ptt suspended"])
        world.notify(aina.key, [0])
        world.notify(aina.key, [1])
        #expect(world.intents.last == "began a/ptt")
    }

    @Test func aKeyOfAnInputDeviceThatComesUpInSleepIsPressedAnewAfterIt() {
        var world = SimulatedBluetooth([])
        let pedal = LocalDeviceFacts.keys("/dev/input/event7", accessory: "pedal")
        world.send(.local(.added(pedal)))
        world.key(pedal, f13, true)
        world.send(.releaseAll(.suspended))
        world.key(pedal, f13, false)
        world.key(pedal, f13, true)
        #expect(world.intents == ["began pedal/ptt", "ended pedal/ptt suspended", "began pedal/ptt"])
    }

    @Test func aKeyThatIsStillHeldBeginsNothingAfterANewConfiguration() {
        var world = readyAINA()
        world.notify(aina.key, [1])
        world.send(
            .configure(
                AccessoryConfiguration(
                    id: AccessoryID("a"), address: aina.address, bindings: [.ptt: .emergency])))
        for value: UInt8 in [0x81, 1, 0x81] { world.notify(aina.key, [value]) }
        world.advance(.seconds(5))
        #expect(world.intents == ["began a/ptt", "ended a/ptt removed"])
        #expect(world.happenings.isEmpty)
        world.notify(aina.key, [0])
        world.notify(aina.key, [1])
        world.advance(.seconds(1))
        #expect(world.happenings == ["emergency a/ptt on"])
    }

    @Test func aKeyThatWasHeldWhenItsLinkWasLostIsPressedAnewAfterANewConfiguration() {
        var world = readyAINA()
        world.notify(aina.key, [1])
        world.dropLink(aina.id)
        world.send(.configure(AccessoryConfiguration(id: AccessoryID("a"), address: aina.address)))
        // It is let go meanwhile.
        world.values[aina.key] = [0]
        world.wake(aina.id)
        world.advance(.seconds(5))
        world.notify(aina.key, [1])
        #expect(world.intents == ["began a/ptt", "ended a/ptt disconnected", "began a/ptt"])
    }

    @Test(arguments: ["test", "quiet"])
    func anEmergencyThatWasPressedWhileControlsDidNothingStaysNothing(how: String) {
        var world = readyAINA()
        func set(_ isOn: Bool) {
            world.send(how == "test" ? .test(AccessoryID("a"), isOn) : .quiet(isOn))
        }
        set(true)
        world.notify(aina.key, [2])
        world.advance(.milliseconds(500))
        set(false)
        world.advance(.seconds(5))
        #expect(world.happenings.isEmpty && world.intents.isEmpty)
        world.notify(aina.key, [0])
        world.notify(aina.key, [2])
        world.advance(.seconds(1))
        #expect(world.happenings == ["emergency a/emergency on"])
    }

    @Test func valuesOfTheFormerDeviceAreNothingToTheOneThatTookOver() {
        let second = DeviceFacts.button("ptt-z", number: 2)
        var world = SimulatedBluetooth([
            AccessoryConfiguration(id: AccessoryID("any"), name: NamePattern("PTT*"), profileID: "ptt-z")
        ])
        world.add(puck)
        world.send(.radio(.on))
        world.dropLink(puck.id)
        world.add(second, awake: false)
        world.change(second.id) { $0.isConnected = true }
        world.send(.value(characteristic: puck.key, bytes: [1]))
        world.change(second.id) { $0.servicesResolved = true }
        world.notify(second.key, [1])
        #expect(world.intents == ["began any/ptt"])
    }

    // MARK: Nothing sticks

    @Test func aHeldKeyWhoseDeviceIsNotBondedAnyMoreIsReleased() {
        var remote = puck
        (remote.name, remote.characteristics, remote.services) = ("Remote", [], [])
        (remote.isTrusted, remote.isConnected, remote.isPaired) = (true, true, true)
        var world = SimulatedBluetooth([
            AccessoryConfiguration(
                id: AccessoryID("remote"), address: remote.address, profileID: "foot-switch", isBondedOnly: true)
        ])
        world.add(remote)
        world.send(.radio(.on))
        let keys = LocalDeviceFacts.keys("/dev/input/event5", address: remote.address)
        world.send(.local(.added(keys)))
        world.key(keys, f13, true)
        world.change(remote.id) { $0.isPaired = false }
        #expect(world.intents == ["began remote/ptt", "ended remote/ptt disconnected"])
        world.key(keys, f13, false)
        world.key(keys, f13, true)
        #expect(world.intents.count == 2)
    }

    /// A HID-over-GATT remote that is connected, and the input device that the kernel has of it.
    private struct Remote {
        var device: DeviceFacts
        let keys: LocalDeviceFacts

        init(_ number: Int, accessory: String?) {
            device = .button("ptt-z", number: number, name: "Remote", isTrusted: true, isPaired: true)
            (device.characteristics, device.services, device.isConnected) = ([], [], true)
            keys = .keys(
                "/dev/input/event\(number)", name: "Remote Keyboard", address: device.address, accessory: accessory)
        }
    }

    /// Two of one kind.
    private func remotes(accessory: String? = nil) -> [Remote] { [1, 2].map { Remote($0, accessory: accessory) } }

    @Test func remotesOfOneKindAreAnAccessoryEachAndTheLossOfEachReleases() {
        var world = SimulatedBluetooth([])
        world.send(.radio(.on))
        let remotes = remotes()
        for remote in remotes {
            world.add(remote.device)
            world.send(.local(.added(remote.keys)))
            // A remote has several input devices.
            world.send(
                .local(.added(.keys("\(remote.keys.id)1", name: "Remote Keyboard", address: remote.device.address))))
        }
        let second = remotes[1].device
        #expect(world.machine.statuses.map(\.id.text) == ["Remote Keyboard", second.address])
        world.key(remotes[1].keys, f13, true)
        world.change(remotes[0].device.id) { $0.isConnected = false }
        #expect(world.intents == ["began \(second.address)/ptt"])
        world.change(second.id) { $0.isConnected = false }
        #expect(world.intents == ["began \(second.address)/ptt", "ended \(second.address)/ptt disconnected"])
    }

    @Test(arguments: ["disconnected", "removed", "adapterOff", "bluetoothStopped"])
    func remotesThatAreOneAccessoryHoldUntilTheLastOneIsLost(how: String) {
        var world = SimulatedBluetooth([])
        world.send(.radio(.on))
        let remotes = remotes(accessory: "remotes")
        for remote in remotes {
            world.add(remote.device)
            world.send(.local(.added(remote.keys)))
        }
        for remote in remotes { world.key(remote.keys, f13, true) }
        world.change(remotes[0].device.id) { $0.isConnected = false }
        #expect(world.intents == ["began remotes/ptt"])
        switch how {
        case "removed": world.remove(remotes[1].device.id)
        case "adapterOff": world.send(.radio(.off))
        case "bluetoothStopped": world.stopService()
        default: world.change(remotes[1].device.id) { $0.isConnected = false }
        }
        #expect(world.intents == ["began remotes/ptt", "ended remotes/ptt \(how)"])
    }

    @Test func whatALostRemoteHeldComesUpThoughTheOtherOneOfItsAccessoryIsThere() {
        var world = SimulatedBluetooth([])
        world.send(.radio(.on))
        let remotes = remotes(accessory: "remotes")
        for remote in remotes {
            world.add(remote.device)
            world.send(.local(.added(remote.keys)))
        }
        world.key(remotes[1].keys, f13, true)
        world.change(remotes[1].device.id) { $0.isConnected = false }
        world.key(remotes[0].keys, f13, true)
        world.key(remotes[0].keys, f13, false)
        #expect(
            world.intents == [
                "began remotes/ptt", "ended remotes/ptt disconnected", "began remotes/ptt",
                "ended remotes/ptt released",
            ])
    }

    @Test func theBondOfOneRemoteDoesNotAdmitAnotherOneOfItsAccessory() {
        var world = SimulatedBluetooth([], isBondedOnly: true)
        world.send(.radio(.on))
        let wired = LocalDeviceFacts.keys("/dev/input/event9", accessory: "remotes")
        world.send(.local(.added(wired)))
        let remotes = remotes(accessory: "remotes")
        for remote in remotes {
            world.add(remote.device)
            world.send(.local(.added(remote.keys)))
        }
        world.change(remotes[1].device.id) { $0.isPaired = false }
        #expect(world.status("remotes")?.problem?.contains("not bonded") == true)
        world.key(remotes[1].keys, f13, true)
        world.key(remotes[1].keys, f13, false)
        #expect(world.intents.isEmpty)
        for keys in [wired, remotes[0].keys] {
            world.key(keys, f13, true)
            world.key(keys, f13, false)
        }
        #expect(world.intents.count == 4)
        world.key(remotes[0].keys, f13, true)
        world.change(remotes[0].device.id) { $0.isPaired = false }
        #expect(world.intents.count == 6 && world.intents.last == "ended remotes/ptt disconnected")
    }

    @Test func aSerialPortThatIsUnpluggedReleasesThoughAnotherOfItsAccessoryStays() {
        func port(_ node: String) -> LocalDeviceFacts {
            LocalDeviceFacts(
                id: LocalDeviceID(node), name: "Port", address: nil, device: nil, accessoryName: "mic",
                profileID: "serial", properties: [:], keys: [], isSerialPort: true)
        }
        var world = SimulatedBluetooth(
            [],
            library: ProfileLibrary([
                .read(
                    """
                    id = "serial"
                    title = "Serial"
                    confidence = "capture"
                    sources = ["test"]
                    transport = "serial"
                    [match]
                    names = ["Port"]
                    [[input]]
                    decode = "text"
                    [[input.control]]
                    name = "ptt"
                    pressed = "+PTT=P"
                    released = "+PTT=R"
                    """)
            ]))
        let (first, second) = (port("/dev/ttyUSB0"), port("/dev/ttyUSB1"))
        for port in [first, second] { world.send(.local(.added(port))) }
        world.send(.local(.bytes(first.id, Array("+PTT=P".utf8), at: world.now)))
        world.send(.local(.removed(first.id)))
        #expect(world.intents == ["began mic/ptt", "ended mic/ptt unplugged"])
        world.send(.local(.bytes(second.id, Array("+PTT=P".utf8), at: world.now)))
        #expect(world.intents.count == 3)
    }

    @Test func anEmergencyWhoseGuardEndsWithAnothersTransmissionTransmits() {
        var machine = EmergencyStateMachine(hold: .seconds(1))
        _ = machine.handle(.pressed, at: .zero)
        #expect(machine.handle(.endedBySystem, at: .zero + .seconds(1)) == [.alert(true), .begin])
        #expect(machine.handle(.endedBySystem, at: .zero + .seconds(2)) == [.end])
    }

    @Test func aFloodOfEmergencyClicksIsBounded() {
        var device = DeviceFacts.button("ptt-z", number: 5, name: "B01PTT")
        (device.services, device.characteristics) = ([], [])
        (device.isPaired, device.isConnected) = (true, true)
        var world = SimulatedBluetooth([
            AccessoryConfiguration(id: AccessoryID("b01"), address: device.address, profileID: "xevent-talk")
        ])
        world.add(device)
        world.send(.radio(.on))
        for _ in 0..<1000 { world.stream(device.id, Array("AT+XEVENT=SOS,1".utf8), .handsFree) }
        #expect(!world.happenings.isEmpty)
        #expect(world.happenings.count <= 2 * PressRouter.pressesPerSecondMax)
        #expect(world.intents.count <= 2 * PressRouter.pressesPerSecondMax)
        world.dropLink(device.id)
        #expect(world.machine.isIdle)
    }

    // MARK: What goes on after a loss

    @Test func aWriteThatBluetoothTookWithItDoesNotKeepTheLightDark() {
        let service = BluetoothUUID("127face1-cb21-11e5-93d0-0002a5d5c51b")
        let uuid = BluetoothUUID("127fdead-cb21-11e5-93d0-0002a5d5c51b")
        var lit = aina
        let light = CharacteristicIdentifier(path: "\(aina.id.path)/service0010/char0019")!
        lit.characteristics.append(CharacteristicFacts(id: light, service: service, characteristic: uuid))
        var world = SimulatedBluetooth([AccessoryConfiguration(id: AccessoryID("a"), address: aina.address)])
        world.add(lit)
        world.send(.radio(.on))
        world.holdsWrites = true
        world.send(.feedback(.transmitting))
        world.stopService()
        world.send(.completed(.write(characteristic: light, value: [1]), .serviceGone))
        world.holdsWrites = false
        let count = world.writes.count
        world.startService()
        #expect(world.status("a")?.isReady == true)
        #expect(world.writes.count == count + 1)
    }

    @Test func aLinkThatWasLostWhileItWasAskedForParametersIsAskedAgainWhenItIsBack() {
        var link = LinkTightening()
        #expect(link.handle(.ready(idle: nil), at: .zero).count == 1)
        // Its answer comes when nobody knows whose it is.
        _ = link.handle(.lost, at: .zero)
        #expect(link.handle(.ready(idle: nil), at: .zero).count == 1)
    }

    @Test(arguments: ["taken out", "stopped", "asleep"])
    func aLinkIsRelaxedWhenItsAccessoryIsLeftWhileHeld(how: String) {
        var world = SimulatedBluetooth([AccessoryConfiguration(id: AccessoryID("puck"), address: puck.address)])
        world.add(puck)
        world.send(.radio(.on))
        world.notify(puck.key, [1])
        #expect(world.linkCommands.last == .setLink(device: puck.id, LinkTightening.tight!))
        switch how {
        case "taken out": world.send(.unconfigure(AccessoryID("puck")))
        case "stopped": world.send(.releaseAll(.stopped))
        default: world.send(.releaseAll(.suspended))
        }
        #expect(world.linkCommands.last == .setLink(device: puck.id, LinkTightening.usualIdle!))
    }

    @Test func anAccessoryWhoseInputDeviceIsUnpluggedIsUsedOverBluetoothAgain() {
        var world = readyAINA()
        let keys = LocalDeviceFacts.keys("/dev/input/event5", address: aina.address)
        world.send(.local(.added(keys)))
        #expect(world.status("a")?.transport == .input)
        world.send(.local(.removed(keys.id)))
        world.change(aina.id) { $0.battery = 50 }
        #expect(world.status("a")?.transport == .gatt && world.status("a")?.isReady == true)
    }

    @Test func aDeviceThatBluetoothForgotWhileItWasOffAndThenGoneIsLookedForAgain() {
        var world = SimulatedBluetooth([AccessoryConfiguration(id: AccessoryID("puck"), address: puck.address)])
        world.add(puck)
        world.send(.radio(.on))
        world.send(.radio(.off))
        world.stopService()
        world.devices = [:]
        world.startService()
        world.advance(.seconds(5))
        #expect(world.isScanning)
    }

    @Test func anAccessoryThatWasTakenOutIsNotOpenedWhenAScanHasEnded() {
        var mic = puck
        (mic.services, mic.characteristics, mic.isPaired) = ([], [], true)
        var world = SimulatedBluetooth([])
        world.send(.radio(.on))
        world.add(mic)
        world.holdsScans = true
        world.send(.scan(true))
        world.send(.completed(.startDiscovery, nil))
        world.send(
            .configure(AccessoryConfiguration(id: AccessoryID("mic"), address: mic.address, profileID: "common-spp")))
        world.send(.unconfigure(AccessoryID("mic")))
        world.send(.completed(.stopDiscovery, nil))
        #expect(world.streams.isEmpty)
        #expect(!world.commands.contains(.openStream(device: mic.id, .serialPort)))
    }

    @Test func whatWasTakenUnaskedIsLeftWhenItIsNotTrustedAnyMore() {
        var known = puck
        known.isTrusted = true
        var world = SimulatedBluetooth([], takesKnownDevices: true)
        world.add(known)
        world.send(.radio(.on))
        world.notify(puck.key, [1])
        world.change(puck.id) { $0.isTrusted = false }
        #expect(world.intents == ["began \(puck.address)/ptt", "ended \(puck.address)/ptt removed"])
        #expect(world.machine.statuses.isEmpty)
        world.notify(puck.key, [0])
        world.notify(puck.key, [1])
        #expect(world.intents.count == 2)
        #expect(world.devices[puck.id]?.isTrusted == false)
    }
}
