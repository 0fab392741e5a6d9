// The messages by which a channel that is open to everybody nearby gives its invitation, and their way to and from protobuf.
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
    /// Something else; the phrase tells.
    case other = 255
}

extension ClientMessage {
    /// Asks for the invitation to an open channel.
    public struct InvitationRequest: Sendable, Hashable {
        /// The channel.
        public var channel: ChannelID
        /// The protocol version the client speaks.
        public var protocolVersion: UInt32

        /// A request for the invitation to `channel`.
        public init(channel: ChannelID, protocolVersion: UInt32 = RelayProtocolLimits.version) {
            self.channel = channel
            self.protocolVersion = protocolVersion
        }

        init(_ wire: Pttd_Relay_V1_InvitationRequest) throws(RelayMessageError) {
            self.init(
                channel: try valid(
                    ChannelID(bytes: wire.channelID), "channel_id",
                    "has \(wire.channelID.count) bytes instead of \(ChannelID.byteCount)"),
                protocolVersion: wire.protocolVersion)
        }

        var wire: Pttd_Relay_V1_InvitationRequest {
            var wire = Pttd_Relay_V1_InvitationRequest()
            wire.channelID = Data(channel.bytes)
            wire.protocolVersion = protocolVersion
            return wire
        }
    }
}

extension ServerMessage {
    /// What a link to the channel holds beside the relay's place and key. Secret.
    public struct Invitation: Sendable, Hashable {
        /// The secret that opens the channel.
        public var token: InvitationToken
        /// What the channel is called.
        public var channelName: DisplayName
        /// The media key of an end-to-end channel, of epoch `InvitationLink.mediaKeyEpoch`; nil: the relay gives the key.
        public var mediaKey: MediaKey?

        /// An invitation to the channel of that name.
        public init(token: InvitationToken, channelName: DisplayName, mediaKey: MediaKey?) {
            self.token = token
            self.channelName = channelName
            self.mediaKey = mediaKey
        }

        init(_ wire: Pttd_Relay_V1_Invitation) throws(RelayMessageError) {
            let key = wire.hasMediaKey ? try MediaKey(wire.mediaKey) : nil
            guard key?.epoch ?? InvitationLink.mediaKeyEpoch == InvitationLink.mediaKeyEpoch else {
                throw .invalidField("media_key", reason: "is not of epoch \(InvitationLink.mediaKeyEpoch)")
            }
            self.init(
                token: try valid(
                    InvitationToken(wire.invitationToken), "invitation_token",
                    "has \(wire.invitationToken.count) bytes, not \(InvitationToken.byteCounts)"),
                channelName: try displayName(wire.channelName, "channel_name"), mediaKey: key)
        }

        var wire: Pttd_Relay_V1_Invitation {
            var wire = Pttd_Relay_V1_Invitation()
            wire.invitationToken = Data(token.bytes)
            wire.channelName = channelName.text
            if let mediaKey { wire.mediaKey = mediaKey.wire }
            return wire
        }
    }

    /// The answer to a request that gives nothing.
    public struct InvitationRefused: Sendable, Hashable {
        /// Why.
        public var cause: InvitationRefusal
        /// For people.
        public var phrase: String
        /// Asking sooner is in vain; zero: not said.
        public var retryAfter: Duration

        /// A refusal for `cause`.
        public init(cause: InvitationRefusal, phrase: String = "", retryAfter: Duration = .zero) {
            self.cause = cause
            self.phrase = phrase
            self.retryAfter = retryAfter
        }
    }
}
