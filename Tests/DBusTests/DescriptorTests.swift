// Descriptors that others send: whose they are, and that none is left open, whatever becomes of the message.
import BusTestSupport
import Glibc
import Reactor
import Testing

@testable import DBus

/// A socket, and how many descriptors of this process are its other end.
private final class Socket: Sendable {
    let near: Int32
    let far: Int32

    init() throws {
        var pair: [Int32] = [0, 0]
        try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &pair) == 0)
        (near, far) = (pair[0], pair[1])
    }

    deinit {
        close(near)
        close(far)
    }

    /// Descriptors of the far end, our own among them.
    var copies: Int {
        var wanted = stat()
        guard fstat(far, &wanted) == 0 else { return 0 }
        return (0..<1024).count { number in
            var found = stat()
            return fstat(Int32(number), &found) == 0 && found.st_ino == wanted.st_ino && found.st_dev == wanted.st_dev
        }
    }
}

@Suite struct DescriptorTests {
    private static let interface = DBusInterface(
        "org.example.Taker",
        methods: [
            .init("Take", in: [.init("device", .objectPath), .init("fd", .unixDescriptor)]),
            .init("Refuse", in: [.init("fd", .unixDescriptor)]), .init("Plain", in: [.init("word", .string)]),
            .init("Give", out: [.init("fd", .unixDescriptor)]),
        ])

    private func serve(
        _ fixture: BusFixture, _ taken: Recorder<DBusDescriptor>, _ gift: Socket
    ) async throws -> DBusConnection {
        let server = try await fixture.connect()
        let export = try DBusExport(
            Self.interface,
            methods: [
                "Take": { call in
                    guard let descriptor = call.arguments[1].descriptorValue else {
                        throw DBusErrorReply.failed("none")
                    }
                    taken.record(descriptor)
                    return []
                }, "Refuse": { _ in throw DBusErrorReply.failed("no") }, "Plain": { _ in [] },
                "Give": { _ in [.unixDescriptor(try DBusDescriptor(duplicating: gift.far))] },
            ])
        try await server.export([export], at: "/taker")
        return server
    }

    @Test func `a descriptor in a call is the handler's for as long as it keeps it`() async throws {
        try await withBus { fixture in
            let taken = Recorder<DBusDescriptor>()
            let socket = try Socket()
            let server = try await serve(fixture, taken, socket)
            let client = try await fixture.connect()
            try await client.call(
                destination: try #require(await server.uniqueName), path: "/taker", interface: "org.example.Taker",
                method: "Take",
                arguments: [.objectPath("/a"), .unixDescriptor(try DBusDescriptor(duplicating: socket.far))])
            #expect(try await eventually { socket.copies == 2 }, "\(socket.copies)")
            // It is the same socket, and not passed on to programs that are started.
            let kept = try #require(taken.all.first)
            #expect(fcntl(kept.number, F_GETFD) & FD_CLOEXEC != 0)
            #expect(write(socket.near, "x", 1) == 1)
            var byte: UInt8 = 0
            #expect(read(kept.number, &byte, 1) == 1)
            #expect(byte == UInt8(ascii: "x"))
            taken.clear()
            withExtendedLifetime(kept) {}
            await server.close()
            await client.close()
        }
    }

    @Test(arguments: [
        ("Take", "org.example.Taker", false), ("Refuse", "org.example.Taker", true),
        ("Plain", "org.example.Taker", true), ("None", "org.example.Taker", true), ("Take", "org.example.None", true),
    ])
    func `descriptors of calls that are refused are closed`(method: String, interface: String, isAlone: Bool)
        async throws
    {
        try await withBus { fixture in
            let taken = Recorder<DBusDescriptor>()
            let socket = try Socket()
            let server = try await serve(fixture, taken, socket)
            let client = try await fixture.connect()
            for _ in 0..<100 {
                // `Take` without the path that it declares.
                let error = await #expect(throws: DBusError.self) {
                    try await client.call(
                        destination: try #require(await server.uniqueName), path: "/taker", interface: interface,
                        method: method, arguments: [.unixDescriptor(try DBusDescriptor(duplicating: socket.far))])
                }
                #expect(error?.remoteName != nil)
            }
            #expect(try await eventually { socket.copies == 1 }, "\(socket.copies) are open")
            #expect(taken.all.isEmpty)
            await server.close()
            await client.close()
        }
    }

    @Test func `a descriptor in an answer is the caller's, and closed with it`() async throws {
        try await withBus { fixture in
            let socket = try Socket()
            let server = try await serve(fixture, .init(), socket)
            let client = try await fixture.connect()
            for _ in 0..<200 {
                let answer = try await client.call(
                    destination: try #require(await server.uniqueName), path: "/taker", interface: "org.example.Taker",
                    method: "Give")
                #expect(answer.first?.descriptorValue != nil)
            }
            #expect(try await eventually { socket.copies == 1 }, "\(socket.copies) are open")
            await server.close()
            await client.close()
        }
    }

    @Test func `a flood of descriptors does not use up those of the process`() async throws {
        try await withBus { fixture in
            let socket = try Socket()
            let server = try await serve(fixture, .init(), socket)
            let client = try await fixture.connect()
            let name = try #require(await server.uniqueName)
            // Many messages at once, each with as many as the bus lets through, to a method that takes none.
            let sent = try await fixture.loop.run {
                try client.assumeIsolated { client in
                    for _ in 0..<30 {
                        let copies = try (0..<DBusLimits.messageDescriptors).map { _ in
                            DBusValue.unixDescriptor(try DBusDescriptor(duplicating: socket.far))
                        }
                        try client.send(
                            destination: name, path: "/taker", interface: "org.example.Taker", method: "Plain",
                            arguments: [.array(.unixDescriptor, copies)])
                    }
                    return true
                }
            }
            #expect(sent)
            // The server answers others still.
            try await client.call(
                destination: name, path: "/taker", interface: "org.example.Taker", method: "Plain",
                arguments: [.string("still there")], timeout: .seconds(20))
            #expect(try await eventually { socket.copies == 1 }, "\(socket.copies) are open")
            await server.close()
            await client.close()
        }
    }
}
