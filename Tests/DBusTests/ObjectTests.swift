// Exported objects as others see them: properties, object manager, introspection by real tools.
import BusTestSupport
import DBus
import Glibc
import Reactor
import Testing

private let light = DBusInterface(
    "org.example.Light",
    methods: [.init("Toggle", out: [.init("on", .boolean)])], signals: [.init("Blinked", [.init("times", .uint32)])],
    properties: [
        .init("On", .boolean, .readwrite), .init("Name", .string, changeSignal: .constant),
        .init("History", .array(.uint32), changeSignal: .invalidates),
    ])

private func export(_ connection: DBusConnection, at path: DBusObjectPath) async throws {
    let export = try DBusExport(
        light, properties: ["On": .boolean(false), "Name": .string("lamp"), "History": .array(.uint32, [])],
        setters: [
            "On": { call in
                let on: Bool = try call.arguments.argument(0)
                return .boolean(on)
            }
        ],
        methods: [
            "Toggle": { call in
                let now = await connection.property("On", of: "org.example.Light", at: call.path)?.boolValue ?? false
                try await connection.setProperties(["On": .boolean(!now)], of: "org.example.Light", at: call.path)
                return [.boolean(!now)]
            }
        ])
    try await connection.export([export], at: path)
}

@Suite struct ObjectTests {
    @Test func `methods with a starter begin on the loop, in the order of their calls`() async throws {
        try await withBus { fixture in
            let server = try await fixture.connect()
            let client = try await fixture.connect()
            let begun = Recorder<UInt32>()
            let declared = DBusInterface(
                "org.example.Order", methods: [.init("Take", in: [.init("number", .uint32)])])
            let export = try DBusExport(
                declared,
                starters: [
                    "Take": { [loop = fixture.loop] call in
                        let number: UInt32? = call.arguments.first?.get()
                        begun.record(loop.isCurrent ? number ?? .max : .max)
                        return Task { [] }
                    }
                ])
            try await server.export([export], at: "/order")
            let name = try #require(await server.uniqueName)
            // As many as one caller may have running.
            let count = DBusLimits.runningHandlersPerCaller
            for number in 0..<count {
                try await client.send(
                    destination: name, path: "/order", interface: "org.example.Order", method: "Take",
                    arguments: [.uint32(UInt32(number))])
            }
            #expect(try await begun.wait(for: count) == Array(0..<UInt32(count)))
            await client.close()
            await server.close()
        }
    }

