// Bytes of a stream that were written but not acknowledged, at stable addresses. Pure.

/// Keeps what was written until the peer has acknowledged it: the QUIC library keeps pointers into it.
///
/// Bytes are named by their offset in the stream.
struct StreamSendBuffer: ~Copyable {
    private struct Chunk {
        let base: UnsafeMutableRawPointer
        let capacity: Int
        var count: Int
    }

    private static let smallestChunk = 512
    private static let largestChunk = 16_384

    /// Bytes kept at most.
    let limit: Int
    private var chunks: [Chunk] = []
    /// Offset of the first byte of the first chunk.
    private var base = 0
    /// Offset up to which the peer has everything.
    private(set) var acknowledged = 0
    /// Offset of the next byte to be sent.
    private(set) var sent = 0
    /// Offset after the last byte written.
    private(set) var end = 0

    init(limit: Int) { self.limit = limit }

    deinit {
        for chunk in chunks { chunk.base.deallocate() }
    }

    /// How many more bytes may be written.
    var available: Int { max(0, limit - (end - acknowledged)) }

    var unsent: Int { end - sent }

    /// Takes all of `bytes`; the caller has looked at `available`.
    mutating func append(_ bytes: UnsafeRawBufferPointer) {
        var rest = bytes[...]
        while !rest.isEmpty {
            if chunks.isEmpty || chunks[chunks.count - 1].count == chunks[chunks.count - 1].capacity {
                let capacity = min(max(rest.count, Self.smallestChunk), Self.largestChunk)
                chunks.append(
                    Chunk(base: .allocate(byteCount: capacity, alignment: 8), capacity: capacity, count: 0))
            }
            let last = chunks.count - 1
            let taken = min(rest.count, chunks[last].capacity - chunks[last].count)
            let target = chunks[last].base + chunks[last].count
            target.copyMemory(from: UnsafeRawBufferPointer(rebasing: rest.prefix(taken)).baseAddress!, byteCount: taken)
            chunks[last].count += taken
            end += taken
            rest = rest.dropFirst(taken)
        }
    }

    /// Gives the unsent bytes, in up to `maximum` pieces, to `body`; returns how many bytes that were.
    func forEachUnsent(maximum: Int, _ body: (UnsafeMutableRawPointer, Int) -> Void) -> Int {
        var offset = base
        var pieces = 0
        var total = 0
        for chunk in chunks where pieces < maximum {
            let skip = max(0, sent - offset)
            if skip < chunk.count {
                body(chunk.base + skip, chunk.count - skip)
                total += chunk.count - skip
                pieces += 1
            }
            offset += chunk.count
        }
        return total
    }

    /// The next `count` bytes are in a packet.
    mutating func markSent(_ count: Int) { sent = min(end, sent + count) }

    /// The peer has everything up to `offset`.
    mutating func acknowledge(upTo offset: Int) {
        acknowledged = max(acknowledged, min(offset, end))
        var freed = 0
        for chunk in chunks {
            // A chunk with room stays for the next write unless it is used up.
            guard base + chunk.count <= acknowledged, chunk.count == chunk.capacity || freed < chunks.count - 1
            else { break }
            base += chunk.count
            chunk.base.deallocate()
            freed += 1
        }
        chunks.removeFirst(freed)
    }

    /// Everything is to be sent again: the server refused the early data. Nothing was acknowledged then.
    mutating func rewind() { sent = acknowledged }

    /// Forgets what has not been sent: the sending side was reset. Sent bytes stay where the library points to.
    mutating func dropUnsent() { sent = end }
}
