// Which profile a device gets: families share names and services, and the wrong profile would leave a transmitter on.
import BlueZ
import Settings
import Testing

@testable import Accessories

@Suite struct ProfileMatchingTests {
    private static let library = ProfileLibrary.load(directory: nil).library
    private static let ffe0 = BluetoothUUID("ffe0")
    private static let serialPort = BluetoothUUID("1101")
    private static let handsFree = BluetoothUUID("111e")

    /// What a device with the service FFE0 and the characteristic FFE1 in it has.
    private static func hm10(_ service: BluetoothUUID, _ characteristic: BluetoothUUID) -> Bool {
        service == ffe0 && characteristic == BluetoothUUID("ffe1")
    }

    @Test func aRemoteControlThatIsCalledLikeATalkButtonIsNone() {
        #expect(Self.library.candidate(name: "PTT-Remote", services: ["1812"]) == nil)
        #expect(Self.library.candidate(name: "PTT-Remote", services: ["1812", "ffe0"])?.id == "ptt-z")
    }

    @Test(arguments: [
        ("PTT-Z", "ptt-z"), ("ptt-z01", "ptt-z"), ("PTT1234", "ptt-z"), ("iTAG", nil), ("iTAG            ", nil),
        ("SensorTag 2.0", "ti-simple-key"), ("Keyfobdemo", "ti-simple-key"), ("CLICK", "clickoris"), ("CLICKER", nil),
        ("HMSoft", nil), ("MLT-BT05", nil), ("", nil), ("Puck.js abcd", nil), ("PT", nil), ("CODA", nil),
    ])
    func theSameUUIDsOfDifferentDevicesAreToldApartByName(name: String, profile: String?) {
        #expect(Self.library.profile(names: [name], has: Self.hm10)?.id == profile)
        #expect(Self.library.candidate(name: name, services: [Self.ffe0])?.id == profile)
        // Seen before its services are.
        #expect(Self.library.candidate(name: name, services: [BluetoothUUID]())?.transport != .input)
        #expect(Self.library.profile(names: [], has: Self.hm10) == nil)
    }

    @Test(
        arguments: [
            ("iTAG", ["ffe0"], "itag"), ("itag ", ["1802", "ffe0"], "itag"), ("iTAG", [], "itag"),
            ("CODA S", [], "coda-ble"),
            ("My button", ["41df72e4-9721-41bd-b27f-f507a94d9634"], "coda-ble"),
            (nil, ["2320ae58-8394-4652-95f7-0a872ac0958f"], "coda-ble"),
            (nil, ["00420000-8f59-4420-870d-84f3b617e493"], "flic"),
            ("Twist", ["00c90000-2cbd-4f2a-a725-5ccd960ffb7d"], "flic"), ("SBBT-002C", [], "bthome"),
            (nil, ["fcd2"], "bthome"),
            ("Midland Dual Mike", ["111e", "1108"], "sco-microphone"),
        ] as [(String?, [BluetoothUUID], String)])
    func aFamilyThatCannotTalkIsRecognisedAndRefusedWithTheReason(
        name: String?, services: [BluetoothUUID], profile: String
    ) {
        let found = Self.library.probable(name: name, services: services)
        #expect(found?.id == profile)
        #expect(found?.refusal?.hasSuffix(".") == true)
        #expect(Self.library.candidate(name: name, services: services) == nil)
    }

    @Test func whatIsKnownOrUnknownIsNotRefused() {
        for (name, services) in [("PTT-Z", [Self.ffe0]), ("APTT123", []), ("Speaker", ["110b"]), (nil, [])] {
            #expect(Self.library.probable(name: name, services: services as [BluetoothUUID])?.refusal == nil)
        }
    }

    /// What is paired and fits is taken unasked: a telephone's or a loudspeaker's name must not be a talk button's by chance.
    @Test(arguments: ["Asbjørn's iPhone", "SmartAsbestos", "MyASB", "Click and Go", "Keyboard K380", "Headset", "B01S"])
    func thingsThatPeoplePairAreNoTalkButtonsByTheirNames(name: String) {
        #expect(Self.library.candidate(name: name, services: ["110b", "111e", "1101"]) == nil)
        #expect(Self.library.probable(name: name, services: ["110b", "111e", "1101"])?.refusal == nil)
    }

    @Test func aSmartButtonIsKnownByItsServiceWhateverItIsCalled() {
        let service: BluetoothUUID = "127face1-cb21-11e5-93d0-0002a5d5c51b"
        for name in ["ASB", "AINA ASB-7", nil] {
            #expect(Self.library.candidate(name: name, services: [service])?.id == "aina-v2")
        }
    }