    @Test func `properties are read, written, and their changes signalled once`() async throws {
        try await withBus { fixture in
            let server = try await fixture.connect()
            let client = try await fixture.connect()
            try await server.requestName("org.example.House")
            try await export(server, at: "/light")
            let changes = Recorder<[DBusValue]>()
            try await client.addMatch(
                DBusMatchRule(sender: "org.example.House", member: "PropertiesChanged", argument0: "org.example.Light")
            ) { changes.record($0.arguments) }
            let all = try await client.getProperties(
                of: "org.example.Light", destination: "org.example.House", path: "/light")
            #expect(all == ["On": .boolean(false), "Name": .string("lamp"), "History": .array(.uint32, [])])
            for value in [true, true, false] {
                try await client.setProperty(
                    "On", .boolean(value), of: "org.example.Light", destination: "org.example.House", path: "/light")
            }
            let answer = try await client.call(
                destination: "org.example.House", path: "/light", interface: "org.example.Light", method: "Toggle")
            #expect(answer == [.boolean(true)])
            try await server.setProperties(
                ["History": .array(.uint32, [.uint32(1)])], of: "org.example.Light", at: "/light")
            let seen = try await changes.wait(for: 4)
            #expect(
                seen.map { $0[1].propertiesValue?["On"] } == [.boolean(true), .boolean(false), .boolean(true), nil])
            #expect(seen.last?[2] == .strings(["History"]))
            for (name, value, error) in [
                ("On", DBusValue.string("x"), "InvalidArgs"), ("Name", .string("x"), "PropertyReadOnly"),
                ("None", .string("x"), "UnknownProperty"),
            ] {
                let failure = await failure {
                    try await client.setProperty(
                        name, value, of: "org.example.Light", destination: "org.example.House", path: "/light")
                }
                #expect(failure?.remoteName == "org.freedesktop.DBus.Error." + error, "\(name)")
            }
            await #expect(throws: DBusError.self) {
                try await server.setProperties(["On": .int32(1)], of: "org.example.Light", at: "/light")
            }
            await #expect(throws: DBusError.self) {
                try await server.emitSignal("Blinked", of: "org.example.Light", at: "/light", [.string("often")])
            }
            await server.close()
            await client.close()
        }
    }

    @Test func `an object manager tells what there is, what comes and what goes`() async throws {
        try await withBus { fixture in
            let server = try await fixture.connect()
            let client = try await fixture.connect()
            let name = try #require(await server.uniqueName)
            await server.exportObjectManager(at: "/house")
            try await export(server, at: "/house/hall")
            try await export(server, at: "/garden")
            let added = Recorder<[DBusValue]>()
            let removed = Recorder<[DBusValue]>()
            try await client.addMatch(DBusMatchRule(sender: name, path: "/house", member: "InterfacesAdded")) {
                added.record($0.arguments)
            }
            try await client.addMatch(DBusMatchRule(sender: name, path: "/house", member: "InterfacesRemoved")) {
                removed.record($0.arguments)
            }
            let answer = try await client.call(
                destination: name, path: "/house", interface: "org.freedesktop.DBus.ObjectManager",
                method: "GetManagedObjects")
            let objects = try answer.argument(0, as: [DBusObjectPath: [String: [String: DBusValue]]].self)
            #expect(Array(objects.keys) == ["/house/hall"])
            #expect(objects["/house/hall"]?["org.example.Light"]?["Name"] == .string("lamp"))
            try await export(server, at: "/house/kitchen/stove")
            await server.unexport(at: "/house/hall")
            #expect(try await added.wait(for: 1).first?.first == .objectPath("/house/kitchen/stove"))
            #expect(
                try await removed.wait(for: 1).first == [.objectPath("/house/hall"), .strings(["org.example.Light"])])
            await #expect(throws: DBusError.self) { try await export(server, at: "/garden") }
            await server.close()
            await client.close()
        }
    }

    @Test func `busctl and dbus-send can introspect and call what is exported`() async throws {
        try await withBus { fixture in
            let server = try await fixture.connect()
            try await server.requestName("org.example.House")
            try await export(server, at: "/house/hall")
            let target = "--address=\(fixture.bus.address)"
            let shown = try run("busctl", target, "introspect", "org.example.House", "/house/hall")
            for line in [
                #"org\.example\.Light +interface"#, #"\.Toggle +method +- +b +-"#, #"\.Blinked +signal +u +- +-"#,
                #"\.On +property +b +false +emits-change writable"#, #"\.Name +property +s +"lamp" +const"#,
                #"\.History +property +au +0 +emits-invalidation"#, #"org\.freedesktop\.DBus\.Peer +interface"#,
            ] { #expect(try shown.contains(Regex(line)), "\(line) in\n\(shown)") }
            #expect(try run("busctl", target, "tree", "org.example.House").contains("/house/hall"))
            #expect(
                try run("busctl", target, "call", "org.example.House", "/house/hall", "org.example.Light", "Toggle")
                    == "b true\n")
            #expect(
                try run(
                    "busctl", target, "set-property", "org.example.House", "/house/hall", "org.example.Light", "On",
                    "b",
                    "false") == "")
            #expect(
                try run(
                    "busctl", target, "get-property", "org.example.House", "/house/hall", "org.example.Light", "On")
                    == "b false\n")
            #expect(
                try run(
                    "busctl", target, "call", "org.example.House", "/house", "org.freedesktop.DBus.Peer", "GetMachineId"
                ).hasPrefix("s \""))
            let sent = try run(
                "dbus-send", "--bus=\(fixture.bus.address)", "--print-reply", "--dest=org.example.House", "/house",
                "org.freedesktop.DBus.Introspectable.Introspect")
            #expect(sent.contains("<node name=\"hall\"/>"))
            await server.close()
        }
    }

    @Test func `an interface read from an XML file is served as that file says`() async throws {
        try await withBus { fixture in
            let server = try await fixture.connect()
            let client = try await fixture.connect()
            let declared = try DBusIntrospection(
                xml: """
                    <node><interface name="org.example.Light">
                      <method name="Dim"><arg name="level" type="d" direction="in"/></method>
                    </interface></node>
                    """)
            let interface = try #require(declared.interface("org.example.Light"))
            let levels = Recorder<Double>()
            try await server.export(
                [
                    DBusExport(
                        interface,
                        methods: [
                            "Dim": { call in
                                levels.record(try call.arguments.argument(0))
                                return []
                            }
                        ])
                ], at: "/light")
            let name = try #require(await server.uniqueName)
            try await client.call(
                destination: name, path: "/light", interface: "org.example.Light", method: "Dim",
                arguments: [.double(0.5)])
            #expect(levels.all == [0.5])
            let answer = try await client.call(
                destination: name, path: "/light", interface: "org.freedesktop.DBus.Introspectable",
                method: "Introspect")
            #expect(try DBusIntrospection(xml: answer.argument(0)).interface("org.example.Light") == interface)
            await server.close()
            await client.close()
        }
    }

    @Test func `an export that does not fit its declaration is refused`() {
        #expect(throws: DBusError.self) { try DBusExport(light) }
        let values: [String: DBusValue] = ["On": .boolean(false), "Name": .string(""), "History": .array(.uint32, [])]
        #expect(throws: DBusError.self) { try DBusExport(light, properties: values, methods: ["Toggle": { _ in [] }]) }
        #expect(throws: DBusError.self) {
            try DBusExport(
                light, properties: values.merging(["On": .int32(1)]) { $1 }, setters: ["On": { $0.arguments[0] }],
                methods: ["Toggle": { _ in [] }])
        }
        #expect(throws: DBusError.self) { try DBusExport(DBusInterface("bad")) }
        #expect(throws: DBusError.self) { try DBusExport(DBusInterface("a.b"), methods: ["X": { _ in [] }]) }
    }
}

/// Runs a program and returns what it printed, errors included.
private func run(_ arguments: String...) throws -> String {
    let command = arguments.map { "'\($0)'" }.joined(separator: " ") + " 2>&1"
    let pipe = try #require(popen(command, "r"))
    defer { pclose(pipe) }
    var output: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 4096)
    while true {
        let count = fread(&buffer, 1, buffer.count, pipe)
        if count == 0 { return String(decoding: output, as: UTF8.self) }
        output += buffer[..<count]
    }
}
