// Sealing the frames of one burst.
import Cryptography

/// Seals the frames of one talk burst under one key id, with counters from 0, none used twice (RFC 9605, section 4.4.3).
///
/// Make one per burst, with a fresh key id. `seal` allocates nothing. Not `Sendable`: one thread at a time.
public final class SFrameSealer {
    /// The key id of the burst.
    public let keyID: KeyID
    private let key: SFrameKey
    private var counter: UInt64

    /// A sealer with counter 0.
    public convenience init(
        suite: SFrameCipherSuite = .aes128GCMSHA256, baseKey: [UInt8], keyID: KeyID
    ) throws(SFrameError) {
        try self.init(suite: suite, baseKey: baseKey, keyID: keyID, firstCounter: 0)
    }

    init(suite: SFrameCipherSuite, baseKey: [UInt8], keyID: KeyID, firstCounter: UInt64) throws(SFrameError) {
        self.keyID = keyID
        key = try SFrameKey(suite: suite, baseKey: baseKey, keyID: keyID)
        counter = firstCounter
    }

    /// The most bytes that sealing `plaintextByteCount` bytes makes.
    public static func sealedByteCountMaximum(_ plaintextByteCount: Int) -> Int {
        SFrameLimits.headerByteCountMaximum + plaintextByteCount + AEAD.tagByteCount
    }

    /// Writes header, ciphertext and tag of the next frame to `output`; returns how many bytes.
    ///
    /// `metadata` is authenticated, not carried (the RTP header). Throws `.exhausted` when the key id may seal no more.
    public func seal(
        _ plaintext: UnsafeRawBufferPointer, metadata: UnsafeRawBufferPointer,
        into output: UnsafeMutableRawBufferPointer
    ) throws(SFrameError) -> Int {
        guard counter < SFrameLimits.framesPerKeyMaximum else { throw .exhausted }
        let count = try key.seal(
            plaintext, header: SFrameHeader(keyID: keyID, counter: counter), metadata: metadata, into: output)
        counter += 1
        return count
    }

    /// The next frame, sealed into a new array.
    public func seal(_ plaintext: [UInt8], metadata: [UInt8]) throws(SFrameError) -> [UInt8] {
        try [UInt8](unsafeUninitializedCapacity: Self.sealedByteCountMaximum(plaintext.count)) {
            (output, count) throws(SFrameError) in
            count = try plaintext.span.bytes.withUnsafeBytes { (plaintext) throws(SFrameError) in
                try metadata.span.bytes.withUnsafeBytes { (metadata) throws(SFrameError) in
                    try seal(plaintext, metadata: metadata, into: UnsafeMutableRawBufferPointer(output))
                }
            }
        }
    }
}
