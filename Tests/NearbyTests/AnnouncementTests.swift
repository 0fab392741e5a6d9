// The TXT record: what is written is read, and what is wrong is named.
import Cryptography
import RelayProtocol
import TestSupport
import Testing

@testable import Nearby

func makeHost(_ number: UInt8) -> HostID { HostID(bytes: [0, 0, 0, 0, 0, number])! }

func makeAnnouncement(
    _ name: String = "Crane 2", by creator: String = "Ann", channel: ChannelID = ChannelID(), key: UInt8 = 1,
    members: Int = 1, admission: NearbyAnnouncement.Admission = .open, generation: UInt32 = 0,
    host: UInt8 = 0
) -> NearbyAnnouncement {
    NearbyAnnouncement(
        channel: channel, name: DisplayName(cleaning: name, fallback: "?"),
        creator: DisplayName(cleaning: creator, fallback: "?"), pin: PublicKeyPin(subjectPublicKeyInfo: [key]),
        members: members, admission: admission, generation: generation, host: makeHost(host))
}

@Suite struct AnnouncementTests {
    private static let id = "01234567-89ab-cdef-0123-456789abcdef"
    private static let pin = PublicKeyPin(subjectPublicKeyInfo: [7])

    private func fields(_ changes: [String: String] = [:], without missing: String? = nil) -> [[UInt8]] {
        let fields = [
            ("v", "1"), ("id", Self.id), ("name", "Crane 2"), ("by", "Ann"), ("pin", "\(Self.pin)"), ("n", "3"),
            ("adm", "code"), ("gen", "2"), ("host", "AAAAAAAB"),
        ]
        return fields.filter { $0.0 != missing }.map { key, value in Array("\(key)=\(changes[key] ?? value)".utf8) }
    }

    @Test func `what is written is read`() throws {
        for admission in NearbyAnnouncement.Admission.allCases {
            for name in ["Crane 2", "x", String(repeating: "é", count: 64), "a=b", "קשר 🏗️"] {
                let one = makeAnnouncement(name, members: 9_999, admission: admission, generation: .max)
                #expect(try NearbyAnnouncement(txt: one.txt) == one)
                #expect(one.txt.allSatisfy { $0.count <= 255 })
                #expect(one.txt.reduce(0) { $0 + $1.count + 1 } <= NearbyAnnouncement.sentByteCountMaximum)
            }
        }
    }

    @Test func `the longest is short enough`() {
        let long = String(repeating: "x", count: DisplayName.byteCountMaximum)
        var one = makeAnnouncement(long, by: long, members: 1_000_000, generation: .max)
        one.version = .max
        #expect(one.members == 9_999)
        one.members = -1
        #expect(one.members == 0)
        #expect(one.txt.allSatisfy { $0.count <= 255 })
        #expect(one.txt.reduce(0) { $0 + $1.count + 1 } <= NearbyAnnouncement.sentByteCountMaximum)
    }

    @Test func `the order of keys their case and others do not matter`() throws {
        let plain = try NearbyAnnouncement(txt: fields())
        #expect(plain.name.text == "Crane 2" && plain.members == 3 && plain.admission == .code)
        #expect(try NearbyAnnouncement(txt: fields().reversed()) == plain)
        let upper = fields().map { string in
            let key = string.prefix { $0 != UInt8(ascii: "=") }
            return Array(String(decoding: key, as: UTF8.self).uppercased().utf8) + string.dropFirst(key.count)
        }
        #expect(try NearbyAnnouncement(txt: upper) == plain)
        let others: [[UInt8]] = [[], Array("=".utf8), Array("zz".utf8), Array("later=9".utf8), [0xFF, 0xFE, 0x3D, 0]]
        #expect(try NearbyAnnouncement(txt: others + fields() + others) == plain)
    }

    @Test func `of equal keys the first counts`() throws {
        #expect(try NearbyAnnouncement(txt: fields() + fields(["n": "4"])).members == 3)
        #expect(throws: NearbyAnnouncementError.bad("n", reason: "is not a number from 0 to 9999")) {
            try NearbyAnnouncement(txt: [Array("N".utf8)] + fields())
        }
    }

    @Test func `a missing key is named`() {
        for key in ["v", "id", "name", "by", "pin", "n", "adm", "gen"] {
            #expect(throws: NearbyAnnouncementError.missing(key)) {
                try NearbyAnnouncement(txt: fields(without: key))
            }
        }
    }

    @Test func `a wrong value is named`() {
        let wrong: [String: [String]] = [
            "v": ["", "0", "-1", "+1", "01", "x", "4294967296", "1 "],
            "id": ["", "x", "\(Self.id)0", String(Self.id.dropLast())],
            "name": ["", "a\nb", "a\0", String(repeating: "x", count: 129), "\u{2028}"],
            "by": ["", "\u{1B}[2J", String(repeating: "x", count: 129)],
            "pin": ["", "AAAA", "\(Self.pin)A"],
            "n": ["", "-1", "10000", "1e3", "٣", "99999999999999999999"],
            "adm": ["", "OPEN", "closed"],
            "gen": ["", "4294967296", "-0"],
        ]
        for (key, values) in wrong {
            for value in values {
                do {
                    _ = try NearbyAnnouncement(txt: fields([key: value]))
                    Issue.record("\(key)=\(value) was taken")
                } catch {
                    guard case .bad(key, _) = error else {
                        Issue.record("\(key)=\(value): \(error)")
                        continue
                    }
                    #expect(!"\(error)".isEmpty)
                }
            }
        }
        #expect(throws: NearbyAnnouncementError.self) {
            try NearbyAnnouncement(txt: fields(without: "name") + [Array("name=".utf8) + [0xC3, 0x28]])
        }
    }

    @Test func `length is bounded`() {
        let long = Array("z=".utf8) + [UInt8](repeating: 0x78, count: 254)
        #expect(throws: NearbyAnnouncementError.tooLong) { try NearbyAnnouncement(txt: fields() + [long]) }
        let many = [[UInt8]](repeating: [], count: 1_301)
        #expect(throws: NearbyAnnouncementError.tooLong) { try NearbyAnnouncement(txt: fields() + many) }
    }

    @Test func `hostile bytes never trap`() {
        var random = SeededGenerator()
        for _ in 0..<20_000 {
            var txt = fields()
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                let index = Int.random(in: txt.indices, using: &random)
                switch Int.random(in: 0..<4, using: &random) {
                case 0: txt[index] = random.bytes(Int.random(in: 0...300, using: &random))
                case 1: txt.insert(random.bytes(Int.random(in: 0...20, using: &random)), at: index)
                case 2: txt[index].removeLast(min(txt[index].count, Int.random(in: 0...9, using: &random)))
                default:
                    guard let byte = txt[index].indices.randomElement(using: &random) else { continue }
                    txt[index][byte] = UInt8.random(in: 0...255, using: &random)
                }
            }
            guard let one = try? NearbyAnnouncement(txt: txt) else { continue }
            #expect((try? NearbyAnnouncement(txt: one.txt)) == one)
        }
    }
}
