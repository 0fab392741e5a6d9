// Why NATS did not do what it was asked.
import CNats

/// An error of NATS or of its JetStream.
public struct NATSError: Error, Equatable, Sendable, CustomStringConvertible {
    /// What kind of failure it is.
    public enum Kind: Equatable, Sendable {
        /// The library is not installed.
        case noLibrary
        /// No server can be reached, or the connection is lost.
        case unreachable
        /// The servers do not let this client in, or not do this.
        case refused
        /// No answer came in time. What was asked may have been done all the same.
        case noAnswer
        /// Nobody is there to answer. Nothing was done.
        case noResponder
        /// JetStream cannot do it now: too few servers are there, or they have not agreed on a leader yet.
        case unavailable
        /// The servers have no JetStream, or fewer than the replicas that were asked for.
        case unsuitable
        /// The last message of the subject is not the one that was expected.
        case otherLast
        /// There is no such stream.
        case noStream
        /// There is no such message.
        case noMessage
        /// The stream, or the servers' disk, takes no more.
        case full
        /// A stream of that name has other settings.
        case differs
        /// Anything else.
        case other
    }

    /// See `Kind`.
    public let kind: Kind
    /// The words of the library or of the servers.
    public let why: String

    init(_ kind: Kind, _ why: String) {
        self.kind = kind
        self.why = why
    }

    init(_ failure: ptt_nats_failure) {
        var text = failure.text
        let words = withUnsafeBytes(of: &text) { bytes in
            String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
        }
        self.init(Self.kind(status: failure.status, code: failure.code, words), Self.plain(words))
    }

    /// The kinds by libnats' numbers (nats/status.h), JetStream's first, which say more.
    static func kind(status: Int32, code: Int32, _ words: String) -> Kind {
        switch code {
        case 10_071: return .otherLast
        case 10_059: return .noStream
        case 10_037: return .noMessage
        case 10_058: return .differs
        // Resources of the account, the servers and the stream.
        case 10_002, 10_023, 10_047, 10_077: return .full
        case 10_005, 10_039, 10_074: return .unsuitable
        case 10_003, 10_004, 10_007, 10_008, 10_009: return .unavailable
        default: break
        }
        switch status {
        // The last one: there is no connection, and nothing is kept to be sent later.
        case 3, 5, 6, 7, 10, 23: return .unreachable
        case 8, 9, 11, 12, 29: return .refused
        case 26: return .noAnswer
        case 34: return .unavailable
        default: return words.contains("maximum bytes") || words.contains("maximum messages") ? .full : .other
        }
    }

    /// Without the place in libnats' source, which it puts in front.
    static func plain(_ words: String) -> String {
        guard words.hasPrefix("("), let end = words.firstRange(of: "): ") else { return words }
        return String(words[end.upperBound...])
    }

    /// What is wrong and what to do.
    public var description: String {
        switch kind {
        case .noLibrary:
            "\(why) is not installed; install it (Debian's package of that name is 'libnats' with its version)"
        case .unreachable: "no NATS server can be reached (\(why)); see whether they run, and 'servers' in [cluster]"
        case .refused: "the NATS servers refuse this relay (\(why)); see 'servers', 'credentials' and 'ca' in [cluster]"
        case .noAnswer: "the NATS servers do not answer (\(why))"
        case .noResponder:
            "no other relay answers by way of NATS (\(why)); see whether it runs, and whether NATS lets its user subscribe"
        case .unavailable:
            "JetStream is not available now (\(why)): too few NATS servers run, or they look for a leader"
        case .unsuitable:
            "the NATS servers cannot keep the records (\(why)); enable JetStream, and run at least as many servers as 'replicas'"
        case .otherLast: "another relay has written meanwhile"
        case .noStream: "there is no such stream (\(why))"
        case .noMessage: "there is no such message (\(why))"
        case .full: "JetStream takes no more (\(why)); give the stream and the servers' disks more room"
        case .differs: "there is a stream of that name with other settings (\(why)); choose another 'name' in [cluster]"
        case .other: "NATS: \(why)"
        }
    }
}
