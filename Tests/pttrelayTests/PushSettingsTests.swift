// [push] of pttrelay.toml: what it says, and what mistakes in it are told.
import Cryptography
import RelayHTTP
import RelayProtocol
import Settings
import Testing

@testable import pttrelay

@Suite struct PushSettingsTests {
    private static let pin = Base64URL.encode([UInt8](repeating: 7, count: 32))
    private static let client = "[[push.client]]\npin = \"\(pin)\"\ntopics = [\"org.example.radio.voip-ptt\"]\n"

    private func read(_ text: String) throws(SettingsError) -> PushSettings? {
        try SettingsFile.read(text: text, file: "pttrelay.toml", RelaySettings.read).push
    }

    private func problems(_ text: String) -> [String] {
        do {
            _ = try read(text)
            return []
        } catch {
            return error.problems.map(\.description)
        }
    }

    @Test func `without the table there is no endpoint, and an empty one has the defaults`() throws {
        #expect(try read("[relay]\nhost = \"a\"") == nil)
        let push = try #require(try read("[push]"))
        #expect(push.listen == ListenAddress(address: "::", port: 2_197))
        #expect(push.files == nil)
        #expect(push.clients.isEmpty)
    }

    @Test func `all that can be said is understood`() throws {
        let push = try #require(
            try read(
                "[push]\nlisten = \"127.0.0.1:9000\"\ncertificate = \"/c.pem\"\nkey = \"/k.pem\"\n" + Self.client
                    + "name = \"the server\"\n"))
        #expect(push.listen == ListenAddress(address: "127.0.0.1", port: 9_000))
        #expect(push.files?.certificate == "/c.pem")
        #expect(push.files?.key == "/k.pem")
        #expect(push.clients.map(\.pin.bytes) == [[UInt8](repeating: 7, count: 32)])
        #expect(push.clients.map(\.topics) == [[PushTopic("org.example.radio.voip-ptt")!]])
    }

    @Test(arguments: [
        ("[push]\nlisten = \"9000\"", "is not an address with a port"),
        ("[push]\ncertificate = \"/c.pem\"", "name the file of its key"),
        ("[push]\nkey = \"/k.pem\"", "name the file of its certificate"),
        ("[push]\nlissen = \"[::]:1\"", "lissen"),
        ("[[push.client]]\ntopics = [\"a.voip-ptt\"]", "pin"),
        ("[[push.client]]\npin = \"\(pin)\"", "topics"),
        ("[[push.client]]\npin = \"\(pin)\"\ntopics = []", "write 1 to 64 of them"),
        ("[[push.client]]\npin = \"abc\"\ntopics = [\"a.voip-ptt\"]", "pttrelay push-certificate"),
        ("[[push.client]]\npin = \"\(pin)\"\ntopics = [\"org.example.radio\"]", "\"org.example.radio.voip-ptt\""),
        ("[[push.client]]\npin = \"\(pin)\"\ntopics = [\"a b\"]", "is not a topic"),
    ])
    func `a mistake is told with what to do`(text: String, words: String) {
        let problems = problems(text)
        #expect(problems.count == 1 && problems[0].contains(words), "\(problems)")
    }

    @Test func `a client's certificate is one PEM text of certificate and key`() throws {
        let identity = try Identity(
            generating: "org.example.radio.voip-ptt", serverNames: [.host("a"), .address([127, 0, 0, 1])])
        let again = try Identity(pem: identity.pem)
        #expect(again.pin == identity.pin)
        #expect(try PublicKeyPin(certificateDER: identity.certificateDER) == identity.pin)
    }
}
