// The channels nearby, over restarts.
import BusTestSupport
import FoundationEssentials
import Logging
import Reactor
import RelayProtocol
import Testing

@testable import pttd

@Suite struct NearbyStoreTests {
    @Test func `whatever hosts tell of their keys, the file can be read again`() async throws {
        let path = "/tmp/pttd-nearby-\(UUID())"
        let disk = try EventLoop(name: "disk", mayWait: true)
        defer {
            disk.stop()
            try? FileManager.default.removeItem(atPath: path)
        }
        let store = NearbyStore(path: path, disk: disk, logger: Logger(label: "test"))
        // JSON escapes each sign of it.
        let identity = String(repeating: "/", count: ServerMessage.Succession.identityByteCountMaximum)
        func channels(_ count: Int) -> [NearbyRecord.Hosted] {
            (0..<count).map { _ in
                NearbyRecord.Hosted(
                    id: "\(ChannelID())", name: "Crane", token: "t", mediaKey: "k", identity: identity,
                    transportKeys: "k",
                    port: 1)
            }
        }
        var record = NearbyRecord()
        record.hosted = channels(NearbyRecord.hostedMaximum)
        record.memberships = channels(NearbyRecord.joinedMaximum)
        store.save(record)
        await disk.perform {}
        let kept = store.load()
        #expect(kept.hosted == record.hosted)
        #expect(kept.memberships == record.memberships)
    }
}
