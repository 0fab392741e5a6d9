// Every type over a real bus and back.
import BusTestSupport
import DBus
import Glibc
import TestSupport
import Testing

@Suite struct RoundTripTests {
    @Test func `any value arrives as it was sent`() async throws {
        let seed = SeededGenerator.seed()
        try await withBus { fixture in
            let sender = try await fixture.connect()
            let receiver = try await fixture.connect()
            let received = Recorder<[DBusValue]>()
            try await receiver.addMatch(DBusMatchRule(interface: "org.example.Any", member: "Value")) {
                received.record($0.arguments)
            }
            var random = SeededGenerator(seed: seed)
            var sent: [[DBusValue]] = []
            for _ in 0..<400 {
                let arguments = (0..<Int.random(in: 0...4, using: &random)).map { _ in
                    randomValue(randomType(&random, depth: 0), &random, depth: 0)
                }
                sent.append(arguments)
                try await sender.emitSignal("Value", of: "org.example.Any", at: "/a", arguments)
            }
            let all = try await received.wait(for: sent.count)
            #expect(all.count == sent.count, "seed \(seed)")
            for (got, wanted) in zip(all, sent) where got != wanted {
                Issue.record("seed \(seed): sent \(wanted), got \(got)")
                break
            }
            await sender.close()
            await receiver.close()
        }
    }

    @Test func `the limits of every basic type survive`() async throws {
        try await withBus { fixture in
            let connection = try await fixture.connect()
            let received = Recorder<[DBusValue]>()
            try await connection.addMatch(DBusMatchRule(interface: "org.example.Any")) { received.record($0.arguments) }
            let values: [DBusValue] = [
                .byte(0), .byte(.max), .boolean(true), .boolean(false), .int16(.min), .int16(.max), .uint16(.max),
                .int32(.min), .int32(.max), .uint32(.max), .int64(.min), .int64(.max), .uint64(.max),
                .double(-.infinity), .double(.leastNonzeroMagnitude), .string(""), .string("é\u{1F600}\n'\"\u{FFFE}"),
                .objectPath("/"), .signature(""), .signature("a{sv}"), .bytes([]),
                .bytes(Array(repeating: 7, count: 100_000)),
                .array(.array(.byte), []), .array(.string, []), .dictionary(key: .string, value: .variant, [:]),
                .variant(.variant(.variant(.byte(1)))), .structure([.structure([.byte(1)]), .bytes([1])]),
                .array(.structure([.int32, .string]), [.structure([.int32(1), .string("x")])]),
            ]
            try await connection.emitSignal("Value", of: "org.example.Any", at: "/a", values)
            #expect(try await received.wait(for: 1).first == values)
            await connection.close()
        }
    }

    @Test func `a descriptor arrives open, duplicated, and is closed with its value`() async throws {
        try await withBus { fixture in
            let server = try await fixture.connect()
            let client = try await fixture.connect()
            let interface = DBusInterface(
                "org.example.Pipe",
                methods: [
                    .init("Read", in: [.init("pipe", .unixDescriptor)], out: [.init("copy", .array(.unixDescriptor))])
                ])
            let export = try DBusExport(
                interface,
                methods: [
                    "Read": { call in
                        guard let descriptor = call.arguments[0].descriptorValue else {
                            throw DBusErrorReply.failed("none")
                        }
                        var byte: UInt8 = 0
                        guard read(descriptor.number, &byte, 1) == 1, byte == 42 else {
                            throw DBusErrorReply.failed("nothing in the pipe")
                        }
                        return [.array(.unixDescriptor, [.unixDescriptor(descriptor)])]
                    }
                ])
            try await server.export([export], at: "/pipe")
            var ends: [Int32] = [0, 0]
            #expect(pipe(&ends) == 0)
            var value: UInt8 = 42
            #expect(write(ends[1], &value, 1) == 1)
            do {
                let answer = try await client.call(
                    destination: try #require(await server.uniqueName), path: "/pipe", interface: "org.example.Pipe",
                    method: "Read", arguments: [.unixDescriptor(DBusDescriptor(duplicating: ends[0]))])
                let copy = try #require(answer[0].arrayValue?.first?.descriptorValue)
                #expect(copy.number != ends[0])
                value = 43
                #expect(write(ends[1], &value, 1) == 1)
                var byte: UInt8 = 0
                #expect(read(copy.number, &byte, 1) == 1)
                #expect(byte == 43)
            }
            let end = ends[0]
            let isClosed = try await eventually { openDescriptors(of: end) == 1 }
            #expect(isClosed, "still open: \(openDescriptors(of: end))")
            close(ends[0])
            close(ends[1])
            await server.close()
            await client.close()
        }
    }

