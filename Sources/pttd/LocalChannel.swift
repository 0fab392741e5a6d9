// The channel of the daemon's own relay. It is the same after each start, so that it can be restored.
import Cryptography
import FoundationEssentials
import RelayProtocol
import RelayServer

extension RelayChannelConfiguration {
    /// The channel "Local" of a machine that was not invited anywhere; its UUID and its secret follow from the machine's key.
    static func local(of identity: Identity) -> RelayChannelConfiguration {
        var id = derive("channel", identity, ChannelID.byteCount)
        // A UUID of one's own making (RFC 9562, version 8).
        id[6] = id[6] & 0x0F | 0x80
        id[8] = id[8] & 0x3F | 0x80
        return RelayChannelConfiguration(
            id: ChannelID(bytes: id) ?? ChannelID(), name: DisplayName(cleaning: "Local", fallback: "Local"),
            token: InvitationToken(derive("token", identity, InvitationToken.byteCountDefault)) ?? InvitationToken())
    }

    private static func derive(_ purpose: String, _ identity: Identity, _ byteCount: Int) -> [UInt8] {
        Array(hmacSHA256(Array("pttd's own relay: \(purpose)".utf8), key: identity.privateKeyDER).prefix(byteCount))
    }
}
