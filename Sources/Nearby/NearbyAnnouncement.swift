// A host's announcement of its channel, as the TXT record of a DNS-SD service.
import Cryptography
import RelayProtocol

/// A host's announcement of its channel: the TXT record of a `_pttd._udp` service (RFC 6763, section 6). It never holds
/// a secret, and everybody on the network can read it or announce a false one.
public struct NearbyAnnouncement: Hashable, Sendable {
    /// How somebody gets into the channel.
    public enum Admission: String, Hashable, Sendable, CaseIterable {
        /// Whoever asks is given the invitation.
        case open
        /// Whoever knows the code is given the invitation.
        case code
        /// The creator is asked about each newcomer.
        case ask
    }

    /// The version of what hosts tell that this code speaks.
    public static let versionCurrent: UInt32 = 1
    /// The range of the member count. A larger count is announced as the maximum.
    public static let memberCounts = 0...9_999
    /// The most bytes of a TXT record that is sent, each string with its byte of length.
    public static let sentByteCountMaximum = 900
    /// The most bytes of a TXT record that is read (RFC 6763, section 6.2): a later version may tell more.
    public static let readByteCountMaximum = 1_300

    /// The channel.
    public var channel: ChannelID
    /// What the channel is called.
    public var name: DisplayName
    /// The creator of the channel.
    public var creator: DisplayName
    /// The version of the relay protocol and of the announcement.
    public var version: UInt32
    /// The public key of the relay that hosts the channel.
    public var pin: PublicKeyPin
    /// How many members the channel has now: 0 to 9,999.
    public var members: Int {
        didSet { members = Self.bounded(members) }
    }
    /// How somebody gets in.
    public var admission: Admission
    /// How many hosts the channel has had before this one.
    public var generation: UInt32
    /// Tells this host of the channel from others.
    public var host: HostID

    /// An announcement. `members` is brought into `memberCounts`.
    public init(
        channel: ChannelID, name: DisplayName, creator: DisplayName, version: UInt32 = versionCurrent,
        pin: PublicKeyPin, members: Int, admission: Admission, generation: UInt32 = 0, host: HostID
    ) {
        self.channel = channel
        self.name = name
        self.creator = creator
        self.version = version
        self.pin = pin
        self.members = Self.bounded(members)
        self.admission = admission
        self.generation = generation
        self.host = host
    }

    private static func bounded(_ members: Int) -> Int {
        min(max(members, memberCounts.lowerBound), memberCounts.upperBound)
    }

    /// The strings of the TXT record, in the order in which they are sent.
    public var txt: [[UInt8]] {
        Key.allCases.map { Array("\($0.rawValue)=\(value(of: $0))".utf8) }
    }

    private func value(of key: Key) -> String {
        switch key {
        case .version: "\(version)"
        case .channel: "\(channel)"
        case .name: name.text
        case .creator: creator.text
        case .pin: "\(pin)"
        case .members: "\(members)"
        case .admission: admission.rawValue
        case .generation: "\(generation)"
        case .host: "\(host)"
        }
    }

    /// Reads a TXT record. Keys that it does not know are ignored; of equal keys the first counts; the case of keys does not matter
    /// (RFC 6763, section 6.4).
    ///
    /// - Throws: An error that says which key is missing or wrong.
    public init(txt: [[UInt8]]) throws(NearbyAnnouncementError) {
        let values = try TXTValues(txt)
        version = try values.read(.version, "is not a number from 1 to 4294967295") {
            decimal($0).flatMap { $0 > 0 ? $0 : nil }
        }
        channel = try values.read(.channel, "is not a UUID") { ChannelID($0) }
        name = try values.read(.name, "is not a name of 1 to \(DisplayName.byteCountMaximum) bytes") { DisplayName($0) }
        creator = try values.read(.creator, "is not a name of 1 to \(DisplayName.byteCountMaximum) bytes") {
            DisplayName($0)
        }
        pin = try values.read(.pin, "is not 32 bytes of base64url") { PublicKeyPin($0) }
        members = try values.read(.members, "is not a number from 0 to \(Self.memberCounts.upperBound)") {
            decimal($0).map { Int($0) }.flatMap { Self.memberCounts.contains($0) ? $0 : nil }
        }
        admission = try values.read(.admission, "is none of open, code and ask") { Admission(rawValue: $0) }
        generation = try values.read(.generation, "is not a number from 0 to 4294967295") { decimal($0) }
        host = try values.read(.host, "is not \(HostID.byteCount) bytes of base64url") { HostID($0) }
    }

    /// The keys of the record, in the order in which they are sent.
    enum Key: String, CaseIterable {
        case version = "v"
        case channel = "id"
        case name
        case creator = "by"
        case pin
        case members = "n"
        case admission = "adm"
        case generation = "gen"
        case host
    }
}

/// What is wrong with a TXT record, in words for a log.
public enum NearbyAnnouncementError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The record, or one string of it, has more bytes than may be.
    case tooLong
    /// A key is not there.
    case missing(String)
    /// A key has no readable value.
    case bad(String, reason: String)

    /// A sentence for a log. It holds nothing that a stranger wrote.
    public var description: String {
        switch self {
        case .tooLong: "the TXT record is too long"
        case .missing(let key): "the TXT record has no \(key)="
        case .bad(let key, let reason): "in the TXT record, \(key)= \(reason)"
        }
    }
}

/// The strings of a TXT record by the keys that are known.
private struct TXTValues {
    private var values: [NearbyAnnouncement.Key: [UInt8]?] = [:]

    init(_ txt: [[UInt8]]) throws(NearbyAnnouncementError) {
        var size = 0
        for string in txt {
            size += string.count + 1
            guard string.count <= 255, size <= NearbyAnnouncement.readByteCountMaximum else { throw .tooLong }
            let name = string.prefix { $0 != UInt8(ascii: "=") }
            guard let key = NearbyAnnouncement.Key(rawValue: String(decoding: name.map(lowercased), as: UTF8.self)),
                values[key] == nil
            else { continue }
            // A key without "=" is there and has no value.
            values[key] = .some(name.count < string.count ? Array(string[(name.count + 1)...]) : nil)
        }
    }

    func read<Value>(
        _ key: NearbyAnnouncement.Key, _ reason: String, _ parse: (String) -> Value?
    ) throws(NearbyAnnouncementError) -> Value {
        guard let bytes = values[key] else { throw .missing(key.rawValue) }
        guard let text = bytes.flatMap({ String(validating: $0, as: UTF8.self) }), let value = parse(text) else {
            throw .bad(key.rawValue, reason: reason)
        }
        return value
    }
}

private func lowercased(_ byte: UInt8) -> UInt8 {
    (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte) ? byte | 0x20 : byte
}

/// A number in the one form in which it is written: digits, no sign, no zero before others.
private func decimal(_ text: String) -> UInt32? {
    guard let value = UInt32(text), String(value) == text else { return nil }
    return value
}
