// What the log of a cluster has: records, each in one message or in several.
import Cryptography

/// A record of the log.
public enum ClusterRecord: Equatable, Sendable {
    /// Which relay the cluster is, and all records, as changes to none. The log begins with it. Once it is long, another one is written, and
    /// what is before that one is removed.
    case beginning(Beginning)
    /// A node serves from here on.
    case epoch(UInt64)
    /// What a transaction has changed.
    case changes([UInt8])

    /// See `ClusterRecord.beginning`.
    public struct Beginning: Equatable, Sendable {
        /// Identifies the cluster: 16 random bytes.
        public var cluster: [UInt8]
        /// The fingerprint of the relay's key, which all nodes have.
        public var pin: PublicKeyPin
        /// The records, in the order in which they are applied.
        public var changes: [[UInt8]]

        /// A beginning.
        public init(cluster: [UInt8], pin: PublicKeyPin, changes: [[UInt8]]) {
            self.cluster = cluster
            self.pin = pin
            self.changes = changes
        }

        /// Bytes of `cluster`.
        public static let clusterByteCount = 16
    }

    private enum Kind: UInt8 {
        case beginning = 1, epoch, changes
    }

    private var kind: Kind {
        switch self {
        case .beginning: .beginning
        case .epoch: .epoch
        case .changes: .changes
        }
    }

    private var body: [UInt8] {
        switch self {
        case .beginning(let beginning):
            beginning.changes.reduce(into: beginning.cluster + beginning.pin.bytes) { body, changes in
                body += UInt32(clamping: changes.count).bigEndianBytes + changes
            }
        case .epoch: []
        case .changes(let bytes): bytes
        }
    }

    // MARK: Messages

    /// The format of messages. Another version of the program that writes another one has another byte here.
    static let format: UInt8 = 1
    /// Format, kind, epoch, number of this part, number of parts.
    static let headByteCount = 1 + 1 + 8 + 4 + 4
    /// The most parts of a record.
    static let partsMaximum = 65_536

    /// The messages that a node of `epoch` writes, of at most so many bytes each; nil: there would be too many.
    public func messages(epoch: UInt64, byteCountMaximum: Int) -> [[UInt8]]? {
        let body = body
        let size = max(1, byteCountMaximum - Self.headByteCount)
        let count = max(1, (body.count + size - 1) / size)
        guard count <= Self.partsMaximum else { return nil }
        return (0..<count).map { part in
            [Self.format, kind.rawValue] + epoch.bigEndianBytes + UInt32(part).bigEndianBytes
                + UInt32(count).bigEndianBytes
                + body[min(body.count, part * size)..<min(body.count, (part + 1) * size)]
        }
    }

    /// Whether a message is the first one of a beginning.
    static func isStartOfBeginning(_ message: [UInt8]) -> Bool {
        message.count >= headByteCount && message[0] == format && message[1] == Kind.beginning.rawValue
            && message[10..<14].allSatisfy { $0 == 0 }
    }

    fileprivate init?(_ kind: UInt8, epoch: UInt64, _ body: [UInt8]) {
        switch Kind(rawValue: kind) {
        case .beginning:
            guard let beginning = Beginning(body) else { return nil }
            self = .beginning(beginning)
        case .epoch: self = .epoch(epoch)
        case .changes: self = .changes(body)
        case nil: return nil
        }
    }
}

extension ClusterRecord.Beginning {
    fileprivate init?(_ body: [UInt8]) {
        let pinCount = PublicKeyPin.byteCount
        guard body.count >= Self.clusterByteCount + pinCount,
            let pin = PublicKeyPin(body[Self.clusterByteCount...].prefix(pinCount))
        else { return nil }
        var rest = body[(Self.clusterByteCount + pinCount)...]
        var changes: [[UInt8]] = []
        while !rest.isEmpty {
            guard let count = UInt32(bigEndianBytes: rest.prefix(4)), rest.count - 4 >= Int(count) else { return nil }
            changes.append(Array(rest.dropFirst(4).prefix(Int(count))))
            rest = rest.dropFirst(4 + Int(count))
        }
        self.init(cluster: Array(body.prefix(Self.clusterByteCount)), pin: pin, changes: changes)
    }
}

/// Puts messages of the log together, in their order. Pure.
public struct ClusterRecordReader: Sendable {
    /// What a message has brought.
    public enum Outcome: Equatable, Sendable {
        /// A record is whole.
        case record(ClusterRecord, epoch: UInt64)
        /// More parts belong to it.
        case part
        /// No version of this program writes such a message, or a later one does.
        case unreadable
    }

    private var head: (kind: UInt8, epoch: UInt64, count: UInt32)?
    private var parts: [[UInt8]] = []

    /// A reader at the beginning of a record.
    public init() {}

    /// Whether all messages taken belong to whole records.
    public var isBetweenRecords: Bool { parts.isEmpty }

    /// Takes the next message.
    public mutating func take(_ message: [UInt8]) -> Outcome {
        guard message.count >= ClusterRecord.headByteCount, message[0] == ClusterRecord.format,
            let epoch = UInt64(bigEndianBytes: message[2..<10]), let part = UInt32(bigEndianBytes: message[10..<14]),
            let count = UInt32(bigEndianBytes: message[14..<18]), part < count, count <= ClusterRecord.partsMaximum
        else { return .unreadable }
        if part == 0 {
            // A node that ended while it wrote a record leaves parts behind.
            (head, parts) = ((message[1], epoch, count), [])
        } else if head.map({ $0 == (message[1], epoch, count) }) != true || parts.count != part {
            return .unreadable
        }
        parts.append(Array(message[ClusterRecord.headByteCount...]))
        guard parts.count == count else { return .part }
        let body = parts.count == 1 ? parts[0] : parts.flatMap { $0 }
        (head, parts) = (nil, [])
        guard let record = ClusterRecord(message[1], epoch: epoch, body) else { return .unreadable }
        return .record(record, epoch: epoch)
    }
}

extension FixedWidthInteger {
    var bigEndianBytes: [UInt8] { withUnsafeBytes(of: bigEndian) { Array($0) } }

    fileprivate init?(bigEndianBytes bytes: some Collection<UInt8>) {
        guard bytes.count == Self.bitWidth / 8 else { return nil }
        self = bytes.reduce(0) { $0 << 8 | Self($1) }
    }
}
