// How a channel nearby gives its invitation: the messages, their way to and from protobuf, and the proof of a code.
import Cryptography
import FoundationEssentials
import SwiftProtobuf

/// Why a relay gives no invitation. A number this version does not know reads as `other`.
public enum InvitationRefusal: Int, Sendable, Hashable, CaseIterable {
    /// No such channel, or one that gives its invitation to nobody who asks.
    case notOpen = 1
    /// The relay does not speak the client's protocol version.
    case unsupportedVersion = 2
    /// Too many ask at a time.
    case tooMany = 3
    /// The channel has a code, and the client gave none.
    case codeNeeded = 4
    /// The client proved another code.
    case wrongCode = 5
    /// The channel's creator does not let the client in, or has not answered.
    case notAdmitted = 6
    /// The channel's creator is asked, and the client did not say who it is.
    case nameNeeded = 7
    /// Something else; the phrase tells.
    case other = 255
}

extension ClientMessage {
    /// Asks for the invitation to a channel nearby.
    public struct InvitationRequest: Sendable, Hashable {
        /// The channel.
        public var channel: ChannelID
        /// The protocol version the client speaks.
        public var protocolVersion: UInt32
        /// The client's share of CPace, 32 bytes; nil: it has no code.
        public var codeShare: [UInt8]?
        /// The name of the requester; nil: not given.
        public var name: DisplayName?

        /// A request for the invitation to `channel`.
        public init(
            channel: ChannelID, protocolVersion: UInt32 = RelayProtocolLimits.version, codeShare: [UInt8]? = nil,
            name: DisplayName? = nil
        ) {
            self.channel = channel
            self.protocolVersion = protocolVersion
            self.codeShare = codeShare
            self.name = name
        }

        init(_ wire: Pttd_Relay_V1_InvitationRequest) throws(RelayMessageError) {
            self.init(
                channel: try channelID(wire.channelID), protocolVersion: wire.protocolVersion,
                codeShare: wire.codeShare.isEmpty ? nil : try share(wire.codeShare),
                name: wire.displayName.isEmpty ? nil : try displayName(wire.displayName, "display_name"))
        }

        var wire: Pttd_Relay_V1_InvitationRequest {
            var wire = Pttd_Relay_V1_InvitationRequest()
            wire.channelID = Data(channel.bytes)
            wire.protocolVersion = protocolVersion
            if let codeShare { wire.codeShare = Data(codeShare) }
            if let name { wire.displayName = name.text }
            return wire
        }
    }

    /// Proves that this end knows the channel's code.
    public struct InvitationProof: Sendable, Hashable {
        /// The client's tag of `InvitationCode.Proof`, 32 bytes.
        public var tag: [UInt8]

        /// A proof.
        public init(tag: [UInt8]) { self.tag = tag }

        init(_ wire: Pttd_Relay_V1_InvitationProof) throws(RelayMessageError) { tag = try proof(wire.tag, "tag") }

        var wire: Pttd_Relay_V1_InvitationProof {
            var wire = Pttd_Relay_V1_InvitationProof()
            wire.tag = Data(tag)
            return wire
        }
    }
}

/// A share of CPace from the wire.
private func share(_ value: Data) throws(RelayMessageError) -> [UInt8] {
    try bytes(value, "code_share", count: CPace.shareByteCount)
}

/// A proof of a code from the wire.
private func proof(_ value: Data, _ field: String) throws(RelayMessageError) -> [UInt8] {
    try bytes(value, field, count: InvitationCode.tagByteCount)
}

extension ServerMessage {
    /// The content of a link to the channel, except the relay's address and key. Secret.
    public struct Invitation: Sendable, Hashable {
        /// The secret that opens the channel.
        public var token: InvitationToken
        /// What the channel is called.
        public var channelName: DisplayName
        /// The media key of an end-to-end channel, of epoch `InvitationLink.mediaKeyEpoch`; nil: the relay gives the key.
        public var mediaKey: MediaKey?
        /// On a channel with a code, the relay's tag of `InvitationCode.Proof`, 32 bytes.
        public var codeTag: [UInt8]?

        /// An invitation to the channel of that name.
        public init(
            token: InvitationToken, channelName: DisplayName, mediaKey: MediaKey?, codeTag: [UInt8]? = nil
        ) {
            self.token = token
            self.channelName = channelName
            self.mediaKey = mediaKey
            self.codeTag = codeTag
        }

