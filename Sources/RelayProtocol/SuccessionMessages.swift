// The message about the succession of a channel's hosts, and its coding in protobuf.
import Cryptography
import FoundationEssentials
import SwiftProtobuf

/// Tells the hosts of one channel from each other: they all have the channel's key. Drawn by chance.
public struct HostID: Hashable, Sendable, Comparable, CustomStringConvertible {
    /// The number of bytes.
    public static let byteCount = 6
    /// The bytes, in the order in which they are compared.
    public let bytes: [UInt8]

    /// The id of 6 bytes, nil for any other number of bytes.
    public init?(bytes: some Collection<UInt8>) {
        guard bytes.count == Self.byteCount else { return nil }
        self.bytes = [UInt8](bytes)
    }

    /// Reads 8 characters of base64url (RFC 4648, section 5). nil for anything else.
    public init?(_ text: String) {
        guard let bytes = Base64URL.decode(text) else { return nil }
        self.init(bytes: bytes)
    }

    /// A fresh id.
    public init() { bytes = SecureRandom.bytes(Self.byteCount) }

    /// By their bytes.
    public static func < (lhs: Self, rhs: Self) -> Bool { lhs.bytes.lexicographicallyPrecedes(rhs.bytes) }

    /// 8 characters of base64url.
    public var description: String { Base64URL.encode(bytes) }
}

extension ServerMessage {
    /// The secrets with which a member can host the channel, and its position in the order of successors.
    public struct Succession: Sendable, Hashable {
        /// The most members in `order`; further ones are left out.
        public static let orderMaximum = 8
        /// The longest `identity`, in bytes.
        public static let identityByteCountMaximum = 8_192
        /// The longest `transportKeys`, in bytes.
        public static let transportKeysByteCountMaximum = 1_024

        /// How many hosts the channel has had before this one.
        public var generation: UInt32
        /// The present host.
        public var host: HostID
        /// The members who offered to host the channel, in the order in which their turn comes.
        public private(set) var order: [MemberID]
        /// The private key and the certificate of the channel's hosts, as PEM.
        public var identity: String
        /// The secrets of the hosts' transport (`RelayTransportKeys`).
        public var transportKeys: [UInt8]
        /// The creator of the channel.
        public var creator: DisplayName
        /// How somebody nearby gets the invitation.
        public var admission: AdmissionRule

        /// The message with all its values.
        public init(
            generation: UInt32, host: HostID, order: [MemberID] = [], identity: String, transportKeys: [UInt8],
            creator: DisplayName, admission: AdmissionRule = .open
        ) {
            (self.generation, self.host, self.admission) = (generation, host, admission)
            (self.identity, self.transportKeys, self.creator) = (identity, transportKeys, creator)
            self.order = Array(order.prefix(Self.orderMaximum))
        }

        /// The same with another order.
        public func with(order: [MemberID]) -> Self {
            Self(
                generation: generation, host: host, order: order, identity: identity, transportKeys: transportKeys,
                creator: creator, admission: admission)
        }

        init(_ wire: Pttd_Relay_V1_Succession) throws(RelayMessageError) {
            generation = wire.generation
            host = try valid(
                HostID(bytes: wire.hostID), "host_id", "has \(wire.hostID.count) bytes, not \(HostID.byteCount)")
            guard wire.order.count <= Self.orderMaximum else {
                throw .invalidField("order", reason: "has more than \(Self.orderMaximum) members")
            }
            order = []
            for bytes in wire.order { order.append(try RelayProtocol.memberID(bytes)) }
            identity = try valid(
                wire.identity.utf8.count <= Self.identityByteCountMaximum ? wire.identity : nil, "identity",
                "has more than \(Self.identityByteCountMaximum) bytes")
            transportKeys = try valid(
                wire.transportKeys.count <= Self.transportKeysByteCountMaximum ? [UInt8](wire.transportKeys) : nil,
                "transport_keys", "has more than \(Self.transportKeysByteCountMaximum) bytes")
            creator = try displayName(wire.creator, "creator")
            if wire.code.isEmpty {
                admission = wire.asks ? .ask : .open
            } else {
                let digits = InvitationCode.digitCount
                admission = .code(try valid(InvitationCode(wire.code), "code", "is not \(digits) digits"))
            }
        }

        var wire: Pttd_Relay_V1_Succession {
            var wire = Pttd_Relay_V1_Succession()
            wire.generation = generation
            wire.hostID = Data(host.bytes)
            wire.order = order.map { Data($0.bytes) }
            wire.identity = identity
            wire.transportKeys = Data(transportKeys)
            wire.creator = creator.text
            switch admission {
            case .open: break
            case .code(let code): wire.code = code.digits
            case .ask: wire.asks = true
            }
            return wire
        }
    }
}
