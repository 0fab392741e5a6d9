// The header in front of every sealed frame (RFC 9605, section 4.3), and which key a frame was sealed with.
import Cryptography

/// Key id and counter, encoded in 1 to 17 bytes.
///
/// The first byte is X K(3) Y C(3): with X = 0, K is the key id itself (below 8); with X = 1, K is the number of key id
/// bytes that follow, less one. Y and C say the same of the counter, whose bytes come after the key id's.
public struct SFrameHeader: Hashable, Sendable {
    /// Which key (KID).
    public var keyID: KeyID
    /// Which frame under that key (CTR).
    public var counter: UInt64

    /// A header of those two.
    public init(keyID: KeyID, counter: UInt64) {
        self.keyID = keyID
        self.counter = counter
    }

    /// How many bytes the encoded header has.
    public var byteCount: Int { 1 + Self.extraBytes(keyID.rawValue) + Self.extraBytes(counter) }

    /// Reads a header from the beginning of `bytes`; it says itself how long it is (`byteCount`).
    ///
    /// Throws `.truncated`, or `.notMinimal` for an encoding that a sealer never makes.
    public init(parsing bytes: UnsafeRawBufferPointer) throws(SFrameError) {
        guard let first = bytes.first else { throw .truncated }
        var position = 1
        let keyID = try Self.number(first >> 4, in: bytes, at: &position)
        let counter = try Self.number(first & 0x0F, in: bytes, at: &position)
        self.init(keyID: KeyID(rawValue: keyID), counter: counter)
    }

    /// Reads a header from the beginning of `bytes`.
    public init(parsing bytes: [UInt8]) throws(SFrameError) {
        self = try bytes.span.bytes.withUnsafeBytes { (bytes) throws(SFrameError) in try SFrameHeader(parsing: bytes) }
    }

    /// Writes the header to the beginning of `output`, which has at least `byteCount` bytes; returns how many it wrote.
    @discardableResult
    public func write(to output: UnsafeMutableRawBufferPointer) -> Int {
        precondition(output.count >= byteCount)
        var position = 1
        let key = Self.write(keyID.rawValue, to: output, at: &position)
        output[0] = key << 4 | Self.write(counter, to: output, at: &position)
        return position
    }

    /// The encoded header.
    public var bytes: [UInt8] {
        [UInt8](unsafeUninitializedCapacity: SFrameLimits.headerByteCountMaximum) { buffer, count in
            count = write(to: UnsafeMutableRawBufferPointer(buffer))
        }
    }

    /// Reads one number: four bits that hold it (below 8) or say how many bytes of it follow.
    private static func number(
        _ nibble: UInt8, in bytes: UnsafeRawBufferPointer, at position: inout Int
    ) throws(SFrameError) -> UInt64 {
        guard nibble & 0x8 != 0 else { return UInt64(nibble) }
        let count = Int(nibble & 0x7) + 1
        guard bytes.count - position >= count else { throw .truncated }
        var value: UInt64 = 0
        for byte in bytes[position..<position + count] {
            value = value << 8 | UInt64(byte)
        }
        guard extraBytes(value) == count else { throw .notMinimal }
        position += count
        return value
    }

    /// Writes the bytes of one number, if it has any, and returns its four bits.
    private static func write(
        _ value: UInt64, to output: UnsafeMutableRawBufferPointer, at position: inout Int
    ) -> UInt8 {
        let count = extraBytes(value)
        guard count > 0 else { return UInt8(truncatingIfNeeded: value) }
        for index in 0..<count {
            output[position + index] = UInt8(truncatingIfNeeded: value >> (8 * (count - 1 - index)))
        }
        position += count
        return 0x8 | UInt8(truncatingIfNeeded: count - 1)
    }

    /// How many bytes of a number follow the first byte: none below 8.
    private static func extraBytes(_ value: UInt64) -> Int {
        value < 8 ? 0 : (64 - value.leadingZeroBitCount + 7) / 8
    }
}

/// An SFrame key id (KID) as pttd uses it: the epoch of the base key in the upper 16 bits, 48 random bits below.
///
/// A talker takes a fresh one for every burst, and its counters start at 0: no nonce repeats across restarts or
/// cloned machines, without any state kept.
public struct KeyID: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    /// The number in the header.
    public var rawValue: UInt64

    /// The key id of that number.
    public init(rawValue: UInt64) {
        self.rawValue = rawValue
    }

    /// A key id of `epoch` with the lower 48 bits of `random`.
    public init(epoch: UInt16, random: UInt64) {
        rawValue = UInt64(epoch) << 48 | random & 0xFFFF_FFFF_FFFF
    }

    /// A fresh key id of `epoch`, from the system's random numbers.
    public static func fresh(epoch: UInt16) -> KeyID {
        var random = SecureRandom()
        return fresh(epoch: epoch, using: &random)
    }

    /// A fresh key id of `epoch`.
    ///
    /// - Parameter random: Cryptographically secure, but in a simulation: a key id that comes twice under one base key repeats nonces.
    public static func fresh(epoch: UInt16, using random: inout some RandomNumberGenerator) -> KeyID {
        KeyID(epoch: epoch, random: random.next())
    }

    /// The epoch of the base key.
    public var epoch: UInt16 { UInt16(truncatingIfNeeded: rawValue >> 48) }

    /// The epoch, then the random part in hexadecimal.
    public var description: String {
        let digits = String(rawValue & 0xFFFF_FFFF_FFFF, radix: 16)
        return "\(epoch)-" + String(repeating: "0", count: 12 - digits.count) + digits
    }
}
