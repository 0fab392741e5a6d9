// The pages of an Ogg file that was not written to its end (RFC 3533, section 6).

import COgg

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
