// A "bus" that sends rubbish: the connection is given up with an error, and nothing else happens.
import BusTestSupport
import DBus
import Glibc
import Logging
import Reactor
import TestSupport
import Testing

/// What the hostile bus says once the client has authenticated.
private enum Rubbish: String, CaseIterable, CustomTestStringConvertible {
    case random, hugeLength, badReplyType, hangUp, silence
    var testDescription: String { rawValue }

    func bytes(_ random: inout SeededGenerator) -> [UInt8] {
        switch self {
        case .random: return (0..<512).map { _ in UInt8.random(in: 0 ... .max, using: &random) }
        // Little-endian method return with a body of 2 GiB.
        case .hugeLength:
            return [0x6c, 2, 0, 1, 0xff, 0xff, 0xff, 0x7f, 1, 0, 0, 0, 8, 0, 0, 0, 5, 1, 0x75, 0, 1, 0, 0, 0]
        // A well-formed answer to message 1 whose body is a number: Hello must be answered by a string.
        case .badReplyType:
            return [0x6c, 2, 1, 1, 4, 0, 0, 0, 1, 0, 0, 0, 15, 0, 0, 0]
                + [5, 1, 0x75, 0, 1, 0, 0, 0, 8, 1, 0x67, 0, 1, 0x75, 0, 0] + [7, 0, 0, 0]
        case .hangUp, .silence: return []
        }
    }
}

@Suite struct HostileBusTests {
    @Test(arguments: Rubbish.allCases)
    private func `rubbish from the bus ends in an error`(rubbish: Rubbish) async throws {
        let seed = SeededGenerator.seed()
        let path = "/tmp/pttd-hostile-\(getpid())-\(rubbish.rawValue)"
        unlink(path)
        defer { unlink(path) }
        let listener = try #require(listen(at: path))
        defer { close(listener) }
        serve(listener, rubbish, seed)
        let loop = try EventLoop(name: "test")
        defer { loop.stop() }
        var logger = Logger(label: "test")
        logger.logLevel = .critical
        let connection = DBusConnection(to: .address("unix:path=\(path)"), on: loop, logger: logger, reconnects: false)
        let task = Task { await failure { try await connection.connect() } }
        if rubbish == .silence {
            try await Task.sleep(for: .milliseconds(200))
            await connection.close()
        }
        let error = await task.value
        #expect(error != nil, "seed \(seed)")
        #expect(await connection.uniqueName == nil)
        await connection.close()
    }
}

private func listen(at path: String) -> Int32? {
    let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
    let bound = withUnsafePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
        }
    }
    guard bound == 0, listen(descriptor, 1) == 0 else { return nil }
    return descriptor
}

/// Serves one client on a thread of its own: the SASL exchange of the D-Bus specification, then rubbish.
private func serve(_ listener: Int32, _ rubbish: Rubbish, _ seed: UInt64) {
    let work = Unmanaged.passRetained(Work { talk(listener, rubbish, seed) })
    var thread = pthread_t()
    let result = pthread_create(
        &thread, nil,
        { argument in
            if let argument { Unmanaged<Work>.fromOpaque(argument).takeRetainedValue().body() }
            return nil
        }, work.toOpaque())
    #expect(result == 0)
    pthread_detach(thread)
}

private final class Work: Sendable {
    let body: @Sendable () -> Void
    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
}

private func talk(_ listener: Int32, _ rubbish: Rubbish, _ seed: UInt64) {
    let client = accept(listener, nil, nil)
    guard client >= 0 else { return }
    defer { close(client) }
    var line: [UInt8] = []
    var byte: UInt8 = 0
    while read(client, &byte, 1) == 1 {
        line.append(byte)
        guard byte == UInt8(ascii: "\n") else { continue }
        let text = String(decoding: line, as: UTF8.self)
        line = []
        if text.contains("BEGIN") { break }
        let answer = text.contains("AUTH") ? "OK 0123456789abcdef0123456789abcdef\r\n" : "AGREE_UNIX_FD\r\n"
        _ = Array(answer.utf8).withUnsafeBytes { send(client, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
    }
    var random = SeededGenerator(seed: seed)
    let bytes = rubbish.bytes(&random)
    _ = bytes.withUnsafeBytes { send(client, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
    if rubbish == .hangUp { return }
    // Until the client has had enough.
    while read(client, &byte, 1) == 1 {}
}
