// Arguments that mean nothing: the answer names what is wrong and what would be right, and nothing happens.
import BusTestSupport
import DBus
import FoundationEssentials
import PTTBus
import PushToTalkCore
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(1))) struct ArgumentTests {
    private struct BadCall: Sendable {
        var interface = PTTBus.channelInterface
        var method: String
        var arguments: [DBusValue]
        var words: [String]
    }

    private static let none = DBusValue.properties([:])
    private static let uuid = DBusValue.string("127face1-cb21-11e5-93d0-0002a5d5c51b")
    private static let long = DBusValue.string(String(repeating: "ä", count: 129))

    private static let badCalls: [BadCall] = [
        BadCall(method: "SetTransmissionMode", arguments: [.string("loud")], words: ["'loud'", "'listenOnly'"]),
        BadCall(method: "SetServiceStatus", arguments: [.string("Ready")], words: ["'Ready'", "'ready'"]),
        BadCall(method: "SetDescriptor", arguments: [long, none], words: ["'name'", "258", "256"]),
        BadCall(method: "SetDescriptor", arguments: [.string("a\u{7}b"), none], words: ["control characters"]),
        BadCall(
            method: "SetDescriptor", arguments: [.string("A"), .properties(["Link": .string("ptt://")])],
            words: ["'Link'", "'Image'"]),
        BadCall(
            method: "SetDescriptor", arguments: [.string("A"), .properties(["Image": .bytes([1, 2, 3])])],
            words: ["PNG", "JPEG"]),
        BadCall(
            method: "SetDescriptor", arguments: [.string("A"), .properties(["Image": .string("../icon")])],
            words: ["icon name"]),
        BadCall(
            method: "SetDescriptor", arguments: [.string("A"), .properties(["Image": .int32(1)])],
            words: ["'Image'", "'ay'"]),
        BadCall(method: "SetActiveRemoteParticipant", arguments: [.string(""), none], words: ["'name' is empty"]),
        BadCall(method: "ReportPushToTalkMessage", arguments: [.string("[1]")], words: ["JSON object"]),
        BadCall(method: "ReportPushToTalkMessage", arguments: [.string("{\"a\": nul}")], words: ["JSON object"]),
        BadCall(method: "ReportPushToTalkMessage", arguments: [.string("{} {}")], words: ["JSON object"]),
        BadCall(
            method: "ReportPushToTalkMessage",
            arguments: [
                .string(String(repeating: "{\"a\":", count: 600) + "1" + String(repeating: "}", count: 600))
            ],
            words: ["JSON object"]),
        BadCall(
            method: "ReportPushToTalkMessage",
            arguments: [.string("{\"a\": \"" + String(repeating: "x", count: 4_096) + "\"}")], words: ["at most 4096"]),
        BadCall(
            interface: PTTBus.managerInterface, method: "JoinChannel", arguments: [.string("127"), .string("A"), none],
            words: ["'127'", "not a UUID"]),
        BadCall(
            interface: PTTBus.managerInterface, method: "JoinChannel", arguments: [.string(""), .string("A"), none],
            words: ["'Link'"]),
        BadCall(
            interface: PTTBus.managerInterface, method: "JoinChannel",
            arguments: [uuid, .string("A"), .properties(["Media": .string("mine")])],
            words: ["'mine'", "'pttd', 'application'"]),
        BadCall(
            interface: PTTBus.managerInterface, method: "JoinChannel",
            arguments: [uuid, .string("A"), .properties(["Media": .string("application")])],
            words: ["RegisterApplication"]),
        BadCall(
            interface: PTTBus.managerInterface, method: "JoinChannel",
            arguments: [uuid, .string("A"), .properties(["Link": .int32(4)])], words: ["'Link'", "'s'"]),
        BadCall(
            interface: PTTBus.managerInterface, method: "JoinChannel",
            arguments: [uuid, .string("A"), .properties(["Medium": .string("pttd")])],
            words: ["'Medium'", "'Image', 'Link', 'Media'"]),
        BadCall(
            interface: PTTBus.managerInterface, method: "LeaveChannel", arguments: [.string("")],
            words: ["UUID is empty"]),
        BadCall(
            interface: PTTBus.managerInterface, method: "Inhibit",
            arguments: [.string("sleep"), .string("A"), .string("B")], words: ["'sleep'", "'call'"]),
        BadCall(
            interface: PTTBus.managerInterface, method: "Inhibit",
            arguments: [.string("call"), .string(""), .string("B")], words: ["'who' is empty"]),
        BadCall(
            interface: PTTBus.managerInterface, method: "Inhibit",
            arguments: [.string("call"), .string("A"), .string(String(repeating: "b", count: 513))],
            words: ["'why'", "513", "512"]),
        BadCall(
            interface: PTTBus.managerInterface, method: "RegisterApplication",
            arguments: [.string("no name"), .objectPath("/a"), none], words: ["not a bus name", "org.example.Radio"]),
        BadCall(
            interface: PTTBus.managerInterface, method: "RegisterApplication",
            arguments: [.string(":1.1"), .objectPath("/a"), none], words: ["unique name"]),
        BadCall(
            interface: PTTBus.managerInterface, method: "RegisterApplication",
            arguments: [.string(""), .objectPath("/a"), .properties(["Name": .string("x")])],
            words: ["'Name'", "there are none"]),
    ]

    @Test func `an argument that means nothing is named and changes nothing`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let caller = try await fixture.connect()
            for call in Self.badCalls {
                let path = call.interface == PTTBus.channelInterface ? Served.path : "/org/pttd"
                let error = await errorOf {
                    try await caller.call(
                        destination: PTTBus.name, path: path, interface: call.interface, method: call.method,
                        arguments: call.arguments)
                }
                #expect(error?.name == "org.freedesktop.DBus.Error.InvalidArgs", "\(call.method)")
                for words in call.words {
                    #expect(error?.message.contains(words) == true, "\(call.method): \(error?.message ?? "")")
                }
            }
            #expect(served.controls.asked.all.isEmpty)
            #expect(await served.controls.holders.isEmpty)
            await caller.close()
            await served.close()
        }
    }

    @Test func `an image that is too large is a limit and not a mistake`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let caller = try await fixture.connect()
            let image = DBusValue.bytes(pngBytes + [UInt8](repeating: 0, count: 1 << 20))
            let error = await errorOf {
                try await caller.call(
                    destination: PTTBus.name, path: Served.path, interface: PTTBus.channelInterface,
                    method: "SetDescriptor", arguments: [.string("A"), .properties(["Image": image])])
            }
            #expect(error?.name == "org.freedesktop.DBus.Error.LimitsExceeded")
            #expect(error?.message.contains("1048587") == true && error?.message.contains("1048576") == true)
            await caller.close()
            await served.close()
        }
    }

    @Test func `a flood of joins ends at the entrance`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let (caller, other) = (try await fixture.connect(), try await fixture.connect())
            let link = DBusValue.string("ptt://relay.example:7443/Crew?channel=127face1-cb21-11e5-93d0-0002a5d5c51b")
            @Sendable func join(_ bus: DBusConnection) async -> String? {
                await errorOf {
                    try await bus.call(
                        destination: PTTBus.name, path: "/org/pttd", interface: PTTBus.managerInterface,
                        method: "JoinChannel", arguments: [.string(""), .string("A"), .properties(["Link": link])])
                }?.name
            }
            var refused = 0
            for _ in 0..<200 where await join(caller) == "org.freedesktop.DBus.Error.LimitsExceeded" { refused += 1 }
            #expect(refused > 100 && served.controls.asked.all.count == 200 - refused)
            // Others have a share of their own.
            #expect(await join(other) == nil)
            await caller.close()
            await other.close()
            await served.close()
        }
    }

    @Test func `random calls leave the daemon as it was`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            var random = SeededGenerator()
            let caller = try await fixture.connect()
            let types = ["s", "a{sv}", "o", "b", "i", "ay", "h", "as", "v", "u", "(sssu)", "g", "x"]
            let interfaces = try [PTTBus.managerInterface, PTTBus.channelInterface, PTTBus.accessoryInterface].map {
                try PTTBus.declaration(of: $0)
            }
            var accepted = 0
            for _ in 0..<3_000 {
                let interface = interfaces[Int.random(in: 0..<interfaces.count, using: &random)]
                guard let method = interface.methods.randomElement(using: &random) else { continue }
                // Mostly of the right types, so that the values are looked at.
                let signature = method.input.map { argument in
                    random.chance(90) ? argument.type.code : types.randomElement(using: &random) ?? "s"
                }
                let arguments = signature.map { Self.value(of: $0, using: &random) }
                let path: DBusObjectPath =
                    interface.name == PTTBus.managerInterface
                    ? "/org/pttd" : random.chance(90) ? Served.path : "/org/pttd/channel/none"
                do throws(DBusError) {
                    try await caller.call(
                        destination: PTTBus.name, path: path, interface: interface.name, method: method.name,
                        arguments: arguments)
                    accepted += 1
                } catch {
                    // The bus or the daemon answered; a silent or dead daemon is what must not be.
                    #expect(error.remoteName != nil, "\(method.name) \(arguments): \(error)")
                }
            }
            #expect(accepted > 0)
            await caller.close()
            #expect(try await eventually { await served.controls.holders.isEmpty })
            #expect(try await eventually { await served.controls.applications.isEmpty })
            #expect(try await eventually { try await served.client.inhibitors().isEmpty })
            try await served.client.refresh()
            let snapshot = await served.client.snapshot
            #expect(snapshot.activeChannel?.properties == Served.channel)
            #expect(Array(snapshot.accessories.values) == [Served.accessory])
            await served.close()
        }
    }

    private static func text(using random: inout SeededGenerator) -> String {
        switch Int.random(in: 0..<10, using: &random) {
        case 0: return ""
        case 1: return String(repeating: "ü", count: Int.random(in: 0..<9_000, using: &random))
        case 2: return "127face1-cb21-11e5-93d0-0002a5d5c51b"
        case 3:
            return ["call", "ready", "halfDuplex", "pttd", "{}", "{\"a\":[[[]]]}"].randomElement(using: &random) ?? ""
        case 4: return String(repeating: "[", count: Int.random(in: 0..<5_000, using: &random))
        case 5:
            let depth = Int.random(in: 1..<2_000, using: &random)
            return String(repeating: "{\"a\":", count: depth) + "1" + String(repeating: "}", count: depth)
        default:
            return String(
                String.UnicodeScalarView(
                    (0..<Int.random(in: 0..<40, using: &random)).compactMap { _ in
                        Unicode.Scalar(UInt32.random(in: 1...0x10_FFFF, using: &random))
                    }))
        }
    }

    private static func value(of type: String, using random: inout SeededGenerator) -> DBusValue {
        switch type {
        case "s": return .string(text(using: &random))
        case "b": return .boolean(random.chance(50))
        case "i": return .int32(Int32.random(in: .min ... .max, using: &random))
        case "u": return .uint32(UInt32.random(in: 0 ... .max, using: &random))
        case "x": return .int64(Int64.random(in: .min ... .max, using: &random))
        case "o": return .objectPath(random.chance(50) ? "/" : "/some/where")
        case "ay": return .bytes(pngBytes.prefix(Int.random(in: 0..<10, using: &random)) + random.bytes(20))
        case "as": return .strings([text(using: &random)])
        case "v": return .variant(.string(text(using: &random)))
        case "g": return .signature(DBusSignature(types: [.string]))
        case "h":
            return (try? DBusDescriptor(duplicating: 0)).map { .unixDescriptor($0) } ?? .string("no descriptor")
        case "(sssu)": return Inhibitor(what: "call", who: "a", why: "b", processID: 1).busValue
        default:
            var options: [String: DBusValue] = [:]
            let inner = ["s", "ay", "i", "b", "as", "v", "h"]
            for key in ["Image", "Link", "Media", text(using: &random)] where random.chance(25) {
                options[key] = value(of: inner.randomElement(using: &random) ?? "s", using: &random)
            }
            return .properties(options)
        }
    }
}
