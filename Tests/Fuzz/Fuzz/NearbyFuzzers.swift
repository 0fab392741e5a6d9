// What strangers announce on the network, and what answers a probe.
import Cryptography
import DBus
import RelayProtocol

@testable import Nearby

/// A TXT record as it is on the wire: each string with its byte of length before it.
private func strings(_ bytes: [UInt8]) -> [[UInt8]] {
    var input = Input(bytes)
    var strings: [[UInt8]] = []
    while !input.isEmpty { strings.append(input.piece()) }
    return strings
}

private func wire(_ txt: [[UInt8]]) -> [UInt8] { txt.flatMap { [UInt8($0.count)] + $0 } }

private func announcement(_ name: String, _ admission: NearbyAnnouncement.Admission) -> NearbyAnnouncement {
    NearbyAnnouncement(
        channel: ChannelID(bytes: [UInt8](repeating: 1, count: 16)) ?? ChannelID(),
        name: DisplayName(cleaning: name, fallback: "?"), creator: DisplayName(cleaning: "Ann", fallback: "?"),
        pin: PublicKeyPin(subjectPublicKeyInfo: [1]), members: 9_999, admission: admission, generation: .max,
        host: HostID(bytes: [1, 2, 3, 4, 5, 6]) ?? HostID())
}

let nearbyFuzzers: [Fuzzer] = [
    Fuzzer(
        name: "nearby-announcement", maximum: 1_400,
        seeds: {
            NearbyAnnouncement.Admission.allCases.map { wire(announcement("Crane ä 2", $0).txt) }
                + [wire([utf8("ID=x"), utf8("z"), [], utf8("=")] + announcement("x", .open).txt)]
        }
    ) { bytes in
        let txt = strings(bytes)
        do {
            let one = try NearbyAnnouncement(txt: txt)
            let again = try? NearbyAnnouncement(txt: one.txt)
            expect(again == one, "what was read is written and read again")
            expect(NearbyAnnouncement.memberCounts.contains(one.members), "members are bounded")
            expect(one.txt.reduce(0) { $0 + $1.count + 1 } <= NearbyAnnouncement.sentByteCountMaximum, "it is short")
            for number in [1, 2, 99_999] {
                let instance = NearbyAnnouncer.instance(one.name, tag: NearbyAnnouncer.tag(one), number: number)
                expect((1...Avahi.instanceBytesMaximum).contains(instance.utf8.count), "a name fits into a label")
            }
        } catch {
            expect("\(error)".utf8.allSatisfy { (0x20..<0x7F).contains($0) }, "a log line has no strangers' words")
        }
    },
    Fuzzer(
        name: "nearby-probe-answer", maximum: 64,
        seeds: { [[0x80, 0, 0, 0, 0, 8] + [UInt8](0..<8) + [8] + [UInt8](8..<16) + [0, 0, 0, 1]] }
    ) { bytes in
        guard let ids = VersionProbe.answered(by: bytes) else { return }
        expect(ids.source == Array(bytes[6..<14]) && ids.destination == Array(bytes[15..<23]), "the ids change places")
        expect(VersionProbe.answered(by: VersionProbe.packet(ids)) == nil, "a probe is no answer")
    },
    Fuzzer(
        name: "nearby-signal", maximum: 1_200,
        seeds: {
            let parts = [utf8("Crane 2"), utf8("local"), utf8("crane.local"), utf8("fe80::1")].map {
                [UInt8($0.count)] + $0
            }
            return [[0, 2, 1] + parts.joined() + [0x13, 0x88] + wire(announcement("x", .open).txt)]
        }
    ) { bytes in
        var input = Input(bytes)
        let member = ["Found", "ItemNew", "ItemRemove"][input.index(below: 3)]
        let interface = member == "Found" ? Avahi.Object.resolver.interface : Avahi.Object.browser.interface
        let head: [DBusValue] = [
            .int32(Int32(input.byte())), .int32(Int32(input.byte())), .string(input.text()),
            .string(Avahi.serviceType), .string(input.text()),
        ]
        let tail: [DBusValue] = [
            .string(input.text()), .int32(0), .string(input.text()), .uint16(input.number()),
            .array(.array(.byte), strings(input.remainder()).map { .bytes($0) }), .uint32(0),
        ]
        let arguments = member == "Found" ? head + tail : head + [.uint32(0)]
        guard
            case .found(_, let place, _)? = AvahiSignal(
                interface: interface, member: member, arguments: arguments, zone: { "eth\($0)" })
        else { return }
        expect(RelayPlace("\(place.place)") == place.place, "a place can be written into a link")
        expect(place.place.host.contains("%") == (place.kind == .linkLocal), "link-local ones have a zone")
    },
]
