// Types, signatures, names and conversions, without a bus.
import BusTestSupport
import DBus
import TestSupport
import Testing

@Suite struct ValueTests {
    @Test(
        arguments: ["", "y", "a{sv}", "(iia{s(ud)})", "aaaay", "a{oa{sa{sv}}}", "vvv", "h", "a(y)"]
            + [String(repeating: "a", count: 20) + "{s" + String(repeating: "a", count: 12) + "y}"])
    func `a valid signature is spelled as it was parsed`(text: String) throws {
        let signature = try DBusSignature(text)
        #expect(signature.rawValue == text)
        #expect(DBusSignature(types: signature.types) == signature)
    }

    @Test(arguments: [
        "a", "(", ")", "()", "(i", "{sv}", "a{vs}", "a{s}", "a{svs}", "a{(i)s}", "z", "i i", "a{sv", "\0", "é",
        String(repeating: "a", count: 33) + "y",
        // libdbus takes this one, for it counts only arrays directly within each other.
        String(repeating: "a", count: 20) + "{s" + String(repeating: "a", count: 13) + "y}",
        String(repeating: "(", count: 33) + "y" + String(repeating: ")", count: 33),
        String(repeating: "y", count: 256),
    ])
    func `an invalid signature is refused`(text: String) {
        #expect(throws: DBusError.self) { try DBusSignature(text) }
    }

    @Test func `random text never crashes the signature parser`() {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        let alphabet = Array("ybnqiuxtdsogvha(){}!".utf8)
        for _ in 0..<20_000 {
            let bytes = (0..<Int.random(in: 0...40, using: &random)).map { _ in alphabet.randomElement(using: &random)!
            }
            let text = String(decoding: bytes, as: UTF8.self)
            if let signature = try? DBusSignature(text) {
                #expect(DBusSignature(types: signature.types).rawValue == text, "seed \(seed)")
            }
        }
    }

    @Test(arguments: ["", "a", "/a/", "//", "/a b", "/é", "/a\0b", "/a/../b"])
    func `an invalid object path is refused`(text: String) {
        #expect(throws: DBusError.self) { try DBusObjectPath(text) }
    }

    @Test func `object paths know their parents and descendants`() throws {
        let path: DBusObjectPath = "/org/bluez/hci0/dev_00"
        #expect(path.parent == "/org/bluez/hci0")
        #expect(path.parent?.parent?.parent?.parent == "/")
        #expect(DBusObjectPath("/").parent == nil)
        #expect(path.lastComponent == "dev_00")
        #expect(path.isDescendant(of: "/"))
        #expect(path.isDescendant(of: "/org/bluez/hci0"))
        #expect(!path.isDescendant(of: "/org/bluez/hci"))
        #expect(!path.isDescendant(of: path))
        #expect(try DBusObjectPath("/").appending("a") == "/a")
        #expect(throws: DBusError.self) { try path.appending("a b") }
    }

    @Test func `Swift's types become D-Bus values and come back`() throws {
        let table: [String: [UInt16]] = ["a": [1, 2], "b": []]
        #expect(table.dbusValue.type.code == "a{saq}")
        #expect([String: [UInt16]](dbusValue: table.dbusValue) == table)
        #expect([UInt8](dbusValue: .bytes([1, 2])) == [1, 2])
        #expect([UInt8]([3]).dbusValue == .bytes([3]))
        #expect([[UInt8]]().dbusValue.type.code == "aay")
        #expect(DBusValue.variant(.variant(.int32(-5))).get(Int32.self) == -5)
        #expect(DBusValue.variant(.byte(7)).integerValue == 7)
        #expect(DBusValue.uint64(.max).integerValue == nil)
        #expect(DBusValue.int16(1).get(UInt16.self) == nil)
        #expect(throws: DBusError.unexpectedType(expected: "s", got: "i")) {
            try DBusValue.int32(1).require(String.self)
        }
        #expect(throws: DBusError.unexpectedType(expected: "s", got: "")) {
            try [DBusValue]().argument(0, as: String.self)
        }
        let properties = DBusValue.properties(["x": .int32(1), "y": .variant(.string("z"))])
        #expect(properties.type.code == "a{sv}")
        #expect(properties.propertiesValue == ["x": .int32(1), "y": .string("z")])
    }

    @Test func `a match rule checks sender, interface, member, path and first argument`() throws {
        #expect(throws: DBusError.self) { try DBusMatchRule(sender: "no name").text() }
        #expect(throws: DBusError.self) { try DBusMatchRule(interface: "x'y").text() }
        #expect(throws: DBusError.self) { try DBusMatchRule(path: "/a", pathNamespace: "/b").text() }
        #expect(
            try DBusMatchRule(interface: "a.b", member: "C", argument0: "it's").text()
                == "type='signal',interface='a.b',member='C',arg0='it'\\''s'")
    }

    @Test func `interfaces are written as XML and read back the same`() throws {
        let interface = DBusInterface(
            "org.example.Test",
            methods: [.init("Do", in: [.init("a", .string), .init("", .variant)], out: [.init("b", .array(.byte))])],
            signals: [.init("Done", [.init("c", .structure([.int32, .double]))]), .init("Bare")],
            properties: [
                .init("P", .uint32), .init("W", .string, .readwrite, changeSignal: .invalidates),
                .init("C", .boolean, changeSignal: .constant), .init("N", .boolean, changeSignal: .none),
            ])
        let read = try DBusIntrospection(
            xml: "<?xml version='1.0'?><!-- x --><node>\n\(interface.xml)<node name=\"k\"/></node>")
        #expect(read.interfaces == [interface])
        #expect(read.children == ["k"])
    }

    @Test(arguments: [
        ("<node>\n<interface/></node>", "line 2"),
        ("<node><interface name='a.b'>\n<bad/></interface></node>", "line 2"),
        ("<node>\n<interface name='a'></interface></node>", "interface name"), ("<other/>", "<node>"), ("", "<node>"),
        (
            "<node><interface name='a.b'><method name='M'><arg type='ii'/></method></interface></node>",
            "one complete type"
        ),
        ("<node name='x' name='y'/>", "twice"), ("<node><!-- </node>", "unfinished"), ("<node a='&x;'/>", "entity"),
        (String(repeating: "<node>", count: 40), "too deep"), ("<node></mode>", "</node> expected"), ("<node", "name"),
    ])
    func `mistakes in introspection XML are named`(xml: String, words: String) {
        let error = #expect(throws: DBusError.self) { try DBusIntrospection(xml: xml) }
        #expect(error?.description.contains(words) == true, "\(String(describing: error))")
    }

    @Test func `damaged introspection XML never crashes the reader`() throws {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        let good = Array(
            "<node><interface name=\"a.b\"><method name='M'><arg type='s' direction='in'/></method></interface></node>"
                .utf8)
        for _ in 0..<3_000 {
            var bytes = good
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                let index = Int.random(in: 0..<bytes.count, using: &random)
                switch Int.random(in: 0..<3, using: &random) {
                case 0: bytes[index] = UInt8.random(in: 0 ... .max, using: &random)
                case 1: bytes.remove(at: index)
                default: bytes.insert(contentsOf: good[index % good.count..<good.count], at: index)
                }
            }
            _ = try? DBusIntrospection(xml: String(decoding: bytes, as: UTF8.self))
        }
    }
}
