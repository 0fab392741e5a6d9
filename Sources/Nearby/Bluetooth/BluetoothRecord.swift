// The record that a host offers over GATT: its channels, and the IP addresses of its machine. Pure.
import Cryptography
import RelayProtocol

/// The channels that a machine hosts, and its addresses: enough to ask for an invitation over IP, and no secret. Whoever connects can read
/// it, and anybody can hand out a false one.
///
/// Form, numbers in network order: version (1 byte, 1); number of addresses (1), each with its length (1, 4 or 16) before it; number of
/// channels (1), each: UUID (16), pin (32), host (6), generation (4), version of the relay protocol (4), members (2), admission
/// (1: 0 open, 1 code, 2 ask), port (2), name and creator with a length (1) before each; the access point with its length (1, 0 or 6)
/// before it.
public struct BluetoothRecord: Hashable, Sendable {
    /// A channel and where it is served.
    public struct Channel: Hashable, Sendable {
        /// The announcement, the same as on the network.
        public var announcement: NearbyAnnouncement
        /// The UDP port of its relay; not 0.
        public var port: UInt16

        /// A channel that is served at that port.
        public init(_ announcement: NearbyAnnouncement, port: UInt16) {
            self.announcement = announcement
            self.port = port
        }
    }

    /// The form that this code writes and reads.
    public static let version: UInt8 = 1
    /// Maximum number of channels in a record.
    public static let channelsMaximum = 8
    /// Maximum number of addresses in a record.
    public static let addressesMaximum = 6
    /// How many pages there are, empty ones included.
    public static let pageCount = 6
    /// The most bytes of a page: of an attribute (Bluetooth Core, Vol 3, Part F, 3.2.9).
    public static let pageByteCountMaximum = 512
    /// The tag, the page's number and the number of pages.
    private static let headByteCount = 5
    /// The most bytes of a record.
    public static let byteCountMaximum = pageCount * (pageByteCountMaximum - headByteCount)

    /// The machine's addresses, 4 or 16 bytes each, the best one first.
    public var addresses: [[UInt8]]
    /// The channels, in the order of the record.
    public var channels: [Channel]
    /// Where the machine offers a network by Bluetooth itself; nil: nowhere.
    public var accessPoint: BluetoothAccessPoint?

    /// A record. Further addresses and channels than fit are left out.
    public init(addresses: [[UInt8]], channels: [Channel], accessPoint: BluetoothAccessPoint? = nil) {
        self.accessPoint = accessPoint
        self.addresses = Array(addresses.filter { $0.count == 4 || $0.count == 16 }.prefix(Self.addressesMaximum))
        self.channels = Array(channels.filter { $0.port > 0 }.prefix(Self.channelsMaximum))
    }

    /// The record's bytes.
    public var bytes: [UInt8] {
        var bytes = [Self.version, UInt8(addresses.count)]
        for address in addresses { bytes += [UInt8(address.count)] + address }
        bytes.append(UInt8(channels.count))
        for channel in channels {
            let told = channel.announcement
            bytes += told.channel.bytes + told.pin.bytes + told.host.bytes
            bytes += bigEndian(told.generation) + bigEndian(told.version) + bigEndian(UInt16(clamping: told.members))
            bytes.append(told.admission.code)
            bytes += bigEndian(channel.port)
            for name in [told.name, told.creator] { bytes += [UInt8(name.text.utf8.count)] + name.text.utf8 }
        }
        let accessPoint = accessPoint?.address ?? []
        return bytes + [UInt8(accessPoint.count)] + accessPoint
    }

    /// Reads a record. Bytes after what this version knows are ignored.
    ///
    /// - Throws: An error that says what is wrong.
    public init(bytes: [UInt8]) throws(BluetoothRecordError) {
        guard bytes.count <= Self.byteCountMaximum else { throw .tooLong }
        var rest = RecordReader(bytes[...])
        guard try rest.number(UInt8.self) == Self.version else { throw .otherVersion }
        let addressCount = Int(try rest.number(UInt8.self))
        guard addressCount <= Self.addressesMaximum else { throw .senseless("number of addresses") }
        addresses = []
        for _ in 0..<addressCount {
            let length = Int(try rest.number(UInt8.self))
            guard length == 4 || length == 16 else { throw .senseless("length of an address") }
            addresses.append(try rest.take(length))
        }
        let channelCount = Int(try rest.number(UInt8.self))
        guard channelCount <= Self.channelsMaximum else { throw .senseless("number of channels") }
        channels = []
        for _ in 0..<channelCount { channels.append(try rest.channel()) }
        let length = Int(try rest.number(UInt8.self))
        guard length == 0 || length == BluetoothAccessPoint.byteCount else { throw .senseless("access point") }
        accessPoint = BluetoothAccessPoint(address: try rest.take(length))
        guard accessPoint != nil || length == 0 else { throw .senseless("access point") }
    }

    // MARK: Pages

    /// Changes with the record.
    public var tag: UInt32 { Self.tag(of: bytes) }

    /// FNV-1a: it distinguishes versions of the record and pages of different records. It gives no protection against
    /// attacks.
    private static func tag(of bytes: [UInt8]) -> UInt32 {
        bytes.reduce(2_166_136_261) { ($0 ^ UInt32($1)) &* 16_777_619 }
    }

