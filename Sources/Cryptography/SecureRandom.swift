// Secure random bytes, and constant-time comparison of secrets.
import CGnuTLS

/// Random bytes from GnuTLS's generator, seeded by the kernel.
public struct SecureRandom: RandomNumberGenerator, Sendable {
    /// The generator. It has no state of its own.
    public init() {}

    /// 64 random bits.
    public mutating func next() -> UInt64 {
        var value: UInt64 = 0
        withUnsafeMutableBytes(of: &value, Self.fill)
        return value
    }

    /// `count` random bytes, good as a key.
    public static func bytes(_ count: Int) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
            fill(UnsafeMutableRawBufferPointer(buffer))
            initialized = count
        }
    }

    /// Fills `buffer` with random bytes.
    public static func fill(_ buffer: UnsafeMutableRawBufferPointer) {
        guard let address = buffer.baseAddress, buffer.count > 0 else { return }
        // Without randomness no key is safe, so there is nothing to go on with.
        precondition(gnutls_rnd(GNUTLS_RND_KEY, address, buffer.count) >= 0, "the system gives no random numbers")
    }
}

/// Whether two secrets are equal, in a time that depends on their sizes only.
public func constantTimeEqual(_ lhs: [UInt8], _ rhs: [UInt8]) -> Bool {
    lhs.withUnsafeBytes { lhs in rhs.withUnsafeBytes { constantTimeEqual(lhs, $0) } }
}

/// Whether two secrets are equal, in a time that depends on their sizes only.
public func constantTimeEqual(_ lhs: UnsafeRawBufferPointer, _ rhs: UnsafeRawBufferPointer) -> Bool {
    guard lhs.count == rhs.count else { return false }
    guard let left = lhs.baseAddress, let right = rhs.baseAddress else { return true }
    return gnutls_memcmp(left, right, lhs.count) == 0
}
