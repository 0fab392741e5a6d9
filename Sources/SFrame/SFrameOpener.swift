// Decrypts frames with keys of the current and earlier epochs. A key is derived at its first use, and has its own
// replay window.
import Cryptography
import MonotonicTime

/// Opens the frames of all talkers of a channel (RFC 9605, section 4.4.4).
///
/// It holds the base key of the current epoch, and those of a few earlier ones for bursts under way: who begins to talk just before a
/// renewal is heard to the end, however long that takes. The key of a key id is derived when a frame of it is first seen, and kept only
/// once a frame was authentic, so garbage pushes nothing out; the least recently used goes when there are too many.
/// Opening allocates nothing but for the first frame of a key id. Not `Sendable`.
public struct SFrameOpener {
    /// How long bursts of an earlier epoch may still be met: for 10 s the relay grants the floor to who has not heard of the renewal,
    /// and its first packet may be held up for as long.
    public static let earlierEpochLifetime = Duration.seconds(20)
    /// How long after its last frame a burst of an earlier epoch is still opened.
    public static let earlierBurstLifetime = Duration.seconds(10)
    /// How many earlier epochs there are at most: renewals during one burst.
    public static let earlierEpochsMaximum = 4
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

    private struct EarlierEpoch {
        let epoch: Epoch
        /// Until then key ids that were not met before are opened.
        let meetsUntil: Instant
        /// When it is forgotten.
        var expiry: Instant
    }

    private struct Entry {
        var keyID: KeyID
        var key: SFrameKey
        var window: ReplayWindow
        var lastUse: UInt64
    }

    private let suite: SFrameCipherSuite
    private var current: Epoch?
    /// The oldest first.
    private var earlier: [EarlierEpoch] = []
    /// An array and not a dictionary: changing a dictionary's value in place allocates.
    private var entries: [Entry] = []
    private var uses: UInt64 = 0

    /// An opener that has no key yet.
    public init(suite: SFrameCipherSuite = .aes128GCMSHA256) {
        self.suite = suite
        entries.reserveCapacity(Self.keysMaximum)
        earlier.reserveCapacity(Self.earlierEpochsMaximum + 1)
    }

    /// The epoch that frames are sealed in now, nil before the first key.
    public var currentEpoch: UInt16? { current?.number }

    /// Takes the base key of a new epoch. The epoch before it is kept until `earlierEpochLifetime` from `now`, and for as long as one
    /// of its bursts goes on. The same epoch with another key (a relay that lost its state) replaces it at once.
    public mutating func setEpoch(_ number: UInt16, baseKey: [UInt8], at now: Instant) {
        if let current {
            if current.number == number {
                guard !constantTimeEqual(current.baseKey, baseKey) else { return }
            } else {
                keep(current, from: now)
            }
        }
        earlier.removeAll { $0.epoch.number == number }
        // What was met of this number had another key.
        current = nil
        forgetKeys()
        current = Epoch(number: number, baseKey: baseKey)
    }

    /// A burst of an earlier epoch begins now: who waited for the floor had asked for it before the renewal. The epoch counts as if it
    /// had been the current one until `now`; nothing changes when it still is.
    public mutating func expectBurst(of number: UInt16, baseKey: [UInt8], at now: Instant) {
        guard let current, current.number != number else { return }
        earlier.removeAll { $0.epoch.number == number }
        keep(Epoch(number: number, baseKey: baseKey), from: now)
        forgetKeys()
    }

    private mutating func keep(_ epoch: Epoch, from now: Instant) {
        let until = now + Self.earlierEpochLifetime
        earlier.append(EarlierEpoch(epoch: epoch, meetsUntil: until, expiry: until))
        if earlier.count > Self.earlierEpochsMaximum { earlier.removeFirst() }
    }

    /// Those of epochs that are not held any more.
    private mutating func forgetKeys() {
        let current = current?.number
        entries.removeAll { entry in
            entry.keyID.epoch != current && !earlier.contains { $0.epoch.number == entry.keyID.epoch }
        }
    }

    /// Forgets earlier epochs whose time is over. Opening does it too.
    public mutating func expire(at now: Instant) {
        guard earlier.contains(where: { $0.expiry <= now }) else { return }
        earlier.removeAll { $0.expiry <= now }
        forgetKeys()
    }

    /// When `expire` has something to do.
    public var nextDeadline: Instant? {
        earlier.lazy.map(\.expiry).min()
    }

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
            keep(header.keyID.epoch, at: now)
            return Opened(keyID: header.keyID, counter: header.counter, byteCount: count)
        }
        let key = try SFrameKey(suite: suite, baseKey: baseKey(of: header.keyID.epoch, at: now), keyID: header.keyID)
        let count = try key.open(frame, header: header, metadata: metadata, into: output)
        remember(key, header)
        keep(header.keyID.epoch, at: now)
        return Opened(keyID: header.keyID, counter: header.counter, byteCount: count)
    }

    /// Opens `frame` into a new array.
    public mutating func open(
        _ frame: [UInt8], metadata: [UInt8], at now: Instant
    ) throws(SFrameError) -> (plaintext: [UInt8], header: SFrameHeader) {
        var header = SFrameHeader(keyID: KeyID(rawValue: 0), counter: 0)
        let plaintext = try [UInt8](unsafeUninitializedCapacity: frame.count) {
            (output, count) throws(SFrameError) in
            let output = UnsafeMutableRawBufferPointer(output)
            let opened = try frame.span.bytes.withUnsafeBytes { (frame) throws(SFrameError) in
                try metadata.span.bytes.withUnsafeBytes { (metadata) throws(SFrameError) in
                    try open(frame, metadata: metadata, into: output, at: now)
                }
            }
            header = SFrameHeader(keyID: opened.keyID, counter: opened.counter)
            count = opened.byteCount
        }
        return (plaintext, header)
    }

    /// How many key ids are remembered.
    var keyCount: Int { entries.count }

    /// For a key id that was not met before.
    private func baseKey(of epoch: UInt16, at now: Instant) throws(SFrameError) -> [UInt8] {
        if let current, current.number == epoch { return current.baseKey }
        for each in earlier where each.epoch.number == epoch && now < each.meetsUntil { return each.epoch.baseKey }
        throw .unknownEpoch(epoch)
    }

    /// A frame of that epoch was opened: if it is an earlier one, its burst goes on.
    private mutating func keep(_ epoch: UInt16, at now: Instant) {
        for index in earlier.indices where earlier[index].epoch.number == epoch {
            earlier[index].expiry = max(earlier[index].expiry, now + Self.earlierBurstLifetime)
        }
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
