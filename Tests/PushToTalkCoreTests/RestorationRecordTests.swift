// The text form of what is kept of a channel: it comes back as it was, and nothing else is taken for one.

import FoundationEssentials
import PushToTalkCore
import TestSupport
import Testing
import Vocabulary

@Suite struct RestorationRecordTests {
    let channel = UUID()

    var full: RestorationRecord {
        RestorationRecord(
            channelUUID: channel,
            descriptor: PTChannelDescriptor(name: "Crew 7", image: PTImage(named: "audio-headset")),
            mode: .fullDuplex, accessoryButtonEventsEnabled: false, media: .application,
            application: "org.example.Talk", invitation: "ptt://example.org:4567/Crew%207?channel=x&token=y&pin=z",
            token: PushToken([UInt8](repeating: 0xAB, count: 40)))
    }

    func reading(_ text: String) throws -> RestorationRecord { try RestorationRecord(text: text.utf8) }

    @Test func `a record comes back as it was`() throws {
        #expect(try reading(full.text) == full)
        let least = RestorationRecord(channelUUID: channel, descriptor: PTChannelDescriptor(name: "", image: nil))
        #expect(try reading(least.text) == least)
        #expect(least.text.split(separator: "\n").count == 7)
    }

    @Test(arguments: [
        "", " ", "\n", "\\", "\\n", "a\nb\r\nc\\", "\u{2028}\u{0085}", "Crew\u{0}\u{1B}", "e\u{301}", "👩‍👩‍👧", "\r",
    ])
    func `any name comes back byte by byte`(_ name: String) throws {
        var record = full
        record.descriptor = PTChannelDescriptor(name: name, image: nil)
        record.invitation = name
        let read = try reading(record.text)
        #expect(Array(read.descriptor.name.utf8) == Array(name.utf8))
        #expect(read.invitation.map { Array($0.utf8) } == Array(name.utf8))
    }

    @Test func `images come back up to the largest`() throws {
        var generator = SeededGenerator()
        for (signature, count) in [
            ([0xFF, 0xD8, 0xFF], 3), ([0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A], PTImage.byteCountMax),
        ] {
            let bytes =
                signature.map { UInt8($0) } + generator.bytes(count - signature.count < 0 ? 0 : count - signature.count)
            var record = full
            record.descriptor = PTChannelDescriptor(name: "Crew", image: PTImage(data: bytes))
            #expect(record.descriptor.image != nil)
            #expect(record.text.utf8.count <= RestorationRecord.byteCountMax)
            #expect(try reading(record.text) == record)
        }
    }

    @Test func `every random record comes back`() throws {
        var generator = SeededGenerator()
        for _ in 0..<500 {
            let name = String(decoding: generator.bytes(Int.random(in: 0...40, using: &generator)), as: UTF8.self)
            let record = RestorationRecord(
                channelUUID: UUID(),
                descriptor: PTChannelDescriptor(
                    name: name,
                    image: generator.chance(50) ? PTImage(data: [0xFF, 0xD8, 0xFF] + generator.bytes(50)) : nil),
                mode: PTTransmissionMode.allCases.randomElement(using: &generator) ?? .halfDuplex,
                accessoryButtonEventsEnabled: generator.chance(50),
                media: generator.chance(50) ? .application : .daemon,
                application: generator.chance(50) ? name : "",
                invitation: generator.chance(50) ? name : nil,
                token: generator.chance(50) ? PushToken.random(using: &generator) : nil)
            #expect(try reading(record.text) == record)
        }
    }

    @Test func `a record that ends early is damaged`() {
        let bytes = Array(full.text.utf8)
        for count in 0..<bytes.count {
            #expect(throws: RestorationRecord.Invalid.self, "\(count) bytes") {
                try RestorationRecord(text: bytes[..<count])
            }
        }
    }

    @Test func `a record with any changed byte is damaged`() {
        var generator = SeededGenerator()
        let bytes = Array(full.text.utf8)
        for index in bytes.indices {
            var changed = bytes
            changed[index] ^= UInt8.random(in: 1...255, using: &generator)
            #expect(throws: RestorationRecord.Invalid.self, "byte \(index)") { try RestorationRecord(text: changed) }
        }
    }

    @Test func `garbage is no record and does not crash`() {
        var generator = SeededGenerator()
        let bytes = Array(full.text.utf8)
        for round in 0..<20_000 {
            var garbage = generator.bytes(Int.random(in: 0...200, using: &generator))
            if round.isMultiple(of: 2) {
                // A record with its parts in another order, doubled or missing.
                garbage = []
                for line in bytes.split(separator: UInt8(ascii: "\n")).shuffled(using: &generator)
                where generator.chance(80) {
                    garbage += line + [UInt8(ascii: "\n")]
                }
                if generator.chance(50) { garbage = Array("pttd-channel 1\n".utf8) + garbage }
            }
            if let read = try? RestorationRecord(text: garbage) { #expect(Array(read.text.utf8) == garbage) }
        }
    }

    @Test func `what is wrong is said`() {
        func error(_ text: String) -> RestorationRecord.Invalid? {
            do throws(RestorationRecord.Invalid) {
                _ = try RestorationRecord(text: text.utf8)
                return nil
            } catch { return error }
        }
        #expect(error("") == .notARecord)
        #expect(error("#!/bin/sh\n") == .notARecord)
        #expect(error("pttd-channel 2\nwhatever\n") == .otherVersion("2"))
        #expect(error("pttd-channel 1") == .damaged)
        #expect(error(full.text + "more\n") == .damaged)
        #expect(error(String(repeating: "x", count: RestorationRecord.byteCountMax + 1)) == .tooLarge)
        #expect(error(signed(full.text.replacing("mode fullDuplex", with: "mode sideways"))) == .malformed(key: "mode"))
        #expect(error(signed(full.text.replacing("media application\n", with: ""))) == .malformed(key: "media"))
        #expect(error(signed(full.text.replacing("image icon", with: "picture icon"))) == .malformed(key: "picture"))
        #expect(error(signed(full.text.replacing("name Crew 7", with: "name \\x"))) == .malformed(key: "name"))
        #expect(
            error(signed(full.text.replacing("name Crew 7\n", with: "name a\nname b\n"))) == .malformed(key: "name"))
        #expect(error(signed(full.text)) == nil)
        let errors: [RestorationRecord.Invalid] = [
            .notARecord, .otherVersion("2"), .tooLarge, .damaged, .malformed(key: "mode"),
        ]
        #expect(Set(errors.map(\.description)).count == errors.count)
    }

    /// The text with the checksum that it should have: FNV-1a as written down by its authors.
    private func signed(_ text: String) -> String {
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false).filter { !$0.hasPrefix("end ") }
        let body = lines.joined(separator: "\n")
        var hash: UInt64 = 14_695_981_039_346_656_037
        for byte in body.utf8 { hash = (hash ^ UInt64(byte)) &* 1_099_511_628_211 }
        return "\(body)end \(String(hash, radix: 16))\n"
    }
}
