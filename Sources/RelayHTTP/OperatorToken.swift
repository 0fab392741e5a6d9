// The secret that opens the operator's endpoint.
import Cryptography

/// 32 random bytes, written in Base64url.
public struct OperatorToken: Sendable, Equatable {
    /// Its length in bytes.
    public static let byteCount = 32

    private let bytes: [UInt8]

    /// A new one.
    public init() { bytes = SecureRandom.bytes(Self.byteCount) }

    /// Reads one; nil for anything else, white space around it aside.
    public init?(_ text: some StringProtocol) {
        let isSpace: (Character) -> Bool = { $0 == " " || $0 == "\t" || $0.isNewline }
        let start = text.drop(while: isSpace)
        guard let end = start.lastIndex(where: { !isSpace($0) }),
            let bytes = Base64URL.decode(String(start[...end])), bytes.count == Self.byteCount
        else { return nil }
        self.bytes = bytes
    }

    /// The token as it is written.
    public var text: String { Base64URL.encode(bytes) }

    /// Whether the value of an `Authorization` field is this token (RFC 6750, 2.1). The time it takes does not tell how much of it
    /// was right.
    public func opens(_ authorization: String?) -> Bool {
        let scheme = "bearer "
        guard let authorization, authorization.lowercased().hasPrefix(scheme),
            let shown = OperatorToken(authorization.dropFirst(scheme.count))
        else { return false }
        return constantTimeEqual(bytes, shown.bytes)
    }
}
