// An Ogg Opus stream as bytes (RFC 7845), by libogg.

import COgg

/// Makes the pages of one Ogg Opus file.
///
/// Its packets are given one after the other; the last one is held back until it is known to be the last, for its page says so.
final class OggOpusStream {
    /// What the decoder needs to settle, in samples: the look-ahead of the talker's encoder (RFC 7845, section 4.2).
    static let preSkip = 312
    /// A page is closed after that much sound: what is lost by a crash is no more.
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
