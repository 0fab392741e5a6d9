// The key and salt of one key id, and sealing and opening the frames of a burst with them.
import Cryptography

/// What RFC 9605, section 4.4.2, derives from a base key for one key id. Not `Sendable`: it has one scratch buffer.
final class SFrameKey {
    private let aead: AEAD
    private let salt: [UInt8]
    /// Nonce, then additional authenticated data (header and metadata), built here so that no frame allocates.
    private let scratch = UnsafeMutableRawBufferPointer.allocate(
        byteCount: AEAD.nonceByteCount + SFrameLimits.headerByteCountMaximum + SFrameLimits.metadataByteCountMaximum,
        alignment: 16)

    init(suite: SFrameCipherSuite, baseKey: [UInt8], keyID: KeyID) throws(SFrameError) {
        do throws(CryptographyError) {
            let context = Self.bigEndian(keyID.rawValue, 8) + Self.bigEndian(UInt64(suite.rawValue), 2)
            let secret = try suite.hash.extract(keyMaterial: baseKey)
            let key = try suite.hash.expand(
                pseudorandomKey: secret, info: Array("SFrame 1.0 Secret key ".utf8) + context,
                byteCount: suite.algorithm.keyByteCount)
            salt = try suite.hash.expand(
                pseudorandomKey: secret, info: Array("SFrame 1.0 Secret salt ".utf8) + context,
                byteCount: AEAD.nonceByteCount)
            aead = try AEAD(suite.algorithm, key: key)
        } catch {
            throw SFrameError(error)
        }
    }

    deinit {
        scratch.deallocate()
    }

    /// Writes header, ciphertext and tag to `output`; returns how many bytes.
    func seal(
        _ plaintext: UnsafeRawBufferPointer, header: SFrameHeader, metadata: UnsafeRawBufferPointer,
        into output: UnsafeMutableRawBufferPointer
    ) throws(SFrameError) -> Int {
        let headerCount = header.byteCount
        let needed = headerCount + plaintext.count + AEAD.tagByteCount
        guard output.count >= needed else { throw .outputTooSmall(is: output.count, needed: needed) }
        try checkMetadata(metadata)
        header.write(to: output)
        let (nonce, authenticated) = prepare(
            counter: header.counter, header: UnsafeRawBufferPointer(rebasing: output[..<headerCount]), metadata)
        do throws(CryptographyError) {
            let count = try aead.seal(
                plaintext, nonce: nonce, authenticating: authenticated,
                into: UnsafeMutableRawBufferPointer(rebasing: output[headerCount...]))
            return headerCount + count
        } catch {
            throw SFrameError(error)
        }
    }

    /// Checks `frame`, whose header was read, and writes the plaintext to `output`; returns how many bytes.
    func open(
        _ frame: UnsafeRawBufferPointer, header: SFrameHeader, metadata: UnsafeRawBufferPointer,
        into output: UnsafeMutableRawBufferPointer
    ) throws(SFrameError) -> Int {
        let headerCount = header.byteCount
        let needed = frame.count - headerCount - AEAD.tagByteCount
        guard needed >= 0 else { throw .truncated }
        guard output.count >= needed else { throw .outputTooSmall(is: output.count, needed: needed) }
        try checkMetadata(metadata)
        let (nonce, authenticated) = prepare(
            counter: header.counter, header: UnsafeRawBufferPointer(rebasing: frame[..<headerCount]), metadata)
        do throws(CryptographyError) {
            return try aead.open(
                UnsafeRawBufferPointer(rebasing: frame[headerCount...]), nonce: nonce, authenticating: authenticated,
                into: output)
        } catch {
            throw SFrameError(error)
        }
    }

    private func checkMetadata(_ metadata: UnsafeRawBufferPointer) throws(SFrameError) {
        guard metadata.count <= SFrameLimits.metadataByteCountMaximum else {
            throw .metadataTooLong(metadata.count)
        }
    }

    /// Lays out nonce = salt XOR counter and AAD = header ‖ metadata in the scratch buffer.
    private func prepare(
        counter: UInt64, header: UnsafeRawBufferPointer, _ metadata: UnsafeRawBufferPointer
    ) -> (nonce: UnsafeRawBufferPointer, authenticated: UnsafeRawBufferPointer) {
        let nonceCount = AEAD.nonceByteCount
        for index in 0..<nonceCount {
            let shift = 8 * (nonceCount - 1 - index)
            scratch[index] = salt[index] ^ (shift < 64 ? UInt8(truncatingIfNeeded: counter >> UInt64(shift)) : 0)
        }
        UnsafeMutableRawBufferPointer(rebasing: scratch[nonceCount...]).copyMemory(from: header)
        UnsafeMutableRawBufferPointer(rebasing: scratch[(nonceCount + header.count)...]).copyMemory(from: metadata)
        let end = nonceCount + header.count + metadata.count
        return (
            UnsafeRawBufferPointer(rebasing: scratch[..<nonceCount]),
            UnsafeRawBufferPointer(rebasing: scratch[nonceCount..<end])
        )
    }

    private static func bigEndian(_ value: UInt64, _ count: Int) -> [UInt8] {
        (0..<count).map { UInt8(truncatingIfNeeded: value >> (8 * UInt64(count - 1 - $0))) }
    }
}

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
