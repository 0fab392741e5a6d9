// The code of a locked channel, and the proof by which both ends show that they know it without revealing it.
import Cryptography

/// The code of a locked channel nearby: six digits that people tell each other.
public struct InvitationCode: Hashable, Sendable, CustomStringConvertible {
    /// How many digits it has.
    public static let digitCount = 6
    /// The size of a proof in bytes.
    public static let tagByteCount = HashFunction.sha256.byteCount
    /// The digits, as ASCII.
    public let digits: String

    /// Reads six digits. Spaces and hyphens between them do not count.
    ///
    /// - Returns: nil for anything else.
    public init?(_ text: String) {
        // Whatever is longer than a spaced-out code is none, and is not looked through.
        guard text.utf8.count <= 4 * Self.digitCount else { return nil }
        let digits = text.filter { $0 != " " && $0 != "-" }
        guard digits.utf8.count == Self.digitCount, digits.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else {
            return nil
        }
        self.digits = digits
    }

    /// A code drawn by chance.
    public init() {
        var random = SecureRandom()
        digits = String((0..<Self.digitCount).map { _ in Character("\(Int.random(in: 0...9, using: &random))") })
    }

    /// The digits in two groups, as people read them.
    public var description: String { "\(digits.prefix(3)) \(digits.suffix(3))" }

    /// One end's part of a proof that both ends know the code.
    ///
    /// - Parameters:
    ///   - role: The client is the initiator.
    ///   - channel: The channel that the code is for.
    ///   - relay: The relay's key, which the transport has verified.
    ///   - client: The client's key, in the same way: nobody can pass the exchange on.
    ///   - random: Must be a secure one outside tests.
    public func proof(
        _ role: CPace.Role, channel: ChannelID, relay: PublicKeyPin, client: MemberID,
        using random: inout some RandomNumberGenerator
    ) -> Proof {
        let context = Array("pttd invitation code".utf8) + channel.bytes + relay.bytes + client.bytes
        return Proof(CPace(role, code: Array(digits.utf8), context: context, using: &random))
    }

    /// One end of one proof. An impostor learns from it whether one code is the right one, and no more.
    public struct Proof: Sendable {
        private let exchange: CPace

        init(_ exchange: CPace) { self.exchange = exchange }

        /// What this end sends to the other one, 32 bytes.
        public var share: [UInt8] { exchange.share }

        /// What both ends are to show when their codes are equal; nil when the other end's share is none.
        public func tags(with other: [UInt8]) -> (client: [UInt8], relay: [UInt8])? {
            guard let key = exchange.key(from: other) else { return nil }
            return (
                hmacSHA256(Array("client knows the code".utf8), key: key),
                hmacSHA256(Array("relay knows the code".utf8), key: key)
            )
        }
    }
}

/// How somebody nearby gets the invitation to a channel.
public enum AdmissionRule: Sendable, Hashable {
    /// Whoever asks is given it.
    case open
    /// Whoever proves the code is given it.
    case code(InvitationCode)
    /// Whoever the host's user admits is given it.
    case ask
}
