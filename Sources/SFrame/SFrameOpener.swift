// Opening frames: keys of the current and the previous epoch, derived on first sight, with a replay window each.
import Cryptography
import MonotonicTime

/// Opens the frames of all talkers of a channel (RFC 9605, section 4.4.4).
///
/// It holds the base keys of two epochs. The key of a key id is derived when a frame of it is first seen, and kept only
/// once a frame was authentic, so garbage pushes nothing out; the least recently used goes when there are too many.
/// Opening allocates nothing but for the first frame of a key id. Not `Sendable`.
public struct SFrameOpener {
    /// How long frames of the epoch before the current one are still opened.
    public static let previousEpochLifetime = Duration.seconds(10)
    /// How many key ids are remembered, with their replay windows.
    public static let keysMaximum = 64

    /// A frame that was opened.
    public struct Opened: Hashable, Sendable {
        /// The key id it was sealed under.
        public var keyID: KeyID
        /// Its counter under that key id.
        public var counter: UInt64
        /// How many bytes of plaintext were written.
        public var byteCount: Int
    }

    private struct Epoch {
        var number: UInt16
        var baseKey: [UInt8]
    }

    private struct Entry {
        var keyID: KeyID
        var key: SFrameKey
        var window: ReplayWindow
        var lastUse: UInt64
    }

    private let suite: SFrameCipherSuite
    private var current: Epoch?
    private var previous: (epoch: Epoch, expiry: Instant)?
    /// An array and not a dictionary: changing a dictionary's value in place allocates.
    private var entries: [Entry] = []
    private var uses: UInt64 = 0

    /// An opener that has no key yet.
    public init(suite: SFrameCipherSuite = .aes128GCMSHA256) {
        self.suite = suite
        entries.reserveCapacity(Self.keysMaximum)
    }

    /// The epoch that frames are sealed in now, nil before the first key.
    public var currentEpoch: UInt16? { current?.number }

    /// Takes the base key of a new epoch. The epoch before it is kept until `previousEpochLifetime` from `now`; any
    /// earlier one is forgotten. The same epoch with another key (a relay that lost its state) replaces it at once.
    public mutating func setEpoch(_ number: UInt16, baseKey: [UInt8], at now: Instant) {
        if let current {
            if current.number == number {
                guard !constantTimeEqual(current.baseKey, baseKey) else { return }
            } else {
                previous = (current, now + Self.previousEpochLifetime)
            }
        }
        if previous?.epoch.number == number { previous = nil }
        current = Epoch(number: number, baseKey: baseKey)
        let kept = previous?.epoch.number
        entries.removeAll { $0.keyID.epoch != kept }
    }

    /// Forgets the previous epoch once its time is over. Opening does it too.
    public mutating func expire(at now: Instant) {
        guard let previous, previous.expiry <= now else { return }
        self.previous = nil
        entries.removeAll { $0.keyID.epoch == previous.epoch.number }
    }

    /// When `expire` has something to do.
    public var nextDeadline: Instant? { previous?.expiry }

    /// Checks `frame` and its `metadata`, and writes the plaintext to `output`.
    ///
    /// Throws when the frame is malformed, of an unknown epoch, not authentic or opened before; nothing changes then.
    public mutating func open(
        _ frame: UnsafeRawBufferPointer, metadata: UnsafeRawBufferPointer,
        into output: UnsafeMutableRawBufferPointer, at now: Instant
    ) throws(SFrameError) -> Opened {
        expire(at: now)
        let header = try SFrameHeader(parsing: frame)
        if let index = entries.firstIndex(where: { $0.keyID == header.keyID }) {
            guard entries[index].window.allows(header.counter) else { throw .replayed(counter: header.counter) }
            let count = try entries[index].key.open(frame, header: header, metadata: metadata, into: output)
            uses += 1
            entries[index].lastUse = uses
            _ = entries[index].window.accept(header.counter)
            return Opened(keyID: header.keyID, counter: header.counter, byteCount: count)
        }
        let key = try SFrameKey(suite: suite, baseKey: baseKey(of: header.keyID.epoch), keyID: header.keyID)
        let count = try key.open(frame, header: header, metadata: metadata, into: output)
        remember(key, header)
        return Opened(keyID: header.keyID, counter: header.counter, byteCount: count)
    }

    /// Opens `frame` into a new array.
    public mutating func open(
        _ frame: [UInt8], metadata: [UInt8], at now: Instant
    ) throws(SFrameError) -> (plaintext: [UInt8], header: SFrameHeader) {
        var header = SFrameHeader(keyID: KeyID(rawValue: 0), counter: 0)
        let plaintext = try makeArray(capacity: frame.count) {
            (output: UnsafeMutableRawBufferPointer) throws(SFrameError) in
            try withBytes(frame, metadata) { (frame, metadata) throws(SFrameError) in
                let opened = try open(frame, metadata: metadata, into: output, at: now)
                header = SFrameHeader(keyID: opened.keyID, counter: opened.counter)
                return opened.byteCount
            }
        }
        return (plaintext, header)
    }

    /// How many key ids are remembered.
    var keyCount: Int { entries.count }

    private func baseKey(of epoch: UInt16) throws(SFrameError) -> [UInt8] {
        if let current, current.number == epoch { return current.baseKey }
        if let previous, previous.epoch.number == epoch { return previous.epoch.baseKey }
        throw .unknownEpoch(epoch)
    }

    private mutating func remember(_ key: SFrameKey, _ header: SFrameHeader) {
        var window = ReplayWindow()
        _ = window.accept(header.counter)
        uses += 1
        let entry = Entry(keyID: header.keyID, key: key, window: window, lastUse: uses)
        if entries.count < Self.keysMaximum {
            entries.append(entry)
        } else if let oldest = entries.indices.min(by: { entries[$0].lastUse < entries[$1].lastUse }) {
            entries[oldest] = entry
        }
    }
}
