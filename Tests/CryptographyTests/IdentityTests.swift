// The identity and its file: made once, found again, and clear about what is wrong.
import Cryptography
import Files
import Glibc
import TestSupport
import Testing

extension TemporaryFolder {
    fileprivate func write(_ text: String, to name: String, mode: mode_t = 0o600) {
        let descriptor = open("\(path)/\(name)", O_WRONLY | O_CREAT | O_TRUNC, mode)
        _ = text.withCString { Glibc.write(descriptor, $0, strlen($0)) }
        close(descriptor)
        chmod("\(path)/\(name)", mode)
    }
}

@Suite struct IdentityTests {
    @Test func `an identity is made on the first start and found on the next`() throws {
        let directory = try TemporaryFolder()
        let path = "\(directory.path)/identity.pem"
        let first = try Identity.loadOrCreate(at: path, commonName: "radio 7")
        #expect(first.notices == [.created(path: path)])
        let second = try Identity.loadOrCreate(at: path, commonName: "another name")
        #expect(second.notices.isEmpty)
        #expect(second.identity.pin == first.identity.pin)
        #expect(second.identity.certificateDER == first.identity.certificateDER)
        #expect(second.identity.privateKeyDER == first.identity.privateKeyDER)
        #expect(directory.names == ["identity.pem"])
        var status = stat()
        #expect(stat(path, &status) == 0)
        #expect(status.st_mode & 0o777 == 0o600)
    }

