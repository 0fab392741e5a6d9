// Files that pttd and pttrelay read again, and files of others.
import Cryptography
import FoundationEssentials
import Glibc
import PushToTalkCore
import Vocabulary

@testable import Audio
@testable import QUIC
@testable import Recordings
@testable import RelayClient

/// FNV-1a, as restoration records end with, so that what is behind the checksum is read too.
private func fnv(_ bytes: some Sequence<UInt8>) -> String {
    var hash: UInt64 = 0xCBF2_9CE4_8422_2325
    for byte in bytes { hash = (hash ^ UInt64(byte)) &* 0x0000_0100_0000_01B3 }
    return String(hash, radix: 16)
}

private func restored(_ bytes: [UInt8]) {
    guard let record = try? RestorationRecord(text: bytes) else { return }
    expect((try? RestorationRecord(text: record.text.utf8)) == record, "a record is what was read")
}

private func resumption(_ bytes: [UInt8]) {
    if let state = ResumptionState(bytes: bytes) { expect(state.bytes == bytes, "a state has one form") }
}

private func wave(_ sampleBits: UInt8, _ samples: [UInt8]) -> [UInt8] {
    let width = sampleBits / 8
    let format: [UInt8] = [sampleBits == 32 ? 3 : 1, 0, 1, 0, 0x80, 0xBB, 0, 0, 0, 0, 0, 0, width, 0, sampleBits, 0]
    return joined(
        utf8("RIFF"), [0, 0, 0, 0], utf8("WAVEfmt "), [16, 0, 0, 0], format, utf8("data"),
        [UInt8(samples.count), 0, 0, 0], samples)
}

/// A file without a name, of these bytes; its path while the descriptor is open.
private func withFile(_ bytes: [UInt8], _ body: (String) -> Void) {
    var template = Array("/dev/shm/fuzz-XXXXXX".utf8CString)
    let descriptor = mkstemp(&template)
    guard descriptor >= 0 else { fatalError("no file in /dev/shm") }
    defer { close(descriptor) }
    unlink(template)
    guard write(descriptor, bytes, bytes.count) == bytes.count else { fatalError("/dev/shm is full") }
    body("/proc/self/fd/\(descriptor)")
}