        init(_ wire: Pttd_Relay_V1_Invitation) throws(RelayMessageError) {
            let key = wire.hasMediaKey ? try MediaKey(wire.mediaKey) : nil
            guard key?.epoch ?? InvitationLink.mediaKeyEpoch == InvitationLink.mediaKeyEpoch else {
                throw .invalidField("media_key", reason: "is not of epoch \(InvitationLink.mediaKeyEpoch)")
            }
            self.init(
                token: try invitationToken(wire.invitationToken),
                channelName: try displayName(wire.channelName, "channel_name"), mediaKey: key,
                codeTag: wire.codeTag.isEmpty ? nil : try proof(wire.codeTag, "code_tag"))
        }

        var wire: Pttd_Relay_V1_Invitation {
            var wire = Pttd_Relay_V1_Invitation()
            wire.invitationToken = Data(token.bytes)
            wire.channelName = channelName.text
            if let mediaKey { wire.mediaKey = mediaKey.wire }
            if let codeTag { wire.codeTag = Data(codeTag) }
            return wire
        }
    }

    /// Asks for a proof of the channel's code.
    public struct InvitationChallenge: Sendable, Hashable {
        /// The relay's share of CPace, 32 bytes.
        public var codeShare: [UInt8]

        /// A challenge.
        public init(codeShare: [UInt8]) { self.codeShare = codeShare }

        init(_ wire: Pttd_Relay_V1_InvitationChallenge) throws(RelayMessageError) {
            codeShare = try share(wire.codeShare)
        }

        var wire: Pttd_Relay_V1_InvitationChallenge {
            var wire = Pttd_Relay_V1_InvitationChallenge()
            wire.codeShare = Data(codeShare)
            return wire
        }
    }

    /// The channel's creator is asked; an invitation or a refusal follows.
    public struct InvitationPending: Sendable, Hashable {
        /// The answer comes within this time.
        public var time: Duration

        /// A notice that the answer takes up to `time`.
        public init(time: Duration) { self.time = time }
    }

    /// The answer to a request that gives nothing.
    public typealias InvitationRefused = Refused<InvitationRefusal>
}

/// The code of a locked channel nearby: six digits that people tell each other.
public struct InvitationCode: Hashable, Sendable, CustomStringConvertible {
    /// How many digits it has.
    public static let digitCount = 6
    /// The size of a proof in bytes.
    public static let tagByteCount = HashFunction.sha256.byteCount
    /// The digits, as ASCII.
    public let digits: String

    /// Reads six digits. Spaces and hyphens between them do not count.
    ///
    /// - Returns: nil for anything else.
    public init?(_ text: String) {
        // Whatever is longer than a spaced-out code is none, and is not looked through.
        guard text.utf8.count <= 4 * Self.digitCount else { return nil }
        let digits = text.filter { $0 != " " && $0 != "-" }
        guard digits.utf8.count == Self.digitCount, digits.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else {
            return nil
        }
        self.digits = digits
    }

    /// A code drawn by chance.
    public init() {
        var random = SecureRandom()
        digits = String((0..<Self.digitCount).map { _ in Character("\(Int.random(in: 0...9, using: &random))") })
    }

    /// The digits in two groups, as people read them.
    public var description: String { "\(digits.prefix(3)) \(digits.suffix(3))" }

    /// One end's part of a proof that both ends know the code.
    ///
    /// - Parameters:
    ///   - role: The client is the initiator.
    ///   - channel: The channel that the code is for.
    ///   - relay: The relay's key, which the transport has verified.
    ///   - client: The client's key, in the same way: nobody can pass the exchange on.
    ///   - random: Must be a secure one outside tests.
    public func proof(
        _ role: CPace.Role, channel: ChannelID, relay: PublicKeyPin, client: MemberID,
        using random: inout some RandomNumberGenerator
    ) -> Proof {
        let context = Array("pttd invitation code".utf8) + channel.bytes + relay.bytes + client.bytes
        return Proof(CPace(role, code: Array(digits.utf8), context: context, using: &random))
    }

    /// One end of one proof. An impostor learns from it whether one code is the right one, and no more.
    public struct Proof: Sendable {
        private let exchange: CPace

        init(_ exchange: CPace) { self.exchange = exchange }

        /// What this end sends to the other one, 32 bytes.
        public var share: [UInt8] { exchange.share }

        /// What both ends are to show when their codes are equal; nil when the other end's share is none.
        public func tags(with other: [UInt8]) -> (client: [UInt8], relay: [UInt8])? {
            guard let key = exchange.key(from: other) else { return nil }
            return (
                hmacSHA256(Array("client knows the code".utf8), key: key),
                hmacSHA256(Array("relay knows the code".utf8), key: key)
            )
        }
    }
}

/// How somebody nearby gets the invitation to a channel.
public enum AdmissionRule: Sendable, Hashable {
    /// Whoever asks is given it.
    case open
    /// Whoever proves the code is given it.
    case code(InvitationCode)
    /// Whoever the host's user admits is given it.
    case ask
}