    /// The Flic's service is listed as Pryme's in a public source: it must not get any talk button's profile.
    @Test func noTalkButtonHasTheServiceOfAFlic() {
        let flic = BluetoothUUID("00420000-8f59-4420-870d-84f3b617e493")
        for profile in Self.library.profiles where profile.id != "flic" {
            #expect(!profile.services.contains(flic) && !profile.advertisedServices.contains(flic))
        }
    }

    @Test(
        arguments: [
            ("APTT12", ["127face1-cb21-11e5-93d0-0002a5d5c51b"], "aina-v2"),
            ("APTT12", ["1101", "111e"], "aina-v1-spp"),
            ("APTT12", [], "aina-v2"), ("APTT12", ["127face1-cb21-11e5-93d0-0002a5d5c51b", "1101"], "aina-v2"),
            ("PTT", ["111e", "1108"], "motorola-ptt-pod"), ("PTT", ["ffe0"], "ptt-z"), ("PTT-Z", ["111e"], "ptt-z"),
            ("B01", ["1101", "111e"], "inrico-b01-spp"), ("B01_BLE", [], "inrico-b01-ble"),
            ("B01PTT", ["111e"], "xevent-talk"), ("BTH-PTT", ["111e"], "xevent-talk"),
            (nil, ["28393551-5345-5209-fd67-45287c0bdac5"], "pryme-bth-ble"), ("B02PTT-FF01", ["1101"], "inrico-b02"),
            ("18SE_AGHF", ["1101"], "bt-85"), ("OCW_RSM_TPP", ["1101"], "motorola-ocw"),
            ("ELET-PTT60B02A", [], "anytone-elet"), ("BBC micro:bit [vatav]", [], "micro-bit"),
            ("TID-MIC-Q2L-1234", [], "td-q2l"), ("Blu-PTT", [], "td-q2l"), ("WM500_1", ["fd8e"], "motorola-wm500"),
            ("WM500_1", ["8925d23d-03e4-4447-826c-418dadc7f483"], "motorola-wm500-kodiak"),
            ("IASUS IG-PTT", ["678fea09-1023-0001-4429-00ab85ba4980"], "iasus-ig-ptt"),
            ("IASUS IG-PTT", ["be26bb70-06fb-4b1a-a4e6-2c3d3d27ea84"], "iasus-ig-ptt-alt"),
            ("Some headset", ["1101", "111e", "1108"], nil),
            ("AINA ASB", ["127face1-cb21-11e5-93d0-0002a5d5c51b"], "aina-v2"),
            (nil, ["00001523-1212-efde-1523-785feabcd123"], nil), (nil, ["a000"], nil),
        ] as [(String?, [BluetoothUUID], String?)])
    func theNameWithItsServiceSaysMost(name: String?, services: [BluetoothUUID], profile: String?) {
        #expect(Self.library.candidate(name: name, services: services)?.id == profile)
    }

    @Test func theFirmwaresOfOneNameAreToldApartByTheirCharacteristics() {
        for id in ["motorola-wm500", "motorola-wm500-kodiak", "iasus-ig-ptt", "iasus-ig-ptt-alt"] {
            let profile = Self.library[id]!
            let name = profile.names[0].text.replacing("*", with: "7")
            let has: (BluetoothUUID, BluetoothUUID) -> Bool = { service, characteristic in
                profile.inputs.contains { $0.service == service && $0.characteristic == characteristic }
            }
            #expect(Self.library.profile(names: [name], has: has)?.id == id)
        }
    }

    @Test func anExplicitProfileIsNeverRecognised() {
        for profile in Self.library.profiles where profile.isExplicitOnly {
            let all: (BluetoothUUID, BluetoothUUID) -> Bool = { service, characteristic in
                profile.inputs.contains { $0.service == service && $0.characteristic == characteristic }
            }
            #expect(Self.library.profile(names: [profile.title, ""], has: all) == nil)
            #expect(Self.library.candidate(name: profile.title, services: profile.services) == nil)
        }
    }

    /// Two that fit equally well would be told apart by their ids alone.
    @Test func noTwoShippedProfilesFitOneNameEquallyWell() {
        let profiles = Self.library.profiles.filter { !$0.isExplicitOnly }
        for profile in profiles {
            for pattern in profile.names {
                let name = pattern.text.replacing("*", with: "")
                let rivals = profiles.filter { $0.id != profile.id && $0.names.contains { $0.text == pattern.text } }
                for rival in rivals {
                    // The same name on several firmwares or halves: what each offers differs.
                    let isApart =
                        rival.transport != profile.transport || Set(rival.services).isDisjoint(with: profile.services)
                    #expect(isApart, "\(profile.id) and \(rival.id) both claim \(name)")
                }
            }
        }
    }

