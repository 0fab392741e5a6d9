// Ogg Opus files: a stream as bytes, by libogg (RFC 7845); what is whole of a file (RFC 3533); packets as a container knows them.
import Audio
import COgg
import COpus

/// Makes the pages of one Ogg Opus file.
///
/// Its packets are given one after the other; the last one is held back until it is known to be the last, for its page says so.
final class OggOpusStream {
    /// What the decoder needs to settle, in samples: the look-ahead of the talker's encoder (RFC 7845, section 4.2).
    static let preSkip = 312
    /// A page is closed after that much sound: of what came here, no more is lost by a crash. `RecordingQueue` and `BurstTimeline`
    /// hold back more.
    static let pageSamples = 48_000
    /// The most bytes of a tag.
    static let tagMax = 512

    private var stream = ogg_stream_state()
    private var packets: Int64 = 0
    private var granule: Int64 = 0
    private var samplesOfPage = 0
    private var held: BurstTimeline.Item?

    /// - Parameter serial: Tells the stream from others; any number.
    init(serial: Int32) { ogg_stream_init(&stream, serial) }

    deinit { ogg_stream_clear(&stream) }

    /// The two pages that a file begins with: OpusHead and OpusTags (RFC 7845, section 5).
    func head(tags: [(name: String, value: String)]) -> [UInt8] {
        var head = Array("OpusHead".utf8)
        head += [1, 1]  // version, channels
        head += Self.littleEndian(UInt16(Self.preSkip))
        head += Self.littleEndian(UInt32(48_000))
        head += Self.littleEndian(UInt16(0))  // output gain
        head += [0]  // mapping family: mono or stereo
        var comments = Array("OpusTags".utf8)
        comments += Self.text("pttd")
        comments += Self.littleEndian(UInt32(tags.count))
        for tag in tags { comments += Self.text(tag.name + "=" + Self.cut(tag.value)) }
        put(head, granule: 0, isFirst: true)
        var bytes = pages(closing: true)
        put(comments, granule: 0)
        bytes += pages(closing: true)
        return bytes
    }

    /// The next packet; the bytes that are ready.
    func append(_ item: BurstTimeline.Item) -> [UInt8] {
        defer { held = item }
        guard let held else { return [] }
        put(held)
        guard samplesOfPage >= Self.pageSamples else { return pages(closing: false) }
        samplesOfPage = 0
        return pages(closing: true)
    }

    /// No packet follows; the last bytes.
    func finish() -> [UInt8] {
        guard let held else { return [] }
        put(held, isLast: true)
        self.held = nil
        return pages(closing: true)
    }

    private func put(_ item: BurstTimeline.Item, isLast: Bool = false) {
        granule += Int64(item.samples)
        samplesOfPage += item.samples
        put(item.payload, granule: granule, isLast: isLast)
    }

    private func put(_ bytes: [UInt8], granule: Int64, isFirst: Bool = false, isLast: Bool = false) {
        var bytes = bytes
        bytes.withUnsafeMutableBufferPointer { buffer in
            var packet = ogg_packet(
                packet: buffer.baseAddress, bytes: buffer.count, b_o_s: isFirst ? 1 : 0, e_o_s: isLast ? 1 : 0,
                granulepos: granule, packetno: packets)
            ogg_stream_packetin(&stream, &packet)  // Copies.
        }
        packets += 1
    }

    private func pages(closing: Bool) -> [UInt8] {
        var bytes: [UInt8] = []
        var page = ogg_page()
        while (closing ? ogg_stream_flush(&stream, &page) : ogg_stream_pageout(&stream, &page)) != 0 {
            bytes += UnsafeBufferPointer(start: page.header, count: page.header_len)
            bytes += UnsafeBufferPointer(start: page.body, count: page.body_len)
        }
        return bytes
    }

    private static func littleEndian(_ number: some FixedWidthInteger) -> [UInt8] {
        withUnsafeBytes(of: number.littleEndian) { Array($0) }
    }