let fileFuzzers: [Fuzzer] = [
    Fuzzer(
        name: "restoration-record", maximum: 4_096,
        seeds: {
            let icon = PTImage(named: "radio")
            let channel = UUID(uuidString: "00010203-0405-0607-0809-0A0B0C0D0E0F") ?? UUID()
            let records = [
                RestorationRecord(
                    channelUUID: channel, descriptor: PTChannelDescriptor(name: "Crew\n\\7", image: icon),
                    mode: .fullDuplex, accessoryButtonEventsEnabled: false, application: "org.example.Talk",
                    invitation: "ptt://…", token: PushToken([UInt8](repeating: 1, count: 32))),
                RestorationRecord(channelUUID: channel, descriptor: PTChannelDescriptor(name: "x", image: nil)),
            ]
            // Without the last line too: the fuzzer adds it.
            return records.flatMap { record in
                let text = utf8(record.text)
                let lines = record.text.split(separator: "\n").dropLast().joined(separator: "\n") + "\n"
                return [text, utf8(lines)]
            }
        }
    ) { bytes in
        restored(bytes)
        restored(bytes + utf8("end \(fnv(bytes))\n"))
    },
    Fuzzer(
        name: "resumption-state", maximum: 4_096,
        seeds: {
            let state = ResumptionState(
                session: [1, 2, 3], transportParameters: [4], token: [],
                serverKeySHA256: [UInt8](repeating: 1, count: 32))
            return [Array(state.bytes.dropLast(32))]
        }
    ) { bytes in
        resumption(bytes)
        resumption(bytes + sha256(bytes))
        let whole = bytes + sha256(bytes)
        let length = [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: whole.count >> $0) }
        let relay = [UInt8](repeating: 2, count: 32)
        let magic = utf8("pttd resumption 2\n") + relay
        let place = utf8("relay.example:443")
        let withPlace = length + whole + [0, 0, 0, UInt8(place.count)] + place
        for kept in [bytes, magic + withPlace, utf8("pttd resumption 1\n") + relay + length + whole, magic + bytes] {
            expect(
                !ResumptionMemory.isIntact(kept) || kept.count <= ResumptionMemory.byteCountMaximum,
                "what is kept is bounded")
            _ = ResumptionMemory(restoring: kept)
        }
    },
    Fuzzer(
        name: "identity", maximum: 4_096,
        seeds: {
            guard let identity = try? Identity(generating: "fuzz") else { return [] }
            return [utf8(identity.pem), utf8(identity.certificatePEM), identity.certificateDER]
        }
    ) { bytes in
        _ = try? PublicKeyPin(certificateDER: bytes)
        guard let text = bytes.asText, let identity = try? Identity(pem: text) else { return }
        expect((try? Identity(pem: identity.pem))?.pin == identity.pin, "an identity is what was read")
    },
    Fuzzer(
        name: "wav", maximum: 2_048,
        seeds: { [wave(16, [1, 0, 2, 0, 3, 0]), wave(32, [0, 0, 128, 63]), wave(24, [1, 2, 3])] }
    ) { bytes in
        // The same file in memory, as a speech program gives it.
        if let sound = try? PromptSound(wav: bytes) {
            expect(sound.length <= PromptSound.lengthMax + .milliseconds(1), "a prompt is short")
            for index in 0..<sound.count {
                expect(abs(sound.samples[index]) <= 1, "a prompt is no louder than speech")
            }
        }
        withFile(bytes) { path in
            guard let reader = try? WAVReader(path: path, framesPerRead: 480) else { return }
            expect(reader.frames <= bytes.count, "no more sound than the file has")
            var output = [Float](repeating: 0, count: 480)
            var left = reader.frames
            for _ in 0..<8 {
                guard let count = try? reader.read(480, into: &output) else { return }
                expect(count <= left, "no frame is read twice")
                left -= count
            }
        }
    },
    Fuzzer(
        name: "recording-name", maximum: 300,
        seeds: {
            ["20261121T161258Z-Ann.opus", ".20261121T161258Z-Ann-2.opus.part", "20240229T000000Z-x.opus"].map(utf8)
        }
    ) { bytes in
        guard let text = bytes.asText else { return }
        if let name = RecordingName(text) {
            expect(name.text == text && name.seconds >= 0, "a name is what was read")
            expect(RecordingName.wanted(ofHidden: name.hidden) == name, "its hidden name leads to it")
            expect(!name.numbered(2).contains("/") || text.contains("/"), "a number adds no folder")
        }
        _ = RecordingName.wanted(ofHidden: text)
        let safe = RecordingName.safe(text)
        expect(
            !safe.isEmpty && safe.utf8.count <= RecordingName.talkerMax && !safe.contains("/") && !safe.contains("\0"),
            "a talker's name becomes the name of a file")
        let made = RecordingName(RecordingLabel(talker: text, channel: "", secondsSince1970: bytes.count), number: 1)
        expect(RecordingName(made.text) == made, "what is written is found again: \(made.text)")
    },
    Fuzzer(
        name: "image", maximum: 256,
        seeds: {
            [joined([0x89], utf8("PNG\r\n"), [0x1A, 0x0A, 1]), [0xFF, 0xD8, 0xFF, 0xE0], utf8("radio-symbolic")]
        }
    ) { bytes in
        if let image = PTImage(data: bytes) {
            switch image.content {
            case .png(let data), .jpeg(let data): expect(data == bytes, "a picture is its bytes")
            case .themedIcon: fatalError("bytes are no icon's name")
            }
        }
        if let text = bytes.asText, PTImage(named: text) != nil {
            expect(!text.contains("/") && !text.hasPrefix("."), "an icon's name is no path")
        }
    },
]
