// What the nodes of a cluster send each other by way of NATS, sealed: nobody else can make, alter or repeat it.
import Cryptography

/// The format of calls, and its bounds.
///
/// A request is `version, kind, length of caller, caller, number, body, code`, an answer `version, kind, body, code`; numbers are
/// big-endian. A node is named by its incarnation, which is random, and another one each time that the node starts. So what was
/// sent to one that has stopped is of no use afterwards.
enum ClusterCallSeal {
    /// Bytes of the longest body, of a request or of an answer.
    static let bodyByteCountMaximum = 256 << 10
    /// Characters of the longest incarnation.
    static let incarnationLengthMaximum = 64

    /// Another version of the program that writes another format has another byte here.
    fileprivate static let version: UInt8 = 1

    fileprivate enum Kind: UInt8 {
        case request = 1, answer
    }

    /// Whether a text may be an incarnation: of visible ASCII characters, so that it has one spelling.
    static func isIncarnation(_ text: some Sequence<UInt8>) -> Bool {
        let text = Array(text)
        return (1...incarnationLengthMaximum).contains(text.count) && text.allSatisfy { (0x21...0x7E).contains($0) }
    }

    /// The code of a message. All that is before the body has a length that is known or stated, and requests and answers differ in the
    /// second byte, so no two messages have the same bytes here.
    fileprivate static func code(
        _ kind: Kind, of body: [UInt8], number: UInt64, from caller: String, to recipient: String,
        by identity: ClusterIdentity
    ) -> [UInt8] {
        var bytes = [version, kind.rawValue]
        for name in [caller, recipient] {
            bytes += UInt32(clamping: name.utf8.count).bigEndianBytes
            bytes += name.utf8
        }
        bytes += number.bigEndianBytes
        bytes += body
        return identity.callCode(bytes)
    }
}

/// A node that asks others.
struct ClusterCaller: Sendable {
    private let identity: ClusterIdentity
    private let incarnation: String
    private var last: UInt64 = 0

    /// A node with an incarnation that no other node has, and none had: random, of at most 64 visible ASCII characters.
    init(identity: ClusterIdentity, incarnation: String) {
        precondition(ClusterCallSeal.isIncarnation(incarnation.utf8), "no incarnation: \(incarnation)")
        self.identity = identity
        self.incarnation = incarnation
    }

    /// A request to the node of that incarnation, with its number, by which its answer is opened; nil: the body is too long.
    mutating func seal(_ body: [UInt8], to recipient: String) -> (message: [UInt8], number: UInt64)? {
        guard body.count <= ClusterCallSeal.bodyByteCountMaximum else { return nil }
        last += 1
        var message = [ClusterCallSeal.version, ClusterCallSeal.Kind.request.rawValue]
        message.append(UInt8(clamping: incarnation.utf8.count))
        message += incarnation.utf8
        message += last.bigEndianBytes
        message += body
        message += ClusterCallSeal.code(
            .request, of: body, number: last, from: incarnation, to: recipient, by: identity)
        return (message, last)
    }

    /// The body of the answer to the request of that number; nil: that node has not written it, or to another request.
    func open(_ answer: [UInt8], to number: UInt64, of recipient: String) -> [UInt8]? {
        let codeByteCount = ClusterIdentity.codeByteCount
        guard answer.starts(with: [ClusterCallSeal.version, ClusterCallSeal.Kind.answer.rawValue]),
            case let count = answer.count - 2 - codeByteCount,
            (0...ClusterCallSeal.bodyByteCountMaximum).contains(count)
        else {
            return nil
        }
        let body = Array(answer[2..<2 + count])
        let code = ClusterCallSeal.code(
            .answer, of: body, number: number, from: incarnation, to: recipient, by: identity)
        return constantTimeEqual(code, Array(answer.suffix(codeByteCount))) ? body : nil
    }
}

/// A node that is asked by others.
struct ClusterCallee: Sendable {
    /// A request.
    struct Call: Equatable, Sendable {
        /// The incarnation of the node that asks.
        var caller: String
        /// The caller's number of it.
        var number: UInt64
        /// What it says.
        var body: [UInt8]
    }

    /// How many nodes may ask. None is forgotten: its requests could be repeated.
    static let callersMaximum = 4_096

    private let identity: ClusterIdentity
    private let incarnation: String
    private var callers: [String: ReplayWindow] = [:]

    /// A node with an incarnation that no other node has, and none had: random, of at most 64 visible ASCII characters.
    init(identity: ClusterIdentity, incarnation: String) {
        precondition(ClusterCallSeal.isIncarnation(incarnation.utf8), "no incarnation: \(incarnation)")
        self.identity = identity
        self.incarnation = incarnation
    }

    /// Whether no further node is answered. Each start of a node counts as one. A new callee, with a new incarnation, answers again.
    var isFull: Bool { callers.count >= Self.callersMaximum }

    /// Opens a request, once; nil: no node has written it, or not to this one, or it is here again, or its caller is one too many.
    mutating func open(_ message: [UInt8]) -> Call? {
        guard let (call, code) = Self.parts(of: message) else { return nil }
        let expected = ClusterCallSeal.code(
            .request, of: call.body, number: call.number, from: call.caller, to: incarnation, by: identity)
        guard constantTimeEqual(expected, code) else { return nil }
        guard callers[call.caller] != nil || !isFull else { return nil }
        // In place: a window is not copied.
        guard callers[call.caller, default: ReplayWindow()].accept(call.number) else { return nil }
        return call
    }

    /// The answer to a request; nil: the body is too long. It is valid for that request only.
    func seal(_ answer: [UInt8], to call: Call) -> [UInt8]? {
        guard answer.count <= ClusterCallSeal.bodyByteCountMaximum else { return nil }
        return [ClusterCallSeal.version, ClusterCallSeal.Kind.answer.rawValue] + answer
            + ClusterCallSeal.code(
                .answer, of: answer, number: call.number, from: call.caller, to: incarnation, by: identity)
    }

    private static func parts(of message: [UInt8]) -> (call: Call, code: [UInt8])? {
        let (headByteCount, numberByteCount, codeByteCount) = (3, 8, ClusterIdentity.codeByteCount)
        guard message.starts(with: [ClusterCallSeal.version, ClusterCallSeal.Kind.request.rawValue]),
            message.count >= headByteCount
        else {
            return nil
        }
        let numberStart = headByteCount + Int(message[2])
        let bodyStart = numberStart + numberByteCount
        let bodyByteCount = message.count - bodyStart - codeByteCount
        guard (0...ClusterCallSeal.bodyByteCountMaximum).contains(bodyByteCount) else { return nil }
        let caller = message[headByteCount..<numberStart]
        guard ClusterCallSeal.isIncarnation(caller) else { return nil }
        return (
            Call(
                caller: String(decoding: caller, as: UTF8.self),
                number: message[numberStart..<bodyStart].reduce(0) { $0 << 8 | UInt64($1) },
                body: Array(message[bodyStart..<bodyStart + bodyByteCount])),
            Array(message.suffix(codeByteCount))
        )
    }
}
