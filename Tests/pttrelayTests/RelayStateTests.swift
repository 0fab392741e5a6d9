// What a relay keeps over a restart, and for how long.
import Glibc
import Logging
import QUIC
import RelayServer
import Settings
import Testing

@testable import pttrelay

@Suite struct RelayStateTests {
    private let directory: String

    init() throws {
        var template = Array("/tmp/pttrelay-state-XXXXXX".utf8CString)
        let made = mkdtemp(&template)
        try #require(made != nil)
        directory = String(decoding: template.dropLast().map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
    }

    private func open() throws -> RelayState {
        try RelayState.open(directory, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    }

    private func existing() throws -> RelayState {
        try RelayState.existing(directory, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    }

    private func remove() {
        for file in ["identity.pem", "transport.key", "relay.sqlite", "relay.sqlite-wal", "relay.sqlite-shm"] {
            unlink(directory + "/" + file)
        }
        rmdir(directory)
    }

    @Test func `the transport's secrets stay over restarts, but for the tickets' key, which is renewed in time`() throws
    {
        defer { remove() }
        let first = try #require(try open().transportKeys)
        #expect(try open().transportKeys == first)
        let path = directory + "/transport.key"
        var status = stat()
        #expect(stat(path, &status) == 0 && status.st_mode & 0o777 == 0o600)
        // As if it had been written eight days ago.
        var times = [
            timeval(tv_sec: time(nil) - 8 * 86_400, tv_usec: 0), timeval(tv_sec: time(nil) - 8 * 86_400, tv_usec: 0),
        ]
        #expect(utimes(path, &times) == 0)
        // Who only looks, as a command without a running relay does, leaves the file alone.
        #expect(stat(path, &status) == 0)
        let writtenAt = status.st_mtim.tv_sec
        for _ in 0..<2 { #expect(try existing().transportKeys == nil) }
        let kept = RelayTransportKeys(bytes: try SettingsFile.contents(of: path))
        #expect(kept == first)
        #expect(stat(path, &status) == 0 && status.st_mtim.tv_sec == writtenAt)
        let renewed = try #require(try open().transportKeys)
        #expect(renewed != first)
        #expect(renewed.bytes.suffix(32) == first.bytes.suffix(32), "former members still learn that it was restarted")
        #expect(renewed.bytes.prefix(64) != first.bytes.prefix(64))
        #expect(try open().transportKeys == renewed)
        // A machine whose clock is behind does not throw keys away.
        times = [
            timeval(tv_sec: time(nil) + 90 * 86_400, tv_usec: 0), timeval(tv_sec: time(nil) + 90 * 86_400, tv_usec: 0),
        ]
        #expect(utimes(path, &times) == 0)
        #expect(try open().transportKeys == renewed)
    }
}
