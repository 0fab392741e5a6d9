// The tree: what BlueZ says in, events out.
import BusTestSupport
import DBus
import MonotonicTime
import TestSupport
import Testing

@testable import BlueZ

private let adapter = AdapterIdentifier(path: "/org/bluez/hci0")!
private let device = DeviceIdentifier(path: "/org/bluez/hci0/dev_C4_11_22_33_44_55")!
private let characteristic = CharacteristicIdentifier(path: "\(device.path)/service000a/char000b")!
private let service = characteristic.service

private func objects(connected: Bool = false, resolved: Bool = false)
    -> [DBusObjectPath: [String: [String: DBusValue]]]
{
    [
        "/org/bluez": ["org.bluez.AgentManager1": [:]],
        adapter.path: ["org.bluez.Adapter1": ["Address": .string("00:00:00:00:00:01"), "Powered": .boolean(true)]],
        device.path: [
            "org.bluez.Device1": [
                "Address": .string("C4:11:22:33:44:55"), "Connected": .boolean(connected),
                "ServicesResolved": .boolean(resolved), "Trusted": .boolean(true), "Paired": .boolean(false),
                "UUIDs": .strings(["0000ffe0-0000-1000-8000-00805f9b34fb", "rubbish"]), "RSSI": .int16(-40),
                "ManufacturerData": .dictionary(
                    key: .uint16, value: .variant, [.uint16(0x5045): .variant(.bytes([1, 2]))]),
            ],
            "org.bluez.Battery1": ["Percentage": .byte(50)],
        ],
        service.path: ["org.bluez.GattService1": ["UUID": .string("ffe0"), "Primary": .boolean(true)]],
        characteristic.path: [
            "org.bluez.GattCharacteristic1": [
                "UUID": .string("ffe1"), "Flags": .strings(["notify", "encrypt-read", "new-flag"]),
                "Value": .bytes([9]),
            ]
        ],
    ]
}

private func kinds(_ events: [BlueZEvent]) -> [String] {
    events.map { String("\($0)".prefix { $0 != "(" }) }
}

