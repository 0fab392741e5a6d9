// Identifiers, names and secrets.
import Cryptography
import RelayProtocol
import Testing

@Suite struct ValueTests {
    @Test func `a channel is its UUID, as text and as bytes`() throws {
        let channel = try #require(ChannelID("00010203-0405-0607-0809-0A0B0C0D0E0F"))
        #expect(channel.bytes == Array(0..<16))
        #expect(channel.description == "00010203-0405-0607-0809-0a0b0c0d0e0f")
        #expect(ChannelID(bytes: channel.bytes) == channel)
        #expect(ChannelID("nonsense") == nil)
        #expect(ChannelID(bytes: Array(0..<15)) == nil)
        #expect(ChannelID() != ChannelID())
    }

    @Test func `a member is the beginning of its key's hash`() throws {
        let pin = PublicKeyPin(subjectPublicKeyInfo: [1, 2, 3])
        let member = MemberID(pin)
        #expect(member.bytes == Array(pin.bytes[..<16]))
        #expect(MemberID(bytes: member.bytes) == member)
        #expect(MemberID(bytes: pin.bytes) == nil)
        #expect(member.description == Hexadecimal.encode(member.bytes))
    }

    @Test func `cleaning makes a name of anything`() {
        #expect(DisplayName(cleaning: "a\u{0}b\nc", fallback: "x").text == "abc")
        #expect(DisplayName(cleaning: "\u{7F}", fallback: "x").text == "x")
        let long = DisplayName(cleaning: String(repeating: "ä", count: 100), fallback: "x")
        #expect(long.text == String(repeating: "ä", count: 64))
        #expect(DisplayName(String(repeating: "a", count: 128)) != nil)
        #expect(DisplayName(String(repeating: "a", count: 129)) == nil)
    }

    @Test func `secrets do not show in logs`() {
        let token = InvitationToken()
        #expect(!"\(token)".contains(Base64URL.encode(token.bytes)))
        #expect("\(MediaKey(epoch: 3))" == "MediaKey(epoch 3)")
        #expect("\(DownlinkKey())" == "DownlinkKey")
        #expect(InvitationToken() != InvitationToken())
        #expect(DownlinkKey() != DownlinkKey())
    }
}
