// What strangers announce on the network, and what answers a probe.
import Cryptography
import DBus
import MonotonicTime
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

/// What strangers advertise by Bluetooth, and hand out over GATT.
let bluetoothFuzzers: [Fuzzer] = [
    Fuzzer(
        name: "nearby-advertisement", maximum: 64, seeds: { [[0xFF, 0xFF] + BluetoothSignal(tag: 7).manufacturerData] }
    ) {
        bytes in
        var input = Input(bytes)
        let company: UInt16 = input.number()
        let data = input.remainder()
        guard let tag = BluetoothSignal(manufacturerData: [company: data]).tag else { return }
        expect(company == BluetoothSignal.company, "another company's data tells nothing")
        expect(BluetoothSignal(tag: tag).manufacturerData == data, "what was read is written again")
    },
    Fuzzer(name: "nearby-record", maximum: BluetoothRecord.byteCountMaximum + 64, seeds: { [record.bytes] }) { bytes in
        do {
            let one = try BluetoothRecord(bytes: bytes)
            expect(bytes.starts(with: one.bytes), "what was read is written")
            let pages = one.pages.filter { !$0.isEmpty }
            let again = try? BluetoothRecord(pages: pages.reversed())
            expect(again == one, "pages are put together in any order")
            expect(pages.allSatisfy { $0.count <= BluetoothRecord.pageByteCountMaximum }, "a page is an attribute")
            expect(one.channels.allSatisfy { $0.port > 0 }, "a port is one")
        } catch {
            expect("\(error)".utf8.allSatisfy { (0x20..<0x7F).contains($0) }, "a log line has no strangers' words")
        }
    },
    Fuzzer(
        name: "nearby-pages", maximum: 3_200,
        seeds: {
            [record.pages.filter { !$0.isEmpty }.flatMap { [UInt8($0.count & 0xFF), UInt8($0.count >> 8)] + $0 }]
        }
    ) { bytes in
        var finder = BluetoothFinder()
        let peer = BluetoothPeer(path: "/org/bluez/hci0/dev_00_00_00_00_00_01")
        var rest = bytes[...]
        var pages: [[UInt8]] = []
        while rest.count > 2, pages.count < 8 {
            let count = Int(rest[rest.startIndex]) | Int(rest[rest.startIndex + 1]) << 8
            pages.append(Array(rest.dropFirst(2).prefix(count)))
            rest = rest.dropFirst(2 + count)
        }
        let now = Instant.zero
        _ = finder.handle(.radio(true), at: now)
        _ = finder.handle(.browse(true), at: now)
        _ = finder.handle(.scanBegan, at: now)
        _ = finder.handle(.heard(peer, BluetoothSignal(tag: 1), strength: -50), at: now)
        _ = finder.handleTimeout(at: now + .seconds(5))
        let actions = finder.handle(.scanEnded, at: now + .seconds(5))
        guard case .read(_, let ticket)? = actions.first else { return expect(false, "who was heard is read") }
        _ = finder.handle(.read(ticket: ticket, .pages(pages, zones: ["wlan0"])), at: now + .seconds(6))
        expect(finder.channels.count <= BluetoothRecord.channelsMaximum, "a machine has some channels only")
        for channel in finder.channels {
            expect(channel.places.count <= NearbyChannel.placesMaximum, "places are bounded")
            expect(channel.places.allSatisfy { RelayPlace("\($0)") == $0 }, "a place can be written into a link")
        }
    },
]

private let record = BluetoothRecord(
    addresses: [[192, 168, 1, 5], [0xFE, 0x80] + [UInt8](repeating: 1, count: 14)],
    channels: [.init(announcement("Crane ä 2", .code), port: 4_433), .init(announcement("x", .open), port: 1)])
