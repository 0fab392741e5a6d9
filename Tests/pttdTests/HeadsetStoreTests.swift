// What was learned about headsets, over restarts.
import Files
import FoundationEssentials
import Logging
import Reactor
import Testing

@testable import pttd

@Suite struct HeadsetStoreTests {
    private let path = "/tmp/pttd-headsets-\(UUID())"

    private func withStore<Result>(_ body: (HeadsetStore, EventLoop) async throws -> Result) async throws -> Result {
        let disk = try EventLoop(name: "disk", mayWait: true)
        defer {
            disk.stop()
            try? FileManager.default.removeItem(atPath: path)
        }
        return try await body(HeadsetStore(path: path, disk: disk, logger: Logger(label: "test")), disk)
    }

    @Test func `times are there again, in milliseconds`() async throws {
        try await withStore { store, disk in
            #expect(store.load().isEmpty)
            store.save(["00:AA:01:01:00:02": [.milliseconds(400), .microseconds(1_500)]])
            await disk.perform {}
            #expect(store.load() == ["00:AA:01:01:00:02": [.milliseconds(400), .milliseconds(1)]])
        }
    }

    @Test(arguments: ["", "{", "[1]", "{\"a\": \"b\"}", String(repeating: "x", count: 20_000)])
    func `a damaged file is nothing known`(text: String) async throws {
        try await withStore { store, _ in
            try Data(text.utf8).write(to: URL(filePath: path))
            #expect(store.load().isEmpty)
        }
    }

    @Test func `a directory in its place is renamed, and what is learned next is kept`() async throws {
        try await withStore { store, disk in
            try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
            #expect(store.load().isEmpty)
            store.save(["A": [.milliseconds(1)]])
            await disk.perform {}
            #expect(store.load() == ["A": [.milliseconds(1)]])
            try FileManager.default.removeItem(atPath: path + ".damaged-1")
        }
    }

    @Test func `times out of range are bounded`() async throws {
        try await withStore { store, _ in
            try Data("{\"A\": [-5, 99999999]}".utf8).write(to: URL(filePath: path))
            #expect(store.load() == ["A": [.zero, .seconds(10)]])
        }
    }
}