    /// The values of the service's characteristics, `pageCount` of them; those behind the last page are empty.
    public var pages: [[UInt8]] {
        let all = bytes
        let head = bigEndian(Self.tag(of: all))
        let size = Self.pageByteCountMaximum - Self.headByteCount
        let starts = Array(stride(from: 0, to: all.count, by: size))
        var pages = starts.enumerated().map { index, start in
            head + [UInt8(index << 4 | starts.count)] + all[start..<min(start + size, all.count)]
        }
        while pages.count < Self.pageCount { pages.append([]) }
        return pages
    }

    /// The number of pages of the record that this page belongs to; nil when it is not a page.
    public static func pageCount(in page: [UInt8]) -> Int? {
        guard page.count >= headByteCount, page.count <= pageByteCountMaximum else { return nil }
        let (index, count) = (Int(page[4] >> 4), Int(page[4] & 0xF))
        return (1...pageCount).contains(count) && index < count ? count : nil
    }

    /// Puts a record together.
    ///
    /// - Parameter pages: Its pages in any order.
    /// - Throws: `.torn` when they are not of one record: read them again.
    public init(pages: [[UInt8]]) throws(BluetoothRecordError) {
        guard let count = pages.first.flatMap({ Self.pageCount(in: $0) }) else { throw .senseless("first page") }
        var parts: [Int: ArraySlice<UInt8>] = [:]
        for page in pages {
            guard Self.pageCount(in: page) == count, page.prefix(4) == pages[0].prefix(4) else { throw .torn }
            parts[Int(page[4] >> 4)] = page[Self.headByteCount...]
        }
        guard parts.count == count else { throw .torn }
        let bytes = (0..<count).flatMap { parts[$0] ?? [] }
        guard bigEndian(Self.tag(of: bytes)) == Array(pages[0].prefix(4)) else { throw .torn }
        try self.init(bytes: bytes)
    }
}

/// What is wrong with a record, in words for a log. They hold nothing that a stranger wrote.
public enum BluetoothRecordError: Error, Hashable, Sendable, CustomStringConvertible {
    /// It has more bytes than any record.
    case tooLong
    /// It ends too early.
    case tooShort
    /// It has a form that this code does not know.
    case otherVersion
    /// A part of it has no meaning.
    case senseless(String)
    /// Its pages are of different records.
    case torn

    /// A sentence.
    public var description: String {
        switch self {
        case .tooLong: "the record of channels is too long"
        case .tooShort: "the record of channels ends too early"
        case .otherVersion: "the record of channels is of another version"
        case .senseless(let part): "the record of channels has an invalid \(part)"
        case .torn: "the record of channels changed while it was read"
        }
    }
}

extension NearbyAnnouncement.Admission {
    fileprivate static let codes: [Self] = [.open, .code, .ask]
    fileprivate var code: UInt8 { UInt8(Self.codes.firstIndex(of: self) ?? 0) }
}

/// Takes a record apart from its front.
private struct RecordReader {
    private var rest: ArraySlice<UInt8>

    init(_ bytes: ArraySlice<UInt8>) { rest = bytes }

    mutating func take(_ count: Int) throws(BluetoothRecordError) -> [UInt8] {
        guard rest.count >= count else { throw .tooShort }
        defer { rest = rest.dropFirst(count) }
        return Array(rest.prefix(count))
    }

    mutating func number<Number: FixedWidthInteger & UnsignedInteger>(
        _ type: Number.Type
    ) throws(BluetoothRecordError) -> Number {
        try take(Number.bitWidth / 8).reduce(0) { Number(truncatingIfNeeded: UInt64($0) << 8) | Number($1) }
    }

    private mutating func name(_ part: String) throws(BluetoothRecordError) -> DisplayName {
        let bytes = try take(Int(try number(UInt8.self)))
        guard let name = String(validating: bytes, as: UTF8.self).flatMap({ DisplayName($0) }) else {
            throw .senseless(part)
        }
        return name
    }

    mutating func channel() throws(BluetoothRecordError) -> BluetoothRecord.Channel {
        let (uuid, pin) = (try take(ChannelID.byteCount), try take(PublicKeyPin.byteCount))
        let host = try take(HostID.byteCount)
        let (generation, version) = (try number(UInt32.self), try number(UInt32.self))
        let (members, admission) = (try number(UInt16.self), Int(try number(UInt8.self)))
        let port = try number(UInt16.self)
        let (name, creator) = (try name("name"), try name("creator"))
        guard let channel = ChannelID(bytes: uuid), let pin = PublicKeyPin(pin), let host = HostID(bytes: host) else {
            throw .senseless("identifier")
        }
        guard version > 0 else { throw .senseless("version of the protocol") }
        guard NearbyAnnouncement.memberCounts.contains(Int(members)) else { throw .senseless("number of members") }
        guard NearbyAnnouncement.Admission.codes.indices.contains(admission) else { throw .senseless("admission") }
        guard port > 0 else { throw .senseless("port") }
        return BluetoothRecord.Channel(
            NearbyAnnouncement(
                channel: channel, name: name, creator: creator, version: version, pin: pin, members: Int(members),
                admission: NearbyAnnouncement.Admission.codes[admission], generation: generation, host: host),
            port: port)
    }
}