    @Test func theSitesOwnProfilesComeBeforeTheShippedOnes() {
        var library = Self.library
        var own = library["clickoris"]!
        own.id = "zz-own"
        own.names = [NamePattern("P*")]
        #expect(library.profile(names: ["PTT-Z"], has: Self.hm10)?.id == "ptt-z")
        library.add(own)
        #expect(library.profile(names: ["PTT-Z"], has: Self.hm10)?.id == "zz-own")
        #expect(library.candidate(name: "PTT-Z", services: [Self.ffe0])?.id == "zz-own")
        #expect(library.profiles.map(\.id) == library.profiles.map(\.id).sorted())
        // It replaces a shipped one of its id, and one that was added before.
        let count = library.profiles.count
        own.id = "ptt-z"
        library.add(own)
        own.id = "zz-own"
        own.title = "Newer"
        library.add(own)
        #expect(
            library.profiles.count == count && library["zz-own"]?.title == "Newer" && library["ptt-z"]?.names.count == 1
        )
    }

    // MARK: Input devices

    private func device(
        _ name: String, keys: [UInt16] = [164, 183], profile: String? = nil, properties: [String: String] = [:],
        id: InputDeviceID? = nil, isSerial: Bool = false
    ) -> LocalDeviceFacts {
        LocalDeviceFacts(
            id: LocalDeviceID("/dev/input/event7"), name: name, address: nil, device: id, accessoryName: nil,
            profileID: profile, properties: properties, keys: Set(keys), isSerialPort: isSerial)
    }

    @Test func anInputDeviceGetsTheProfileItsRuleNamesElseTheOneThatFits() {
        let library = Self.library
        #expect(library.candidate(local: device("AIWA Kit (AVRCP)"))?.id == "headset-play-pause")
        #expect(library.candidate(local: device("sof-hda-dsp Headset Jack"))?.id == "headset-play-pause")
        // A headset without a play key, and a keyboard that only happens to have one.
        #expect(library.candidate(local: device("Gaming Headset", keys: [115, 114])) == nil)
        #expect(library.candidate(local: device("AT Translated Set 2 keyboard")) == nil)
        #expect(library.candidate(local: device("Pedal", profile: "foot-switch"))?.id == "foot-switch")
        #expect(library.candidate(local: device("Pedal (AVRCP)", profile: "foot-switch"))?.id == "foot-switch")
        // A profile of another kind, and one that does not exist.
        #expect(library.candidate(local: device("Pedal", profile: "ptt-z")) == nil)
        #expect(library.candidate(local: device("Pedal (AVRCP)", profile: "no-such")) == nil)
        #expect(
            library.candidate(local: device("ttyUSB0", keys: [], profile: "aina-serial", isSerial: true))?.id
                == "aina-serial")
        #expect(library.candidate(local: device("ttyUSB0", keys: [], isSerial: true)) == nil)
    }

    @Test func anInputDeviceIsKnownByItsNumbersAndItsProperties() throws {
        func profile(_ id: String, _ match: String) throws -> AccessoryProfile {
            let text = """
                id = "\(id)"
                title = "x"
                confidence = "capture"
                sources = ["x"]
                transport = "input"
                [match]
                \(match)
                [[input]]
                decode = "keys"
                [[input.control]]
                name = "ptt"
                keys = ["KEY_F13"]
                """
            return try AccessoryProfile(bytes: Array(text.utf8), file: id)
        }
        var library = ProfileLibrary([])
        library.add(try profile("numbers", "devices = [\"046d:0A44\"]"))
        library.add(try profile("port", "[match.udev]\nID_PATH = \"*usb-0:1.2:*\"\nID_INPUT_KEY = \"1\""))
        library.add(try profile("both", "devices = [\"046d:0a44\"]\nudev = { ID_PATH = \"*usb-0:1.2:*\" }"))
        let id = InputDeviceID(vendor: 0x046d, product: 0x0a44)
        let port = ["ID_PATH": "pci-0000:00:14.0-usb-0:1.2:1.0", "ID_INPUT_KEY": "1"]
        #expect(Set(library.profiles.flatMap(\.udevProperties.keys)) == ["ID_PATH", "ID_INPUT_KEY"])
        #expect(library.candidate(local: device("a", id: id))?.id == "numbers")
        #expect(library.candidate(local: device("a", properties: port))?.id == "port")
        #expect(library.candidate(local: device("a", properties: port, id: id))?.id == "both")
        #expect(
            library.candidate(local: device("a", properties: ["ID_PATH": "pci-usb-0:1.3:1.0", "ID_INPUT_KEY": "1"]))
                == nil)
        #expect(library.candidate(local: device("a", keys: [164], id: id)) == nil)
        #expect(library.candidate(local: device("a", id: InputDeviceID(vendor: 0x046d, product: 1))) == nil)
    }
}
