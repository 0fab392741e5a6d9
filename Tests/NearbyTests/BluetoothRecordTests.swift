// What is handed out over GATT and advertised: what is written is read, and what is wrong is named.
import Cryptography
import RelayProtocol
import TestSupport
import Testing

@testable import Nearby

func makeRecord(_ names: [String], addresses: [[UInt8]] = [[10, 0, 0, 1]], members: Int = 1) -> BluetoothRecord {
    BluetoothRecord(
        addresses: addresses,
        channels: names.enumerated().map { index, name in
            let letters = Array(name.utf8.prefix(8))
            let channel = ChannelID(
                bytes: [UInt8(index)] + letters + [UInt8](repeating: 0, count: 15 - letters.count))
            return .init(
                makeAnnouncement(name, channel: channel ?? ChannelID(), key: UInt8(index), members: members),
                port: 4_433 + UInt16(index))
        })
}

@Suite struct BluetoothRecordTests {
    private static let long = String(repeating: "x", count: DisplayName.byteCountMaximum)

    private var full: BluetoothRecord {
        var record = makeRecord(
            Array(repeating: Self.long, count: 12),
            addresses: (0..<9).map { [UInt8](repeating: $0, count: 16) })
        for index in record.channels.indices {
            let told = record.channels[index].announcement
            record.channels[index].announcement = makeAnnouncement(
                Self.long, by: Self.long, channel: told.channel, key: UInt8(index), members: 9_999, generation: .max)
        }
        record.accessPoint = BluetoothAccessPoint("00:AA:01:00:00:0C")
        return record
    }

    @Test func `what is written is read in any order of pages`() throws {
        var offering = makeRecord(["Yard"])
        offering.accessPoint = BluetoothAccessPoint("00:AA:01:00:00:0C")
        for record in [
            makeRecord([]), makeRecord(["Crane 2"]), makeRecord(["a", "ß", "🏗️"], addresses: []), offering, full,
        ] {
            #expect(try BluetoothRecord(bytes: record.bytes) == record)
            let pages = record.pages
            #expect(pages.count == BluetoothRecord.pageCount)
            #expect(pages.allSatisfy { $0.count <= BluetoothRecord.pageByteCountMaximum })
            let used = pages.filter { !$0.isEmpty }
            #expect(BluetoothRecord.pageCount(in: used[0]) == used.count)
            #expect(try BluetoothRecord(pages: used) == record)
            #expect(try BluetoothRecord(pages: used.reversed()) == record)
        }
    }

    @Test func `the largest record fits its pages`() {
        #expect(full.channels.count == BluetoothRecord.channelsMaximum)
        #expect(full.addresses.count == BluetoothRecord.addressesMaximum)
        #expect(full.bytes.count <= BluetoothRecord.byteCountMaximum)
        #expect(full.pages.count == BluetoothRecord.pageCount)
    }

    @Test func `pages of two records are not put together`() {
        var other = full
        other.channels[0].port += 1
        #expect(other.tag != full.tag)
        let mixed = [full.pages[0], other.pages[1]] + full.pages[2...].filter { !$0.isEmpty }
        #expect(throws: BluetoothRecordError.torn) { try BluetoothRecord(pages: mixed) }
        let missing = Array(full.pages.filter { !$0.isEmpty }.dropLast())
        #expect(throws: BluetoothRecordError.torn) { try BluetoothRecord(pages: missing) }
        // The same head, and another content: a page that changed between two parts of a long read.
        var torn = full.pages.filter { !$0.isEmpty }
        torn[1][400] ^= 1
        #expect(throws: BluetoothRecordError.torn) { try BluetoothRecord(pages: torn) }
    }

    @Test func `every cut is refused`() {
        let bytes = makeRecord(["Crane 2", "Yard"]).bytes
        for count in 0..<bytes.count {
            #expect(throws: BluetoothRecordError.tooShort) { try BluetoothRecord(bytes: Array(bytes.prefix(count))) }
        }
        #expect(throws: Never.self) { try BluetoothRecord(bytes: bytes + [1, 2, 3]) }
    }

