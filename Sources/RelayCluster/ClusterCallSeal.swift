// What the nodes of a cluster share: the relay's key, and by it the proof that a record, or a call by way of NATS, is one of theirs.
import Cryptography

/// A node that asks others, and is asked by them: the format of calls, and its bounds.
///
/// A request is `version, kind, length of caller, caller, number, body, code`, an answer `version, kind, body, code`; numbers are
/// big-endian. A node is named by its incarnation, which is random, and another one each time that the node starts. So what was
/// sent to one that has stopped is of no use afterwards.
///
/// The upper half of a number is the hour in which the request was made, so numbers of all callers have one order. A node that knows too
/// many callers forgets the one whose last number is the least, and opens no number up to that one any more, whoever's it is.
struct ClusterCallSeal: Sendable {
    /// A request.
    struct Call: Equatable, Sendable {
        /// The incarnation of the node that asks.
        var caller: String
        /// The caller's number of it.
        var number: UInt64
        /// What it says.
        var body: [UInt8]
    }

    private enum Kind: UInt8 {
        case request = 1, answer
    }

    /// Bytes of the longest body, of a request or of an answer.
    static let bodyByteCountMaximum = 256 << 10
    /// Characters of the longest incarnation.
    static let incarnationLengthMaximum = 64
    /// How many callers are known; each start of a node is another one.
    static let callersMaximum = 4_096
    /// Another version of the program that writes another format has another byte here.
    private static let version: UInt8 = 1

    private let identity: ClusterIdentity
    private let incarnation: String
    private var last: UInt64 = 0
    private var callers: [String: ReplayWindow] = [:]
    /// The last number of a caller that was forgotten; no known caller's last one is before it.
    private var forgotten: UInt64 = 0

    /// A node with an incarnation that no other node has, and none had: random, of at most 64 visible ASCII characters.
    init(identity: ClusterIdentity, incarnation: String) {
        precondition(Self.isIncarnation(incarnation.utf8), "no incarnation: \(incarnation)")
        self.identity = identity
        self.incarnation = incarnation
    }

    /// Whether a text may be an incarnation: of visible ASCII characters, so that it has one spelling.
    static func isIncarnation(_ text: some Sequence<UInt8>) -> Bool {
        let text = Array(text)
        return (1...incarnationLengthMaximum).contains(text.count) && text.allSatisfy { (0x21...0x7E).contains($0) }
    }

    /// The code of a message. All that is before the body has a length that is known or stated, and requests and answers differ in the
    /// second byte, so no two messages have the same bytes here.
    private func code(
        _ kind: Kind, of body: [UInt8], number: UInt64, from caller: String, to recipient: String
    ) -> [UInt8] {
        var bytes = Self.head(kind)
        for name in [caller, recipient] {
            bytes += UInt32(clamping: name.utf8.count).bigEndianBytes
            bytes += name.utf8
        }
        bytes += number.bigEndianBytes
        bytes += body
        return identity.callCode(bytes)
    }

    private static func head(_ kind: Kind) -> [UInt8] { [version, kind.rawValue] }

    // MARK: Asking

    /// A request to the node of that incarnation, with its number, by which its answer is opened; nil: the body is too long.
    ///
    /// - Parameter time: Now, in seconds since 1970. A clock that is wrong by hours matters only where callers are forgotten.
    mutating func seal(_ body: [UInt8], to recipient: String, at time: Int64) -> (message: [UInt8], number: UInt64)? {
        guard body.count <= Self.bodyByteCountMaximum else { return nil }
        // Not finer: a request that is overtaken by one of the next hour is too old for its window.
        last = max(last + 1, UInt64(UInt32(clamping: time / 3_600)) << 32)
        var message = Self.head(.request)
        message.append(UInt8(clamping: incarnation.utf8.count))
        message += incarnation.utf8
        message += last.bigEndianBytes
        message += body
        message += code(.request, of: body, number: last, from: incarnation, to: recipient)
        return (message, last)
    }

    /// The body of the answer to the request of that number; nil: that node has not written it, or to another request.
    func open(_ answer: [UInt8], to number: UInt64, of recipient: String) -> [UInt8]? {
        let codeByteCount = ClusterIdentity.codeByteCount
        let count = answer.count - 2 - codeByteCount
        guard answer.starts(with: Self.head(.answer)), (0...Self.bodyByteCountMaximum).contains(count) else {
            return nil
        }
        let body = Array(answer[2..<2 + count])
        let code = code(.answer, of: body, number: number, from: incarnation, to: recipient)
        return constantTimeEqual(code, Array(answer.suffix(codeByteCount))) ? body : nil
    }

    // MARK: Answering