    private static func text(_ text: String) -> [UInt8] {
        let bytes = Array(text.utf8)
        return littleEndian(UInt32(bytes.count)) + bytes
    }

    private static func cut(_ text: String) -> String {
        var count = 0
        return String(
            text.prefix { character in
                count += character.utf8.count
                return count <= tagMax
            })
    }
}

/// Reads how far a file is whole.
enum OggPages {
    /// The pages that hold OpusHead and OpusTags; sound comes behind them.
    static let headPages = 2
    private static let headerSize = 27

    /// What is whole of a file.
    struct Whole: Equatable {
        /// The bytes of the whole pages.
        var byteCount: Int
        /// Where the last of them begins.
        var lastPage: Int
        /// How many they are.
        var pages: Int
    }

    /// The whole pages from the beginning of the file on.
    static func whole(_ bytes: [UInt8]) -> Whole {
        var whole = Whole(byteCount: 0, lastPage: 0, pages: 0)
        while let length = pageLength(bytes, at: whole.byteCount) {
            whole.lastPage = whole.byteCount
            whole.byteCount += length
            whole.pages += 1
        }
        return whole
    }

    /// A page that says that it is the last one of its stream.
    static func closed(_ page: [UInt8]) -> [UInt8] {
        var page = page
        page[5] |= 4
        stamp(&page)
        return page
    }

    private static func pageLength(_ bytes: [UInt8], at start: Int) -> Int? {
        guard bytes.count - start >= headerSize, bytes[start..<start + 4].elementsEqual("OggS".utf8),
            bytes[start + 4] == 0
        else { return nil }
        let segments = Int(bytes[start + 26])
        guard bytes.count - start >= headerSize + segments else { return nil }
        let body = bytes[start + headerSize..<start + headerSize + segments].reduce(0) { $0 + Int($1) }
        let length = headerSize + segments + body
        guard bytes.count - start >= length else { return nil }
        let page = Array(bytes[start..<start + length])
        var stamped = page
        stamp(&stamped)
        return stamped == page ? length : nil
    }

    /// Writes the checksum of its bytes into a page.
    private static func stamp(_ page: inout [UInt8]) {
        let header = headerSize + Int(page[26])
        page.withUnsafeMutableBufferPointer { buffer in
            guard let base = buffer.baseAddress else { return }
            var page = ogg_page(
                header: base, header_len: header, body: base + header, body_len: buffer.count - header)
            ogg_page_checksum_set(&page)
        }
    }
}

/// Opus packets, as far as a container has to know them.
enum OpusPacketLength {
    /// The longest packet: 120 ms (RFC 6716, section 3.2.5), in samples of 48 kHz.
    static let samplesMax = 5_760
    /// Frames of 2.5 ms in it.
    private static let framesMax = 48
    private static let rate: Int32 = 48_000

    /// The samples of 48 kHz that a packet decodes to; nil: it is none.
    static func samples(of packet: [UInt8]) -> Int? {
        guard packet.count <= opusPayloadMax else { return nil }
        // The lengths of its frames are looked at, too: a player may refuse the whole file for one that is not whole.
        let frames = withUnsafeTemporaryAllocation(of: Int16.self, capacity: framesMax) { lengths in
            lengths.baseAddress.map { opus_packet_parse(packet, Int32(packet.count), nil, nil, $0, nil) } ?? 0
        }
        guard frames > 0 else { return nil }
        let samples = Int(opus_packet_get_nb_samples(packet, Int32(packet.count), rate))
        return (1...samplesMax).contains(samples) ? samples : nil
    }

    /// A packet of one frame without a byte, which asks the decoder to conceal that much; and how much that is.
    ///
    /// - Parameter packet: The one before the gap, whose mode it goes on with.
    static func missing(after packet: [UInt8]) -> (packet: [UInt8], samples: Int) {
        let toc = (packet.first ?? 0) & ~3
        return ([toc], Int(opus_packet_get_samples_per_frame([toc], rate)))
    }
}