    @Test func `what must not go on the wire is refused and the connection lives on`() async throws {
        try await withBus { fixture in
            let connection = try await fixture.connect()
            var deep = DBusValue.byte(1)
            for _ in 0..<70 { deep = .variant(deep) }
            let bad: [DBusValue] = [
                .string("a\0b"), .structure([]), .array(.string, [.int32(1)]), .array(.byte, [.string("")]),
                .dictionary(key: .string, value: .byte, [.int32(1): .byte(1)]),
                .dictionary(key: .variant, value: .byte, [:]), .array(.structure([]), []), .variant(.structure([])),
                deep,
                .bytes(Array(repeating: 0, count: DBusLimits.messageBytes + 1)),
                .array(
                    .unixDescriptor, Array(repeating: .unixDescriptor(try DBusDescriptor(duplicating: 0)), count: 20)),
                .signature(DBusSignature(types: [.structure([])])), .unixDescriptor(DBusDescriptor(owning: -1)),
            ]
            for value in bad {
                await #expect(throws: DBusError.self, "\(value.type)") {
                    try await connection.emitSignal("Value", of: "org.example.Any", at: "/a", [value])
                }
            }
            await #expect(throws: DBusError.self) { try await connection.emitSignal("bad name", of: "a.b", at: "/a") }
            await #expect(throws: DBusError.self) { try await connection.emitSignal("Good", of: "nodots", at: "/a") }
            await #expect(throws: DBusError.self) {
                try await connection.call(destination: "bad name", path: "/", interface: "a.b", method: "C")
            }
            #expect(try await connection.owner(of: "org.freedesktop.DBus") == "org.freedesktop.DBus")
            await connection.close()
        }
    }
}

/// How many descriptors of this process refer to the same pipe as `descriptor`.
private func openDescriptors(of descriptor: Int32) -> Int {
    var wanted = stat()
    guard fstat(descriptor, &wanted) == 0 else { return 0 }
    return (0..<Int32(1024)).count {
        var found = stat()
        // Both ends of a pipe are one inode: count those that read.
        return fstat($0, &found) == 0 && found.st_ino == wanted.st_ino && found.st_dev == wanted.st_dev
            && fcntl($0, F_GETFL) & O_ACCMODE == O_RDONLY
    }
}

private func randomType(_ random: inout SeededGenerator, depth: Int) -> DBusType {
    let basic: [DBusType] = [
        .byte, .boolean, .int16, .uint16, .int32, .uint32, .int64, .uint64, .double, .string, .objectPath, .signature,
    ]
    switch Int.random(in: 0..<(depth < 4 ? 10 : 6), using: &random) {
    case 6: return .array(randomType(&random, depth: depth + 1))
    case 7: return .dictionary(key: basic.randomElement(using: &random)!, value: randomType(&random, depth: depth + 1))
    case 8:
        return .structure(
            (0..<Int.random(in: 1...4, using: &random)).map { _ in randomType(&random, depth: depth + 1) })
    case 9: return .variant
    default: return basic.randomElement(using: &random)!
    }
}

private func randomValue(_ type: DBusType, _ random: inout SeededGenerator, depth: Int) -> DBusValue {
    let count = Int.random(in: 0...3, using: &random)
    switch type {
    case .byte: return .byte(.random(in: .min ... .max, using: &random))
    case .boolean: return .boolean(.random(using: &random))
    case .int16: return .int16(.random(in: .min ... .max, using: &random))
    case .uint16: return .uint16(.random(in: .min ... .max, using: &random))
    case .int32: return .int32(.random(in: .min ... .max, using: &random))
    case .uint32: return .uint32(.random(in: .min ... .max, using: &random))
    case .int64: return .int64(.random(in: .min ... .max, using: &random))
    case .uint64: return .uint64(.random(in: .min ... .max, using: &random))
    case .double: return .double(.random(in: -1e300...1e300, using: &random))
    case .string: return .string(randomText(&random))
    case .objectPath: return .objectPath(["/", "/a", "/org/example/_1"].randomElement(using: &random)!)
    case .signature: return .signature(DBusSignature(types: [randomType(&random, depth: 3)]))
    case .unixDescriptor, .variant:
        let inner = randomType(&random, depth: depth + 1)
        return .variant(randomValue(inner, &random, depth: depth + 1))
    case .array(.byte): return .bytes((0..<count).map { _ in .random(in: .min ... .max, using: &random) })
    case .array(let element):
        return .array(element, (0..<count).map { _ in randomValue(element, &random, depth: depth + 1) })
    case .dictionary(let key, let value):
        var entries: [DBusValue: DBusValue] = [:]
        for _ in 0..<count {
            entries[randomValue(key, &random, depth: depth + 1)] = randomValue(value, &random, depth: depth + 1)
        }
        return .dictionary(key: key, value: value, entries)
    case .structure(let fields): return .structure(fields.map { randomValue($0, &random, depth: depth + 1) })
    }
}

private func randomText(_ random: inout SeededGenerator) -> String {
    var text = ""
    for _ in 0..<Int.random(in: 0...12, using: &random) {
        let number = UInt32.random(in: 1...0x10FFFF, using: &random)
        if let scalar = Unicode.Scalar(Bool.random(using: &random) ? number : number % 127 + 1) {
            text.unicodeScalars.append(scalar)
        }
    }
    return text
}
