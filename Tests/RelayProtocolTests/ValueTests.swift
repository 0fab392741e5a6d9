// Identifiers, names and secrets.
import Cryptography
import RelayProtocol
import Testing
import Vocabulary

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
        #expect("\(TrailerKey())" == "TrailerKey")
        #expect(InvitationToken() != InvitationToken())
        #expect(TrailerKey() != TrailerKey())
    }

    @Test func `a push token is 32 to 100 bytes, in a URL 64 to 200 digits`() throws {
        for count in [0, 31, 101, 1_000] {
            #expect(PushToken([UInt8](repeating: 1, count: count)) == nil)
            #expect(PushToken(hexadecimal: String(repeating: "ab", count: count)) == nil)
        }
        for count in [32, 57, 100] {
            let token = try #require(PushToken([UInt8](repeating: 0xAB, count: count)))
            #expect(token.hexadecimal == String(repeating: "ab", count: count))
            #expect(PushToken(hexadecimal: token.hexadecimal) == token)
            #expect(PushToken(hexadecimal: token.hexadecimal.uppercased()) == token)
            #expect(token.description == "abababab…")
        }
        for text in [
            String(repeating: "a", count: 65), String(repeating: "ag", count: 32), String(repeating: " a", count: 32),
        ] {
            #expect(PushToken(hexadecimal: text) == nil)
        }
    }

    @Test func `a push topic is an application's identifier with a suffix`() {
        #expect(PushTopic("org.example.radio.voip-ptt")?.application == "org.example.radio")
        #expect(PushTopic(application: "org.example.radio")?.text == "org.example.radio.voip-ptt")
        for other in ["org.example.radio", ".voip-ptt", "a.voip", "voip-ptt"] {
            #expect(PushTopic(other)?.application == nil, "\(other)")
        }
        for none in ["", "a b", "a\n", "ä", String(repeating: "a", count: 256)] { #expect(PushTopic(none) == nil) }
        #expect(PushTopic(application: "") == nil)
    }
}
