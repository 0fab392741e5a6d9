// What a nats-server asks its clients for: certificates of an authority, and accounts of an operator with signed credentials.
import CSodium
import Cryptography
import FoundationEssentials
import Glibc
import TestSupport
import Testing

/// An authority, and certificates of it, made by openssl.
struct NATSAuthority {
    private let folder: TemporaryFolder

    init(in folder: TemporaryFolder) throws {
        self.folder = folder
        try run("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem")
    }

    /// Its certificate.
    var certificate: String { folder.file("ca.pem") }

    /// Makes a server's certificate for these names, as `DNS:…` or `IP:…`.
    ///
    /// - Returns: Lines for the server's configuration.
    func server(_ names: String) throws -> String {
        try Data("subjectAltName=\(names)\n".utf8).write(to: URL(filePath: folder.file("names")))
        try run("openssl req -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr")
        try run(
            "openssl x509 -req -days 2 -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -out server.pem"
        )
        return "tls { cert_file: \"\(folder.file("server.pem"))\", key_file: \"\(folder.file("server.key"))\" }"
    }

    private func run(_ command: String) throws {
        try #require(system("cd \(folder.path) && \(command) >openssl.log 2>&1") == 0, "\(command)")
    }
}

/// A key of NATS: Ed25519, with texts that say whose it is (NATS's "nkeys").
struct NATSKey {
    /// Whose it is; the first letter of its public text.
    enum Owner: UInt8 {
        case account = 0
        case `operator` = 0x70
        case user = 0xA0
    }

    private let owner: Owner
    private let seed: [UInt8]
    private let secret: [UInt8]
    private let publicKey: [UInt8]

    /// A new one.
    init(_ owner: Owner) {
        self.owner = owner
        seed = SecureRandom.bytes(32)
        var secret = [UInt8](repeating: 0, count: 64)
        var publicKey = [UInt8](repeating: 0, count: 32)
        crypto_sign_seed_keypair(&publicKey, &secret, seed)
        self.secret = secret
        self.publicKey = publicKey
    }

    /// Its name.
    var name: String { Self.text([owner.rawValue] + publicKey) }

    /// Its seed, which is its secret.
    var seedText: String { Self.text([0x90 | owner.rawValue >> 5, owner.rawValue << 3] + seed) }

    /// A statement about `subject`, signed by it (a JWT of NATS).
    func states(about subject: NATSKey, _ claims: String) -> String {
        let header = Base64URL.encode(Array(#"{"typ":"JWT","alg":"ed25519-nkey"}"#.utf8))
        let body = """
            {"jti":"\(subject.name)","iat":1700000000,"iss":"\(name)","name":"test","sub":"\(subject.name)","nats":\(claims)}
            """
        let signed = "\(header).\(Base64URL.encode(Array(body.utf8)))"
        var signature = [UInt8](repeating: 0, count: 64)
        crypto_sign_detached(&signature, nil, Array(signed.utf8), UInt64(signed.utf8.count), secret)
        return "\(signed).\(Base64URL.encode(signature))"
    }

    /// In base 32, with a checksum (CRC-16 of XMODEM, least significant byte first).
    private static func text(_ bytes: [UInt8]) -> String {
        var sum: UInt16 = 0
        for byte in bytes {
            sum ^= UInt16(byte) << 8
            for _ in 0..<8 { sum = sum & 0x8000 != 0 ? sum << 1 ^ 0x1021 : sum << 1 }
        }
        let letters = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
        var (text, value, bits) = ("", 0, 0)
        for byte in bytes + [UInt8(sum & 0xFF), UInt8(sum >> 8)] {
            value = value << 8 | Int(byte)
            bits += 8
            while bits >= 5 {
                bits -= 5
                text.append(letters[value >> bits & 31])
            }
            value &= 31
        }
        if bits > 0 { text.append(letters[value << (5 - bits) & 31]) }
        return text
    }
}

/// An operator with an account that has JetStream.
struct NATSOperator {
    private let key = NATSKey(.operator)
    private let account = NATSKey(.account)
    private let systemAccount = NATSKey(.account)

    /// Lines for the server's configuration.
    var configuration: String {
        let limits = #""subs":-1,"data":-1,"payload":-1,"imports":-1,"exports":-1,"wildcards":true,"conn":-1,"leaf":-1"#
        let stored = #""mem_storage":-1,"disk_storage":67108864,"streams":-1,"consumer":-1"#
        let accounts = [
            (account, "{\(limits),\(stored)}"), (systemAccount, "{\(limits)}"),
        ].map { account, limits in
            "\(account.name): \(key.states(about: account, "{\"type\":\"account\",\"version\":2,\"limits\":\(limits)}"))"
        }
        return """
            operator: \(key.states(about: key, "{\"type\":\"operator\",\"version\":2}"))
            system_account: \(systemAccount.name)
            resolver: MEMORY
            resolver_preload: { \(accounts.joined(separator: "\n")) }
            """
    }

    /// What a credentials file of a new user has.
    func credentials(by account: NATSKey? = nil) -> String {
        let user = NATSKey(.user)
        let claims = #"{"type":"user","version":2,"subs":-1,"data":-1,"payload":-1,"pub":{},"sub":{}}"#
        return """
            -----BEGIN NATS USER JWT-----
            \((account ?? self.account).states(about: user, claims))
            ------END NATS USER JWT------

            -----BEGIN USER NKEY SEED-----
            \(user.seedText)
            ------END USER NKEY SEED------

            """
    }
}
