// The records of a service, as Avahi is given them.
import DBus
import Testing

@testable import Nearby

@Suite struct RecordTests {
    private let offer = AvahiOffer(instance: "Crane 2 ä.\\", host: nil, port: 0x1388, txt: [[1, 2], []])

    private func bytes(_ labels: [String]) -> [UInt8] {
        labels.flatMap { [UInt8($0.utf8.count)] + Array($0.utf8) } + [0]
    }

    @Test func `a service is four records`() throws {
        let records = try #require(AvahiRecords(offer, host: "crane.local")).arguments
        let instance = "Crane\\0322\\032\\195\\164\\046\\092._pttd._udp.local"
        let type = ["_pttd", "_udp", "local"]
        let expected: [(String, UInt16, UInt32, UInt32, [UInt8])] = [
            ("_services._dns-sd._udp.local", 12, 0, 4_500, bytes(type)),
            ("_pttd._udp.local", 12, 0, 4_500, bytes([offer.instance] + type)),
            (instance, 33, 3, 120, [0, 0, 0, 0, 0x13, 0x88] + bytes(["crane", "local"])),
            (instance, 16, 3, 4_500, [2, 1, 2, 0]),
        ]
        #expect(records.count == expected.count)
        for (record, (name, kind, flags, lifetime, data)) in zip(records, expected) {
            #expect(
                record == [
                    .int32(-1), .int32(-1), .uint32(flags), .string(name), .uint16(1), .uint16(kind),
                    .uint32(lifetime), .bytes(data),
                ])
        }
    }

    @Test func `a host name that is none is not used`() {
        let long = String(repeating: "x", count: 64)
        for host in ["", "crane", "\(long).local", "a\\.b.local", String(repeating: "x.", count: 130)] {
            #expect(AvahiRecords(offer, host: host) == nil)
        }
    }
}