    @Test func `what has no meaning is named`() {
        let one = makeRecord(["Crane 2"])
        // Version, addresses (1 + 5 bytes), channels (1), then the first channel.
        let channel = 8
        let name = channel + 16 + 32 + 6 + 4 + 4 + 2 + 1 + 2
        func refused(_ index: Int, _ byte: UInt8, _ error: BluetoothRecordError) {
            var bytes = one.bytes
            bytes[index] = byte
            #expect(throws: error) { try BluetoothRecord(bytes: bytes) }
        }
        refused(0, 2, .otherVersion)
        refused(1, 7, .senseless("number of addresses"))
        refused(2, 5, .senseless("length of an address"))
        refused(7, 9, .senseless("number of channels"))
        refused(name - 3, 3, .senseless("admission"))
        refused(name - 5, 0xFF, .senseless("number of members"))
        refused(name, 0, .senseless("name"))
        refused(name + 1, 7, .senseless("name"))
        refused(name + 1, 0xFF, .senseless("name"))
        refused(one.bytes.count - 1, 5, .senseless("access point"))
        refused(one.bytes.count - 1, 6, .tooShort)
        #expect(throws: BluetoothRecordError.senseless("access point")) {
            try BluetoothRecord(bytes: one.bytes.dropLast() + [6, 0, 0, 0, 0, 0, 0])
        }
        #expect(throws: BluetoothRecordError.tooLong) {
            try BluetoothRecord(bytes: [UInt8](repeating: 1, count: BluetoothRecord.byteCountMaximum + 1))
        }
        for page in [[], [0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0x07], [0, 0, 0, 0, 0x11]] as [[UInt8]] {
            #expect(BluetoothRecord.pageCount(in: page) == nil)
            #expect(throws: BluetoothRecordError.self) { try BluetoothRecord(pages: [page]) }
        }
        #expect(throws: BluetoothRecordError.self) { try BluetoothRecord(pages: []) }
    }

    @Test func `the advertisement fits and is read`() {
        for tag in [0, 1, 0x0102_0304, UInt32.max] {
            let data = BluetoothSignal(tag: tag).manufacturerData
            // Flags, one UUID of 128 bits, and this.
            #expect(3 + 18 + 4 + data.count <= 31)
            #expect(BluetoothSignal(manufacturerData: [BluetoothSignal.company: data, 0x4C: [1]]).tag == tag)
        }
        for data in [[:], [0xFFFF: []], [0xFFFF: [2, 0, 0, 0, 0]], [0xFFFF: [1, 0, 0, 0]], [1: [1, 0, 0, 0, 0]]]
            as [[UInt16: [UInt8]]]
        {
            #expect(BluetoothSignal(manufacturerData: data).tag == nil)
        }
    }

    @Test func `the service has AUUID of its own`() {
        let all = [BluetoothSignal.service] + BluetoothSignal.pages
        #expect(Set(all).count == BluetoothRecord.pageCount + 1)
        #expect(all.allSatisfy { ChannelID($0) != nil && $0 == $0.lowercased() })
    }
}

@Suite struct MergedListTests {
    private func found(_ name: String, key: UInt8 = 1, _ means: NearbyMeans, strength: Int? = nil) -> NearbyChannel {
        let id = ChannelID(bytes: [UInt8](repeating: UInt8(name.utf8.count), count: 16)) ?? ChannelID()
        let place = RelayPlace(host: means == .network ? "10.0.0.1" : "10.0.0.2", port: 1)
        return NearbyChannel(
            announcement: makeAnnouncement(name, channel: id, key: key), places: [place].compactMap { $0 },
            isOwn: false,
            means: [means], signalStrength: strength)
    }

    @Test func `a channel found both ways is one line`() {
        let list = NearbyChannel.merged(
            network: [found("Crane", .network)], bluetooth: [found("Crane", .bluetooth, strength: -60)])
        #expect(list.count == 1)
        #expect(list.first?.means == [.network, .bluetooth])
        #expect(list.first?.signalStrength == -60)
        #expect(list.first?.places.map(\.host) == ["10.0.0.1", "10.0.0.2"])
    }

    @Test func `another key is another line and the list is sorted`() {
        let list = NearbyChannel.merged(
            network: [found("Crane", .network)],
            bluetooth: [found("Crane", key: 2, .bluetooth, strength: -60), found("Arc", .bluetooth, strength: -70)])
        #expect(list.map(\.announcement.name.text) == ["Arc", "Crane", "Crane"])
        #expect(list.map(\.means) == [[.bluetooth], [.network], [.bluetooth]] || list[1].means == [.bluetooth])
    }

    @Test func `strangers by Bluetooth do not push out the network`() {
        let network = (0..<100).map { found("n", key: UInt8($0), .network) }
        let bluetooth = (100..<250).map { found("b", key: UInt8($0), .bluetooth, strength: -50) }
        let list = NearbyChannel.merged(network: network, bluetooth: bluetooth)
        #expect(list.count == NearbyStateMachine.channelsMaximum)
        #expect(list.count { $0.means == [.network] } == 100)
    }
}
