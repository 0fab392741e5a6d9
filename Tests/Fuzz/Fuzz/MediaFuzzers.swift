// Packets and the pieces of the media path.
import Cryptography
import MonotonicTime
import RelayProtocol
import SFrame

@testable import Audio
@testable import QUIC
@testable import Recordings
@testable import RelayClient
@testable import RelayServer

/// A media packet as a talker sends it.
func mediaPacket(ssrc: UInt32 = 1, keyID: UInt64 = 7, baseKey: [UInt8] = [UInt8](repeating: 3, count: 32)) -> [UInt8] {
    let header = RTPHeader(marker: true, sequence: 1, timestamp: 2, ssrc: SSRC(rawValue: ssrc)).bytes
    guard let sealer = try? SFrameSealer(baseKey: baseKey, keyID: KeyID(rawValue: keyID)),
        let sealed = try? sealer.seal([0xF8, 0xFF, 0xFE], metadata: header)
    else { return header }
    return header + sealed
}

/// What a relay says of a talker's packets outside QUIC, without the trailer.
func uplinkReport(_ highest: UInt32, _ earlier: UInt64) -> [UInt8] {
    var packet = [UInt8](repeating: 0, count: UplinkReport.byteCount)
    let report = UplinkReport(ssrc: SSRC(rawValue: 1), highest: highest, earlier: earlier)
    packet.withUnsafeMutableBytes { report.write(to: $0) }
    return packet
}

let mediaFuzzers: [Fuzzer] = [
    Fuzzer(
        name: "media-packet", maximum: 1_400,
        seeds: { [mediaPacket(), mediaPacket(ssrc: .max, keyID: .max), Array(mediaPacket().prefix(13))] }
    ) { bytes in
        bytes.withUnsafeBytes { packet in
            if let header = try? RTPHeader(parsing: packet) {
                expect(header.bytes == Array(bytes.prefix(RTPHeader.byteCount)), "an RTP header has one form")
            }
            if let header = try? SFrameHeader(parsing: packet) {
                expect(header.bytes == Array(bytes.prefix(header.byteCount)), "an SFrame header has one form")
            }
            let relays = MediaPacketHeader(parsing: packet)
            let clients = MediaSession.Packet(packet)
            // What a relay forwards, a client reads in the same way.
            if let relays {
                expect(clients?.keyID == relays.keyID, "both ends read the same key id")
                let datagram = bytes + [UInt8](repeating: 0, count: MediaTrailer.byteCount)
                let source = datagram.withUnsafeBytes { MediaPacketHeader.source(of: $0) }
                expect(source == relays.ssrc, "a packet has one source")
            }
            if UplinkReport.isOne(packet) { expect(clients == nil, "a report is no media packet") }
        }
    },
    Fuzzer(
        name: "sealed-frame", maximum: 1_400,
        seeds: {
            let packet = mediaPacket()
            return [piece(Array(packet.prefix(12))) + packet.dropFirst(12)]
        }
    ) { bytes in
        var input = Input(bytes)
        let (metadata, frame) = (input.piece(), input.remainder())
        var opener = SFrameOpener()
        opener.setEpoch(0, baseKey: [UInt8](repeating: 3, count: 32), at: .zero)
        if let opened = try? opener.open(frame, metadata: metadata, at: .zero) {
            expect((try? opener.open(frame, metadata: metadata, at: .zero)) == nil, "a frame opens once")
            expect(opened.plaintext.count < frame.count, "a frame is longer than what is in it")
        }
    },
    Fuzzer(
        name: "down-link", maximum: 1_400,
        seeds: {
            var sealer = TrailerKey([UInt8](repeating: 9, count: 16)).flatMap { try? TrailerSealer(key: $0) }
            return [(try? sealer?.seal(mediaPacket())) ?? []]
        }
    ) { bytes in
        guard let key = TrailerKey([UInt8](repeating: 9, count: 16)), let opener = try? TrailerOpener(key: key) else {
            fatalError("no key")
        }
        if let packet = try? opener.open(bytes) {
            expect(bytes.starts(with: packet), "what is authentic is unchanged")
            expect((try? opener.open(bytes)) == nil, "a packet passes once")
        }
    },
    Fuzzer(
        name: "uplink-report", maximum: 64,
        seeds: { [uplinkReport(0, 0), uplinkReport(.max, .max), uplinkReport(40, 5), [0x80, 204, 0, 5]] }
    ) { bytes in
        bytes.withUnsafeBytes { packet in
            guard let report = UplinkReport(parsing: packet) else { return }
            expect(UplinkReport.isOne(packet), "a report is known by its type")
            expect(RTPHeader.isRTP(firstByte: packet[0]), "a report is no packet of QUIC")
            var written = [UInt8](repeating: 0, count: UplinkReport.byteCount)
            written.withUnsafeMutableBytes { report.write(to: $0) }
            expect(written.elementsEqual(packet), "a report has one form")
            // What it says something of: itself, and no more than so many before it.
            let told = (0...UInt32(UplinkReport.span) + 1).filter { distance in
                distance <= report.highest && report.has(report.highest - distance) != nil
            }
            expect(told.count == min(Int(report.highest), UplinkReport.span) + 1, "a report tells of its span")
            let received = told.filter { report.has(report.highest - $0) == true }
            expect(received.count <= report.earlier.nonzeroBitCount + 1, "each bit is one packet")
            expect(report.has(report.highest) == true, "the highest one has come")
            for counter in [report.highest &+ 1, UInt32.max] where counter > report.highest {
                expect(report.has(counter) == nil, "nothing is told of what may come")
            }
        }
    },
    Fuzzer(
        name: "first-bytes", maximum: 64,
        seeds: { [joined([0x40], [UInt8](repeating: 1, count: 30)), [0xC0, 0, 0, 0, 1, 8], [0x80, 111]] }
    ) { bytes in
        guard let first = bytes.first else { return }
        let kind = PacketClass(firstByte: first)
        expect((kind == .foreign) == RTPHeader.isRTP(firstByte: first), "both modules tell RTP by the same bytes")
        bytes.withUnsafeBytes { packet in
            if let id = QUIC.ConnectionID(shortHeader: packet) {
                let own = UnsafeRawBufferPointer(rebasing: packet[1..<(1 + QUIC.ConnectionID.ownLength)])
                expect(QUIC.ConnectionID(own) == id, "an id is its bytes")
            }
            _ = QUIC.ConnectionID(packet)
        }
    },
    Fuzzer(
        name: "opus", maximum: 1_300,
        seeds: { [[0xF8, 0xFF, 0xFE], [0x0B, 0x81, 1, 2, 3], joined([0x78], [UInt8](repeating: 7, count: 60))] }
    ) { bytes in
        guard let decoder = try? OpusDecoder() else { fatalError("no decoder") }
        var output = [Float](repeating: 0, count: OpusDecoder.samplesMax)
        let length = OpusPacketLength.samples(of: bytes)
        bytes.withUnsafeBytes { packet in
            let told = OpusDecoder.samples(in: packet)
            output.withUnsafeMutableBufferPointer { output in
                guard let start = output.baseAddress else { return }
                let count = decoder.decode(packet, into: start)
                expect(count <= OpusDecoder.samplesMax, "no packet is longer than 120 ms")
                // A recording keeps what a player can play.
                if let length { expect(told == length, "a packet has one length") }
                if count > 0, let told { expect(count == told, "a packet sounds for as long as it says") }
                _ = decoder.recover(480, from: packet, into: start)
                _ = decoder.conceal(480, into: start)
            }
        }
        _ = OpusPacketLength.missing(after: bytes)
    },
]