    @Test func `the directory is made when it is missing`() throws {
        let directory = try TemporaryFolder()
        let inner = "\(directory.path)/inner"
        _ = try Identity.loadOrCreate(at: "\(inner)/identity.pem", commonName: "a")
        var status = stat()
        #expect(stat(inner, &status) == 0)
        #expect(status.st_mode & 0o777 == 0o700)
        unlink("\(inner)/identity.pem")
        rmdir(inner)
        directory.write("", to: "file")
        let error = #expect(throws: IdentityError.self) {
            try Identity.loadOrCreate(at: "\(directory.path)/file/b/identity.pem", commonName: "a")
        }
        #expect(error?.description.contains("not a directory") == true, "\(String(describing: error))")
    }

    @Test func `processes that start at once agree on one identity`() async throws {
        let directory = try TemporaryFolder()
        let path = "\(directory.path)/identity.pem"
        let pins = try await withThrowingTaskGroup(of: PublicKeyPin.self) { group in
            for _ in 0..<8 {
                group.addTask { try Identity.loadOrCreate(at: path, commonName: "one of many").identity.pin }
            }
            return try await group.reduce(into: Set()) { $0.insert($1) }
        }
        #expect(pins.count == 1)
        #expect(directory.names == ["identity.pem"])
    }

    @Test func `two identities differ, and each pin is that of its certificate`() throws {
        let one = try Identity(generating: "one")
        let two = try Identity(generating: "two")
        #expect(one.pin != two.pin)
        #expect(try PublicKeyPin(certificateDER: one.certificateDER) == one.pin)
        #expect(try Identity(pem: two.pem).pin == two.pin)
    }

    @Test func `any name will do for a certificate`() throws {
        for name in ["", String(repeating: "x", count: 500), "Grünwald 無線 📻", "a\0b", "CN=x,O=y"] {
            _ = try PublicKeyPin(certificateDER: try Identity(generating: name).certificateDER)
        }
    }

    /// Certificate by OpenSSL 3; the pin by `openssl x509 -pubkey | openssl pkey -pubin -outform DER | sha256sum`.
    @Test func `of a name that is too long, a certificate has the beginning`() throws {
        let beginning = String(repeating: "a", count: 63)
        let certificate = try Identity(generating: beginning + "é" + "b").certificateDER
        #expect(certificate.contains(Array(beginning.utf8)))
        #expect(!certificate.contains(Array("aaab".utf8)), "what does not fit ends it")
    }

    @Test func `a pin is what other tools compute`() throws {
        let base64 =
            "MIIBNjCB6aADAgECAhQC6ohAOBHBQNst5vpy07igAcZqOTAFBgMrZXAwEDEOMAwGA1UEAwwFb3RoZXIwIBcNMjYxMTIxMDYzNzEz"
            + "WhgPMjEyNjEwMjgwNjM3MTNaMBAxDjAMBgNVBAMMBW90aGVyMCowBQYDK2VwAyEAEdRLkraa1JTFxO9f0348ySueAqqK+vY3/uAw"
            + "1Htk4rOjUzBRMB0GA1UdDgQWBBTS6TbUhEqn7Qv2KuLuJYv+XppNjDAfBgNVHSMEGDAWgBTS6TbUhEqn7Qv2KuLuJYv+XppNjDAP"
            + "BgNVHRMBAf8EBTADAQH/MAUGAytlcANBAN1RWUM0fZKRUGym5QAxPBez6KrGvqjYBwVZjRSw3nsK9/MNnJaQy6Ng8gqk7ilOYPGR"
            + "o3Y1nSxKRIdGXXoZPAg="
        let url = base64.replacing("+", with: "-").replacing("/", with: "_")
        let certificate = try #require(Base64URL.decode(url))
        let pin = try PublicKeyPin(certificateDER: certificate)
        #expect(Hexadecimal.encode(pin.bytes) == "c7a08713a81e1a27074f1797d2e7a2d5aa836fb45cb941ffd8506d3b544a2d3c")
        #expect(PublicKeyPin(pin.description) == pin)
        #expect(PublicKeyPin("c7a0") == nil)
        #expect(throws: CryptographyError.self) { try PublicKeyPin(certificateDER: Array(certificate.dropLast(9))) }
    }

    @Test func `a file that others can read is used, with a warning`() throws {
        let directory = try TemporaryFolder()
        let identity = try Identity(generating: "open")
        directory.write(identity.pem, to: "identity.pem", mode: 0o644)
        let path = "\(directory.path)/identity.pem"
        let loaded = try Identity.loadOrCreate(at: path, commonName: "unused")
        #expect(loaded.identity.pin == identity.pin)
        #expect(loaded.notices == [.accessibleToOthers(path: path, mode: 0o644)])
        #expect(loaded.notices[0].description.contains("mode 0644"))
    }

    @Test func `a damaged file is named, kept and not replaced`() throws {
        let one = try Identity(generating: "one")
        let two = try Identity(generating: "two")
        let cases: [(String, String)] = [
            ("", "no readable certificate"), ("hello\n", "no readable certificate"),
            (one.certificatePEM, "no readable private key"), (one.privateKeyPEM, "no readable certificate"),
            (String(one.pem.dropLast(80)), "no readable private key"),
            (one.certificatePEM + two.privateKeyPEM, "does not belong"),
            (String(repeating: "x", count: Identity.fileByteCountMaximum + 1), "larger than 65536 bytes"),
        ]
        for (text, reason) in cases {
            let directory = try TemporaryFolder()
            directory.write(text, to: "identity.pem")
            let path = "\(directory.path)/identity.pem"
            let error = #expect(throws: IdentityError.self) {
                try Identity.loadOrCreate(at: path, commonName: "unused")
            }
            let words = error?.description ?? ""
            #expect(words.contains(path) && words.contains(reason), "\(words)")
            var status = stat()
            #expect(stat(path, &status) == 0 && status.st_size == text.utf8.count)
        }
    }

    @Test func `a directory in the file's place is an error and not an identity`() throws {
        let directory = try TemporaryFolder()
        let error = #expect(throws: IdentityError.self) {
            try Identity.loadOrCreate(at: directory.path, commonName: "unused")
        }
        #expect(error?.description.contains("a directory, not a regular file") == true)
    }

    @Test func `what cannot be an identity is set aside for who may make another one, whatever it is`() throws {
        var random = SeededGenerator()
        let good = Array(try Identity(generating: "good").pem.utf8)
        var replaced = 0
        for round in 0..<200 {
            let directory = try TemporaryFolder()
            let path = "\(directory.path)/identity.pem"
            var bytes = good
            switch round % 4 {
            case 0: bytes = Array(bytes.prefix(Int.random(in: 0..<bytes.count, using: &random)))
            case 1:
                bytes = (0..<Int.random(in: 1...70_000, using: &random)).map { _ in .random(in: 0...255, using: &random)
                }
            default:
                for _ in 0..<Int.random(in: 1...20, using: &random) {
                    bytes[Int.random(in: bytes.indices, using: &random)] = .random(in: 0...255, using: &random)
                }
            }
            try AtomicFile.write(bytes, to: path, isSecret: true, waits: false)
            let (identity, notices) = try Identity.loadOrCreate(at: path, commonName: "new", replacesDamaged: true)
            #expect(try Identity.load(from: path)?.identity.pin == identity.pin)
            guard let notice = notices.first else { continue }
            replaced += 1
            guard case .replaced(path, path + ".damaged-1", _) = notice else {
                return #expect(Bool(false), "\(notice)")
            }
            #expect(try RegularFile.read(path + ".damaged-1", byteCountMax: 100_000) == bytes)
        }
        #expect(replaced > 100)
        let directory = try TemporaryFolder()
        let path = "\(directory.path)/identity.pem"
        #expect(mkfifo(path, 0o600) == 0)
        #expect(throws: IdentityError.self) { try Identity.loadOrCreate(at: path, commonName: "a") }
        _ = try Identity.loadOrCreate(at: path, commonName: "a", replacesDamaged: true)
        #expect(directory.names.sorted() == ["identity.pem", "identity.pem.damaged-1"])
    }

    @Test func `certificates with flipped bytes give an error or a certificate, never a crash`() throws {
        var random = SeededGenerator()
        let good = try Identity(generating: "fuzz").certificateDER
        for _ in 0..<500 {
            var bytes = good
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                bytes[Int.random(in: bytes.indices, using: &random)] = UInt8.random(in: 0...255, using: &random)
            }
            _ = try? PublicKeyPin(certificateDER: bytes)
        }
    }
}
