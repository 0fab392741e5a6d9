// Profiles that contradict themselves: each mistake is told with its place, and nothing of the file is taken.
import Settings
import Testing

@testable import Accessories

@Suite struct ProfileMistakesTests {
    /// A right profile of each kind, by what it is for.
    static let right: [String: String] = [
        "gatt": """
        id = "x"
        title = "X"
        confidence = "capture"
        sources = ["s"]
        bonding = "never"
        [match]
        names = ["X*"]
        [[input]]
        service = "ffe0"
        characteristic = "ffe1"
        decode = "value"
        [[input.control]]
        name = "ptt"
        pressed = 0x01
        released = 0x00
        [light]
        service = "ffe0"
        characteristic = "ffe2"
        idle = [0x00]
        [idle_link]
        interval = "30ms"
        latency = 4
        supervision_timeout = "2s"
        [[start]]
        service = "ffe0"
        characteristic = "ffe3"
        value = [0x01]
        """,
        "spp": """
        id = "x"
        title = "X"
        confidence = "capture"
        sources = ["s"]
        transport = "spp"
        bonding = "required"
        start_bytes = [0x01]
        [match]
        names = ["X*"]
        [[input]]
        decode = "text"
        [[input.control]]
        name = "ptt"
        pressed = ["+P=1", "+P=2"]
        released = "+R=0"
        [[input.control]]
        name = "soft1"
        pressed = "+S=1"
        released = "+R=0"
        [[input.control]]
        name = "emergency"
        pressed = "+E=1"
        """,
        "input": """
        id = "x"
        title = "X"
        confidence = "capture"
        sources = ["s"]
        transport = "input"
        [match]
        devices = ["046d:0a44"]
        [match.udev]
        ID_BUS = "usb"
        [[input]]
        decode = "keys"
        [[input.control]]
        name = "ptt"
        toggle_only = true
        keys = ["KEY_F13", "0x2ff"]
        """,
        "refused": """
        id = "x"
        title = "X"
        confidence = "vendor"
        sources = ["s"]
        refusal = "No."
        bonding = "never"
        [match]
        names = ["X*"]
        """,
    ]

    @Test(arguments: right.keys.sorted()) func theRightOnesRead(kind: String) throws {
        _ = try AccessoryProfile(bytes: Array(Self.right[kind]!.utf8), file: kind)
    }

