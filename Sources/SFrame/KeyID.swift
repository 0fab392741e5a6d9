// Key ids: which key a frame was sealed with.
import Cryptography

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
