// What a udev rule says about a device, right and wrong.
import TestSupport
import Testing

@testable import LinuxInput

@Suite struct DeviceRuleTests {
    @Test func `every property is read`() {
        let rule = InputDeviceRule(properties: [
            "PTTD_PROFILE": "key-hold", "PTTD_GRAB": "1", "PTTD_ACCESSORY": "Left seat", "PTTD_BAUD": "115200",
            "PTTD_LINE": "!dsr", "ID_BUS": "usb",
        ])
        var wanted = InputDeviceRule(profileID: "key-hold", accessoryName: "Left seat", isGrabbed: true)
        wanted.baud = 115_200
        wanted.line = SerialLine(.dsr, isInverted: true)
        #expect(rule == wanted)
        #expect(InputDeviceRule(properties: ["ID_BUS": "usb"]) == InputDeviceRule())
        #expect(InputDeviceRule().baud == 9600)
    }

    @Test func `an empty value takes a property back`() {
        let names = InputDeviceRule.known
        let rule = InputDeviceRule(properties: Dictionary(uniqueKeysWithValues: names.map { ($0, "") }))
        #expect(rule == InputDeviceRule())
    }

    @Test(arguments: [
        ("PTTD_GRAB", "yes", "write 1 or 0"), ("PTTD_PROFIL", "x", "PTTD_PROFIL is not known"),
        ("PTTD_PROFILE", String(repeating: "x", count: 100), "write ENV{PTTD_PROFILE}"),
        ("PTTD_ACCESSORY", "a\u{1B}[31m", "write ENV{PTTD_ACCESSORY}"), ("PTTD_BAUD", "9601", "write one of 1200, "),
        ("PTTD_LINE", "rts", "write cts, dsr or dcd"),
    ])
    func `a mistake is said and changes nothing`(name: String, value: String, words: String) {
        var rule = InputDeviceRule(properties: [name: value])
        #expect(rule.problems.count == 1)
        #expect(rule.problems.first?.contains(words) == true, "\(rule.problems)")
        rule.problems = []
        #expect(rule == InputDeviceRule())
    }

    @Test func `random properties never become more than they may`() throws {
        var random = SeededGenerator()
        let names = InputDeviceRule.known + ["ID_MODEL", "PTTD_", "ID_", "DEVPATH"]
        for _ in 0..<20 {
            var properties: [String: String] = [:]
            for _ in 0..<Int.random(in: 0...100, using: &random) {
                let name =
                    (names.randomElement(using: &random) ?? "") + (random.chance(70) ? "\(random.next() % 300)" : "")
                properties[name] = String(
                    decoding: random.bytes(Int.random(in: 0...400, using: &random)), as: UTF8.self)
            }
            let device = try #require(
                TaggedDevice(node: "/dev/input/event1", subsystem: "input", properties: properties))
            #expect(device.properties.count <= TaggedDevice.propertiesMax)
            #expect(device.properties.allSatisfy { $0.key.hasPrefix("ID_") && $0.value.utf8.count <= 256 })
            #expect(
                (device.rule.profileID?.utf8.count ?? 0) <= 64 && (device.rule.accessoryName?.utf8.count ?? 0) <= 64)
            #expect(SerialPort.speeds[device.rule.baud] != nil)
        }
    }

    @Test(arguments: [
        ("/dev/input/event7", "input", true), ("/dev/input/js0", "input", false), ("/dev/input/mouse0", "input", false),
        ("/dev/ttyUSB0", "tty", true), ("/dev/ttyS1", "tty", true), ("/dev/tty1", "tty", false),
        ("/dev/tty", "tty", false), ("/dev/console", "tty", false), ("/dev/sda", "block", false),
    ])
    func `only evdev nodes and serial ports are taken`(node: String, subsystem: String, isTaken: Bool) {
        #expect((TaggedDevice(node: node, subsystem: subsystem, properties: [:]) != nil) == isTaken)
    }

    @Test(arguments: [
        (UInt16(5), "c4:11:22:33:44:5f", "C4:11:22:33:44:5F" as String?), (3, "c4:11:22:33:44:5f", nil), (5, "", nil),
        (5, "c4:11:22:33:44", nil), (5, "c4:11:22:33:44:zz", nil),
    ])
    func `the address of a Bluetooth device is its unique`(bus: UInt16, unique: String, address: String?) {
        #expect(InputDevice(node: "n", name: "n", bus: bus, unique: unique).bluetoothAddress == address)
    }
}