    /// Kind, what is replaced, by what, and what is said with its place.
    static let mistakes: [(String, String, String, String)] = [
        ("gatt", "bonding = \"never\"", "", "x.toml:1:1: bonding: is missing"),
        ("gatt", "service = \"ffe0\"\n", "", "input[1].service: is missing; add: service = …"),
        ("gatt", "characteristic = \"ffe1\"", "", "input[1].characteristic: is missing"),
        (
            "gatt", "decode = \"value\"", "decode = \"keys\"",
            "x.toml:11:10: input[1].decode: \"keys\" is for transport \"input\""
        ),
        (
            "gatt", "released = 0x00", "released = 0x01",
            "x.toml:14:11: input[1].control[1].pressed: is the same as released"
        ),
        (
            "gatt", "released = 0x00", "gesture = \"hold\"",
            "x.toml:15:11: input[1].control[1].gesture: \"hold\" needs a release"
        ),
        ("gatt", "released = 0x00", "gesture = \"hybrid\"", "\"hybrid\" needs a release"),
        ("gatt", "released = 0x00", "toggle_only = false", "toggle_only: cannot be false: no release is told"),
        (
            "gatt", "released = 0x00", "released = 0x00\ntoggle_only = true\ngesture = \"hold\"",
            "\"hold\" needs a release"
        ),
        ("gatt", "pressed = 0x01", "pressed = [0x01, 0x02]", "pressed: is behind the end of the value; set size"),
        ("gatt", "pressed = 0x01", "pressed = 300", "300 is out of range"),
        ("gatt", "pressed = 0x01", "pressed = []", "has 0 elements"),
        (
            "gatt", "pressed = 0x01", "pressed = \"01\"",
            "14:11: input[1].control[1].pressed: is a string; write an integer from 0 to 255"
        ),
        ("gatt", "idle = [0x00]", "", "x.toml:16:1: light: says nothing to write"),
        ("gatt", "idle = [0x00]", "idel = [0x00]", "did you mean 'idle'?"),
        ("gatt", "idle = [0x00]", "idle = 0", "write an array"),
        ("gatt", "supervision_timeout = \"2s\"", "supervision_timeout = \"300ms\"", "is too short"),
        ("gatt", "interval = \"30ms\"", "interval = \"7ms\"", "is out of range"),
        ("gatt", "value = [0x01]", "value = []", "start[1].value: has 0 elements; write 1 to 512"),
        ("gatt", "[match]", "start_bytes = [1]\n[match]", "x.toml:6:15: start_bytes: is for streams"),
        ("gatt", "[match]", "explicit = true\n[match]", "match: is never used: the profile is explicit"),
        ("gatt", "[match]\nnames = [\"X*\"]", "", "[match] is missing"),
        ("gatt", "names = [\"X*\"]", "", "match: nothing would ever match"),
        ("gatt", "names = [\"X*\"]", "names = [\"*\"]", "\"*\" matches every device"),
        (
            "gatt", "names = [\"X*\"]", "names = [\"X*\"]\ndevices = [\"046d:0a44\"]",
            "match.devices: is for transport \"input\""
        ),
        (
            "gatt", "[match]", "battery = \"text\"\n[match]",
            "x.toml:6:11: battery: \"text\" and an input's battery_prefix"
        ),
        (
            "gatt", "confidence = \"capture\"", "confidence = \"code\"",
            "x.toml:4:11: sources: has one author only; add experimental = true"
        ),
        ("gatt", "confidence = \"capture\"", "confidence = \"sure\"", "confidence: \"sure\" is not known"),
        ("gatt", "name = \"ptt\"", "name = \"pt\"", "did you mean \"ptt\"?"),
        ("gatt", "[[input.control]]\nname = \"ptt\"\npressed = 0x01\nreleased = 0x00", "", "no [[input.control]]"),
        ("spp", "decode = \"text\"", "decode = \"value\"", "a stream has words"),
        (
            "spp", "decode = \"text\"", "decode = \"text\"\nservice = \"ffe0\"",
            "input[1].service: is for transport \"gatt\""
        ),
        ("spp", "\"+P=2\"", "\"+R=0\"", "\"+R=0\" is already used; only released words may be shared"),
        ("spp", "pressed = \"+S=1\"", "pressed = \"+p=1\"", "\"+p=1\" is already used"),
        ("spp", "pressed = \"+S=1\"", "pressed = \"+P\"", "\"+P\" begins \"+P=1\"; no word may begin another"),
        ("spp", "pressed = \"+E=1\"", "pressed = \"+e=11\"\nreleased = \"+E=1\"", "\"+E=1\" begins \"+e=11\""),
        ("spp", "pressed = \"+E=1\"", "pressed = \"+É=1\"", "is not printable ASCII"),
        ("spp", "pressed = \"+E=1\"", "pressed = \"+E=1\"\nreleased = []", "has 0 elements"),
        ("spp", "pressed = \"+E=1\"", "pressed = \"\"", "is empty"),
        ("spp", "[match]", "[light]\nservice = \"ffe0\"\n[match]", "light: is for transport \"gatt\""),
        ("spp", "names = [\"X*\"]", "service_identifies = true", "every such device has the same service"),
        ("spp", "[match]", "battery = \"service\"\n[match]", "battery: \"service\" is a GATT service"),
        ("spp", "transport = \"spp\"", "transport = \"hands-free\"", "start_bytes: is for transport \"spp\""),
        // Nothing is written to a serial port of the machine.
        ("spp", "transport = \"spp\"", "transport = \"serial\"", "start_bytes: is for transport \"spp\""),
        (
            "spp", "[[input]]",
            "[[input]]\ndecode = \"text\"\n[[input.control]]\nname = \"call\"\npressed = \"Z\"\n[[input]]",
            "a second input: \"spp\" has one"
        ),
        ("input", "decode = \"keys\"", "decode = \"text\"", "an input device has keys; write decode = \"keys\""),
        (
            "input", "\"KEY_F13\"", "\"KEY_F31\"",
            "x.toml:15:9: input[1].control[1].keys: \"KEY_F31\" is no key; did you mean \"KEY_F1\"?"
        ),
        ("input", "\"KEY_F13\"", "\"0x300\"", "\"0x300\" is no key"),
        ("input", "\"KEY_F13\"", "\"ABS_X\"", "\"ABS_X\" is no key"),
        ("input", "\"KEY_F13\"", "\"0x2ff\"", "is already used; a key belongs to one control"),
        ("input", "[match]", "bonding = \"never\"\n[match]", "bonding: is for Bluetooth profiles"),
        ("input", "\"046d:0a44\"", "\"46d:a44\"", "is no device; write vendor and product"),
        ("input", "ID_BUS", "id-bus", "x.toml:9:10: match.udev.id-bus: is no udev property"),
        ("input", "toggle_only = true", "gesture = \"press\"", "\"press\" is not known"),
        ("input", "devices = [\"046d:0a44\"]", "services = [\"ffe0\"]", "match.services: is for Bluetooth profiles"),
        ("refused", "refusal = \"No.\"", "", "no [[input]]"),
        ("refused", "refusal = \"No.\"", "refusal = \"No.\"\nexplicit = true", "refusal: nobody would be told"),
        ("refused", "[match]", "[timing]\ndebounce = \"1s\"\n[match]", "timing: nothing uses it"),
        ("refused", "names = [\"X*\"]", "service_identifies = true", "service_identifies without a service"),
    ]

    @Test(arguments: mistakes)
    func aMistakeIsToldWithItsPlace(kind: String, right: String, wrong: String, message: String) throws {
        let text = Self.right[kind]!
        #expect(text.contains(right))
        let changed = text.replacing(right, with: wrong, maxReplacements: 1)
        #expect {
            _ = try AccessoryProfile(bytes: Array(changed.utf8), file: "x.toml")
        } throws: { error in
            let lines = "\(error)".split(separator: "\n")
            let isTold = lines.contains { $0.hasPrefix("x.toml:") && $0.contains(message) }
            if !isTold { Issue.record("\(error)") }
            return isTold
        }
    }

    @Test func aWholeFileOfMistakesIsToldAtOnce() {
        let text =
            "id = \"X!\"\ntitel = \"\"\nconfidence = 1\nsources = []\nbonding = \"no\"\n[match]\nname = [\"a\"]\n"
        #expect {
            _ = try AccessoryProfile(bytes: Array(text.utf8), file: "x.toml")
        } throws: { error in
            let problems = (error as? SettingsError)?.problems ?? []
            return problems.count >= 7 && problems.allSatisfy { $0.position != nil }
        }
    }
}
