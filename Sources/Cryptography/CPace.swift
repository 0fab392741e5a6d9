// CPace: two ends that know the same short code agree on a key. Nobody else learns anything that codes could be tested
// against.
import CSodium

/// One end of CPace with the group ristretto255 and SHA-512 (draft-irtf-cfrg-cpace, section 8.2), in the order of initiator and responder.
///
/// Both ends make a share from the code and exchange the shares; `key(from:)` gives both the same key when their codes are equal. An
/// eavesdropper cannot try codes. An impostor can try one code for each exchange that it takes part in.
public struct CPace: Sendable {
    /// Which of the two ends this one is.
    public enum Role: Sendable, Hashable {
        /// The end that sends its share first.
        case initiator
        /// The end that answers.
        case responder
    }

    /// The size of a share in bytes.
    public static let shareByteCount = Int(crypto_core_ristretto255_BYTES)
    /// The size of the key in bytes.
    public static let keyByteCount = 64

    /// What this end sends to the other one.
    public let share: [UInt8]
    private let role: Role
    private let scalar: [UInt8]
    private let session: [UInt8]

    /// An end of a new exchange.
    ///
    /// - Parameters:
    ///   - role: Which end it is.
    ///   - code: What both ends know, of any size.
    ///   - context: What names the two ends and their channel, the same on both ends ("CI" in the draft).
    ///   - session: An identifier of the exchange, the same on both ends; empty: none ("sid" in the draft).
    ///   - random: What the secret scalar is drawn from; must be a secure one outside tests.
    public init(
        _ role: Role, code: [UInt8], context: [UInt8], session: [UInt8] = [],
        using random: inout some RandomNumberGenerator
    ) {
        // 64 bytes reduced modulo the order of the group are as good as uniform.
        let wide = (0..<Int(crypto_core_ristretto255_NONREDUCEDSCALARBYTES)).map { _ in
            UInt8.random(in: 0...255, using: &random)
        }
        var scalar = [UInt8](repeating: 0, count: Int(crypto_core_ristretto255_SCALARBYTES))
        crypto_core_ristretto255_scalar_reduce(&scalar, wide)
        self.init(role, code: code, context: context, session: session, scalar: scalar)
    }

    /// The same with a scalar that is known.
    init(_ role: Role, code: [UInt8], context: [UInt8], session: [UInt8], scalar: [UInt8]) {
        (self.role, self.session, self.scalar) = (role, session, scalar)
        let generator = Self.generator(code: code, context: context, session: session)
        // A point that a hash has chosen is the neutral one with a probability of 2⁻²⁵².
        share = Self.multiply(generator, by: scalar) ?? [UInt8](repeating: 0, count: Self.shareByteCount)
    }

    /// The same with the system's random numbers.
    public init(_ role: Role, code: [UInt8], context: [UInt8], session: [UInt8] = []) {
        var random = SecureRandom()
        self.init(role, code: code, context: context, session: session, using: &random)
    }

    /// The key of the exchange: 64 bytes, equal on both ends when their codes, contexts and sessions are.
    ///
    /// - Parameter other: The other end's share.
    /// - Returns: nil when `other` is not an element of the group, or is the neutral one: the exchange has failed.
    public func key(from other: [UInt8]) -> [UInt8]? { key(from: other, data: [], otherData: []) }

    /// The same, with the data that each end has sent with its share ("ADa" and "ADb" in the draft).
    func key(from other: [UInt8], data: [UInt8], otherData: [UInt8]) -> [UInt8]? {
        guard other.count == Self.shareByteCount, let point = Self.multiply(other, by: scalar) else { return nil }
        let (own, others) = ([share, data], [other, otherData])
        var input = Self.withLengths([Self.name + Array("_ISK".utf8), session, point])
        input += Self.withLengths(role == .initiator ? own + others : others + own)
        return HashFunction.sha512.hash(input)
    }

    private static let name = Array("CPaceRistretto255".utf8)
    /// What SHA-512 takes in at a time: the code stands alone in the first block.
    private static let hashBlockByteCount = 128

    /// The element of the group that code, context and session choose (section 8.1 of the draft).
    static func generator(code: [UInt8], context: [UInt8], session: [UInt8]) -> [UInt8] {
        let padding = max(0, hashBlockByteCount - 1 - withLengths([code]).count - withLengths([name]).count)
        let string = withLengths([name, code, [UInt8](repeating: 0, count: padding), context, session])
        var element = [UInt8](repeating: 0, count: shareByteCount)
        crypto_core_ristretto255_from_hash(&element, HashFunction.sha512.hash(string))
        return element
    }

    private static func multiply(_ point: [UInt8], by scalar: [UInt8]) -> [UInt8]? {
        var product = [UInt8](repeating: 0, count: shareByteCount)
        return crypto_scalarmult_ristretto255(&product, scalar, point) == 0 ? product : nil
    }

    /// Byte strings one after the other, each after its length in LEB128 ("lv_cat" in the draft).
    private static func withLengths(_ strings: [[UInt8]]) -> [UInt8] {
        strings.flatMap { string in
            var length = string.count
            var bytes: [UInt8] = []
            repeat {
                bytes.append(UInt8(length & 0x7F) | (length > 0x7F ? 0x80 : 0))
                length >>= 7
            } while length > 0
            return bytes + string
        }
    }
}