    /// Opens a request, once; nil: no node has written it, or not to this one, or it is here again, or may be.
    mutating func open(_ message: [UInt8]) -> Call? {
        guard let (call, code) = Self.parts(of: message) else { return nil }
        let expected = self.code(
            .request, of: call.body, number: call.number, from: call.caller, to: incarnation)
        guard constantTimeEqual(expected, code), call.number > forgotten else { return nil }
        if callers[call.caller] == nil, callers.count >= Self.callersMaximum {
            guard forgetOldest(before: call.number) else { return nil }
        }
        // In place: a window is not copied.
        guard callers[call.caller, default: ReplayWindow()].accept(call.number) else { return nil }
        return call
    }

    /// Forgets the caller that has asked nothing for longest; false: even its last number is not before that one.
    private mutating func forgetOldest(before number: UInt64) -> Bool {
        let oldest = callers.min { $0.value.last < $1.value.last }
        guard let oldest, oldest.value.last < number else { return false }
        callers[oldest.key] = nil
        forgotten = oldest.value.last
        return true
    }

    /// The answer to a request; nil: the body is too long. It is valid for that request only.
    func seal(_ answer: [UInt8], to call: Call) -> [UInt8]? {
        guard answer.count <= Self.bodyByteCountMaximum else { return nil }
        return Self.head(.answer) + answer
            + code(.answer, of: answer, number: call.number, from: call.caller, to: incarnation)
    }

    private static func parts(of message: [UInt8]) -> (call: Call, code: [UInt8])? {
        let (headByteCount, numberByteCount, codeByteCount) = (3, 8, ClusterIdentity.codeByteCount)
        guard message.starts(with: head(.request)), message.count >= headByteCount else { return nil }
        let numberStart = headByteCount + Int(message[2])
        let bodyStart = numberStart + numberByteCount
        let bodyByteCount = message.count - bodyStart - codeByteCount
        guard (0...bodyByteCountMaximum).contains(bodyByteCount) else { return nil }
        let caller = message[headByteCount..<numberStart]
        guard isIncarnation(caller) else { return nil }
        return (
            Call(
                caller: String(decoding: caller, as: UTF8.self),
                number: message[numberStart..<bodyStart].reduce(0) { $0 << 8 | UInt64($1) },
                body: Array(message[bodyStart..<bodyStart + bodyByteCount])),
            Array(message.suffix(codeByteCount))
        )
    }
}

extension ReplayWindow {
    /// The last number; 0: there was none.
    fileprivate var last: UInt64 { highestAccepted ?? 0 }
}

/// The relay that a cluster is.
///
/// Each message of the log carries a code under a key that is derived from the relay's private key, which only nodes have. So whoever can
/// write to NATS can stop a cluster, but make nobody a member; and a message that is damaged, or of another cluster of this relay, is noticed
/// before SQLite reads it.
public struct ClusterIdentity: Sendable {
    /// The fingerprint of the relay's key.
    public let pin: PublicKeyPin
    private let key: [UInt8]
    private let callKey: [UInt8]

    /// Bytes of a code: HMAC-SHA-256, cut as RFC 2104 (section 5) allows.
    static let codeByteCount = 16

    /// The relay with that identity.
    ///
    /// - Throws: `CryptographyError`.
    public init(_ identity: Identity) throws(CryptographyError) {
        pin = identity.pin
        let hash = HashFunction.sha256
        let secret = try hash.extract(keyMaterial: identity.privateKeyDER)
        key = try hash.expand(
            pseudorandomKey: secret, info: Array("pttrelay cluster log".utf8), byteCount: 32)
        callKey = try hash.expand(
            pseudorandomKey: secret, info: Array("pttrelay cluster calls".utf8), byteCount: 32)
    }

    /// The code of what nodes send each other, under a key of its own: none of it is valid in the log.
    func callCode(_ message: [UInt8]) -> [UInt8] {
        Array(hmacSHA256(message, key: callKey).prefix(Self.codeByteCount))
    }

    private func code(_ message: [UInt8], at sequence: UInt64, of cluster: String) -> ArraySlice<UInt8> {
        hmacSHA256(Array(cluster.utf8) + sequence.bigEndianBytes + message, key: key).prefix(Self.codeByteCount)
    }

    /// The message with its code, for that place in the log of that cluster: it is valid at no other one.
    func seal(_ message: [UInt8], at sequence: UInt64, of cluster: String) -> [UInt8] {
        message + code(message, at: sequence, of: cluster)
    }

    /// The message without its code; nil: no node has written it there.
    func open(_ sealed: [UInt8], at sequence: UInt64, of cluster: String) -> [UInt8]? {
        guard sealed.count >= Self.codeByteCount else { return nil }
        let message = Array(sealed.dropLast(Self.codeByteCount))
        guard
            constantTimeEqual(Array(code(message, at: sequence, of: cluster)), Array(sealed.suffix(Self.codeByteCount)))
        else {
            return nil
        }
        return message
    }
}