@Suite struct TreeTests {
    @Test func `what exists at start is reported from the top down, links and services included`() throws {
        var tree = BlueZTree()
        let events = tree.load(objects(connected: true, resolved: true))
        #expect(
            kinds(events) == [
                "adapterAdded", "adapterPowered", "deviceAdded", "deviceConnected", "servicesResolved",
                "batteryChanged", "characteristicAdded",
            ])
        let known = try #require(tree.devices[device])
        #expect(known.services == ["ffe0"])
        #expect(known.manufacturerData == [0x5045: [1, 2]])
        #expect(known.rssi == -40)
        #expect(known.batteryPercentage == 50)
        #expect(known.isTrusted)
        let button = try #require(tree.characteristics[characteristic])
        #expect(button.service == "ffe0")
        #expect(button.writeKind == .request)
        _ = tree.propertiesChanged(
            characteristic.path, BlueZName.characteristic,
            ["Flags": .strings(["notify", "encrypt-write", "write-without-response"])], invalidated: [], at: .zero)
        #expect(tree.characteristics[characteristic]?.writeKind == .command)
    }

    @Test func `every value is reported with its time, also one that is equal to the last`() {
        var tree = BlueZTree()
        _ = tree.load(objects(connected: true))
        for (index, value) in [[UInt8(1)], [1], [], [0]].enumerated() {
            let time = Instant(nanoseconds: Int64(index))
            #expect(
                tree.propertiesChanged(
                    characteristic.path, "org.bluez.GattCharacteristic1", ["Value": .bytes(value)], invalidated: [],
                    at: time) == [.valueChanged(characteristic, value, at: time)])
        }
    }

    @Test func `a characteristic waits for its service to be known`() {
        var tree = BlueZTree()
        var all = objects()
        all[service.path] = nil
        #expect(!kinds(tree.load(all)).contains("characteristicAdded"))
        #expect(
            tree.propertiesChanged(
                characteristic.path, "org.bluez.GattCharacteristic1", ["Value": .bytes([1])], invalidated: [], at: .zero
            )
            .isEmpty)
        let events = tree.interfacesAdded(service.path, ["org.bluez.GattService1": ["UUID": .string("ffe0")]])
        #expect(kinds(events) == ["characteristicAdded"])
    }

    @Test func `losing a link tells its reason when BlueZ gives one`() {
        var tree = BlueZTree()
        _ = tree.load(objects(connected: true, resolved: true))
        tree.disconnecting(device.path, reason: "org.bluez.Reason.Timeout")
        let lost: [String: DBusValue] = ["Connected": .boolean(false), "ServicesResolved": .boolean(false)]
        var events = tree.propertiesChanged(device.path, "org.bluez.Device1", lost, invalidated: [], at: .zero)
        #expect(events.suffix(2) == [.servicesResolved(device, false), .deviceDisconnected(device, .timeout)])
        events = tree.propertiesChanged(
            device.path, "org.bluez.Device1", ["Connected": .boolean(true)], invalidated: ["RSSI"], at: .zero)
        #expect(kinds(events) == ["deviceChanged", "deviceConnected"])
        #expect(tree.devices[device]?.rssi == nil)
        events = tree.propertiesChanged(device.path, "org.bluez.Device1", lost, invalidated: [], at: .zero)
        #expect(events.last == .deviceDisconnected(device, .unknown))
        events = tree.propertiesChanged(device.path, "org.bluez.Device1", lost, invalidated: [], at: .zero)
        #expect(events.isEmpty)
    }

    @Test func `an adapter that goes takes everything with it, and ends links first`() {
        var tree = BlueZTree()
        _ = tree.load(objects(connected: true, resolved: true))
        let events = tree.interfacesRemoved(adapter.path, ["org.bluez.Adapter1", "org.bluez.GattManager1"])
        #expect(
            events == [
                .servicesResolved(device, false), .deviceDisconnected(device, .removed),
                .characteristicRemoved(characteristic), .deviceRemoved(device), .adapterRemoved(adapter),
            ])
        #expect(tree.devices.isEmpty && tree.characteristics.isEmpty && tree.services.isEmpty)
        // BlueZ then removes the children one by one as well.
        #expect(tree.interfacesRemoved(device.path, ["org.bluez.Device1"]).isEmpty)
    }

    @Test func `a battery that goes is unknown again`() {
        var tree = BlueZTree()
        _ = tree.load(objects())
        #expect(tree.interfacesRemoved(device.path, ["org.bluez.Battery1"]) == [.batteryChanged(device, nil)])
        #expect(
            tree.propertiesChanged(
                device.path, "org.bluez.Battery1", ["Percentage": .byte(200)], invalidated: [], at: .zero
            ).isEmpty)
    }

    @Test func `properties of a wrong type are complained about and change nothing`() {
        var tree = BlueZTree()
        _ = tree.load(objects(connected: true))
        _ = tree.takeComplaints()
        for (path, interface, name) in [
            (device.path, "org.bluez.Device1", "Connected"), (device.path, "org.bluez.Device1", "Address"),
            (adapter.path, "org.bluez.Adapter1", "Powered"), (device.path, "org.bluez.Battery1", "Percentage"),
            (characteristic.path, "org.bluez.GattCharacteristic1", "Value"),
        ] {
            let events = tree.propertiesChanged(path, interface, [name: .double(1)], invalidated: [], at: .zero)
            #expect(events.isEmpty, "\(name)")
            #expect(tree.takeComplaints().count == 1, "\(name)")
        }
        let long = DBusValue.bytes(Array(repeating: 0, count: 513))
        #expect(
            tree.propertiesChanged(
                characteristic.path, "org.bluez.GattCharacteristic1", ["Value": long], invalidated: [], at: .zero
            ).isEmpty)
        #expect(tree.takeComplaints().count == 1)
    }

    @Test func `the number of devices is bounded`() throws {
        var tree = BlueZTree()
        _ = tree.load(objects())
        var added = 0
        for number in 0..<(BlueZTree.devicesMaximum + 50) {
            let digits = String(number + 0x10000, radix: 16)
            let path = try DBusObjectPath(
                "/org/bluez/hci0/dev_C0_00_00_0\(digits.prefix(1))_\(digits.dropFirst().prefix(2))_\(digits.suffix(2))")
            added += tree.interfacesAdded(path, ["org.bluez.Device1": [:]]).count
        }
        #expect(added == BlueZTree.devicesMaximum - 1)
        #expect(!tree.takeComplaints().isEmpty)
    }

    @Test func `whatever BlueZ says in whatever order, events stay paired`() {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        var tree = BlueZTree()
        var present: Set<DeviceIdentifier> = []
        var connected: Set<DeviceIdentifier> = []
        var attributes: Set<CharacteristicIdentifier> = []
        for _ in 0..<20_000 {
            let all = objects(connected: .random(using: &random), resolved: .random(using: &random))
            let path = all.keys.sorted().randomElement(using: &random)!
            let interface = all[path]!.keys.sorted().randomElement(using: &random)!
            let events: [BlueZEvent]
            switch Int.random(in: 0..<20, using: &random) {
            case 0: events = tree.clear()
            case 1..<6: events = tree.interfacesRemoved(path, [interface])
            case 6..<12: events = tree.interfacesAdded(path, all[path]!)
            default:
                events = tree.propertiesChanged(path, interface, all[path]![interface]!, invalidated: [], at: .zero)
            }
            for event in events {
                switch event {
                case .deviceAdded(let device): #expect(present.insert(device.identifier).inserted, "seed \(seed)")
                case .deviceRemoved(let device):
                    #expect(present.remove(device) != nil && !connected.contains(device), "seed \(seed)")
                    #expect(!attributes.contains { $0.device == device }, "seed \(seed)")
                case .deviceConnected(let device):
                    #expect(present.contains(device) && connected.insert(device).inserted, "seed \(seed)")
                case .deviceDisconnected(let device, _): #expect(connected.remove(device) != nil, "seed \(seed)")
                case .characteristicAdded(let added):
                    #expect(attributes.insert(added.identifier).inserted && added.service != nil, "seed \(seed)")
                case .characteristicRemoved(let gone): #expect(attributes.remove(gone) != nil, "seed \(seed)")
                case .valueChanged(let changed, _, _): #expect(attributes.contains(changed), "seed \(seed)")
                default: continue
                }
            }
        }
        _ = tree.clear()
        #expect(tree.adapters.isEmpty && tree.devices.isEmpty && tree.characteristics.isEmpty)
    }
}
