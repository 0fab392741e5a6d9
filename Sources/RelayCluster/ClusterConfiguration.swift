// What a node knows of its cluster before it connects, and what its nodes say of the cluster and of themselves.
import Cryptography
import FoundationEssentials
import NATS

/// A cluster, and a node of it.
public struct ClusterConfiguration: Equatable, Sendable {
    /// The cluster's name, which all nodes have.
    public var name: String
    /// This node's name.
    public var node: String
    /// How the servers of NATS are reached.
    public var nats: NATSOptions
    /// Where members reach this node, as `host:port`.
    public var place: String
    /// Where other nodes reach its web endpoint (`WebLinkAddress`); nil: they do not.
    public var web: String?
    /// On how many servers the records are kept.
    public var replicas: Int
    /// The most bytes of the log.
    public var logBytesMaximum: Int

    /// Such a node.
    public init(name: String, node: String, nats: NATSOptions, place: String, replicas: Int, logBytesMaximum: Int) {
        self.name = name
        self.node = node
        self.nats = nats
        self.place = place
        self.replicas = replicas
        self.logBytesMaximum = logBytesMaximum
    }

    /// Whether `text` can be a cluster's or node's name: letters, digits, `-` and `_`, since it is part of names in NATS.
    public static func isName(_ text: String) -> Bool {
        (1...nameMaximum).contains(text.utf8.count)
            && text.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
                    true
                default: false
                }
            }
    }

    /// The longest name.
    public static let nameMaximum = 32

    // MARK: Names in NATS

    var log: NATSStream {
        NATSStream(
            name: "PTTRELAY_\(name)_LOG", subject: "pttrelay.\(name).log", replicas: replicas,
            bytesMaximum: logBytesMaximum, keepsLastOnly: false)
    }

    var state: NATSStream {
        NATSStream(
            name: "PTTRELAY_\(name)_STATE", subject: subject(">"), replicas: replicas, bytesMaximum: 1 << 20,
            keepsLastOnly: true)
    }

    /// The table of shares has a stream to itself: only the last message of a stream can be named so that one of several writers succeeds.
    /// Some messages are kept: see `ShareTableChain`.
    var shares: NATSStream {
        var stream = NATSStream(
            name: "PTTRELAY_\(name)_SHARES", subject: "pttrelay.\(name).shares", replicas: replicas,
            bytesMaximum: 16 << 20, keepsLastOnly: true)
        stream.messagesKept = ShareTableChain.messagesKept
        return stream
    }

    var descriptionSubject: String { subject("cluster") }
    func nodeSubject(_ node: String) -> String { subject("node.\(node)") }

    func callSubject(_ incarnation: String) -> String { "pttrelay.\(name).call.\(incarnation)" }

    private func subject(_ of: String) -> String { "pttrelay.\(name).state.\(of)" }
}

/// What a cluster is; written once, when its first records are in the log.
public struct ClusterDescription: Codable, Equatable, Sendable {
    /// Identifies it: 16 bytes in hexadecimal.
    public var cluster: String
    /// The fingerprint of the relay's key, in Base64url.
    public var pin: String
    /// The position of the beginning in the log.
    public var first: UInt64
    /// True. Nil in clusters of earlier versions, of which one relay served (`ClusterError.oneServes`).
    public var allServe: Bool?
}

/// What a node says of itself every few seconds.
public struct ClusterNodeReport: Codable, Equatable, Sendable {
    /// Its name.
    public var node: String
    /// See `ClusterMember.identifier`.
    public var identifier: String
    /// Where members reach it.
    public var place: String
    /// Whether it writes the records. Nothing reads it here; earlier versions cannot read a report without it.
    public var serves: Bool
    /// The last position of the log that it has.
    public var position: UInt64
    /// When it said so, in seconds since 1970.
    public var at: Int64
    /// The version of its program.
    public var version: String
}

extension Encodable {
    /// As a message.
    var message: [UInt8] {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // Texts and numbers can always be encoded.
        return (try? encoder.encode(self)).map { Array($0) } ?? []
    }
}

extension Decodable {
    /// What a message of at most 2,048 bytes says; nil: something else.
    init?(message: [UInt8]) {
        guard message.count <= 2_048, let value = try? JSONDecoder().decode(Self.self, from: Data(message)) else {
            return nil
        }
        self = value
    }
}

/// Why a relay cannot be a node of its cluster.
public enum ClusterError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The cluster has no records yet.
    case noRecords(String)
    /// It has records already, which are not this relay's.
    case hasRecords(String)
    /// It was made by an earlier version, and one of its relays serves while the others stand by.
    case oneServes(String)
    /// It is another relay's.
    case otherRelay(String)
    /// Another node has the name.
    case nameTaken(String)
    /// The table of shares cannot be read.
    case unreadableShares
    /// A part of the table of shares is not there.
    case incompleteShares
    /// The NATS servers have lost a part of the table of shares.
    case sharesForked
    /// A message of the log cannot be read.
    case unreadable(position: UInt64)
    /// A message of the log was written by nobody who has the relay's key.
    case forged(position: UInt64)
    /// A message of the log is gone.
    case incomplete(position: UInt64)
    /// A transaction changes too much.
    case tooMuch
    /// Another node has written since.
    case fenced
    /// The relay that writes the records cannot be asked.
    case notAnswered(String)

    /// What is wrong and what to do.
    public var description: String {
        switch self {
        case .noRecords(let name):
            "the cluster '\(name)' has no records yet; 'pttrelay cluster import' on the relay that has them makes it"
        case .hasRecords(let name):
            "the cluster '\(name)' has other records than this relay; to keep those here, set another 'name' in [cluster]; to join "
                + "that cluster, stop the relay, and 'pttrelay begin-anew records' sets them aside"
        case .oneServes(let name):
            "one relay of the cluster '\(name)' serves at a time, as with earlier versions; now all relays serve: make a new cluster, with "
                + "another 'name' in [cluster], by 'pttrelay cluster leave' and 'pttrelay cluster import' on the relay that served last"
        case .otherRelay(let name):
            "the cluster '\(name)' is another relay's, whose key is not this one's; two clusters on the same NATS servers need two "
                + "names: set another 'name' in [cluster]. A further relay of that cluster needs a copy of its identity.pem"
        case .nameTaken(let node):
            "another relay of the cluster is called '\(node)'; give this one another 'node' in [cluster]"
        case .unreadableShares:
            "the table of the cluster's shares was written by a later version of pttrelay, or by something else; install the version that "
                + "the other nodes have"
        case .incompleteShares:
            "a part of the table of the cluster's shares is not there; the NATS servers may look for a leader"
        case .sharesForked:
            "the NATS servers have lost a part of the table of the cluster's shares; relays that disagree about it begin anew"
        case .unreadable(let position):
            "record \(position) of the cluster was written by a later version of pttrelay, or by something else; install the version "
                + "that the other nodes have"
        case .forged(let position):
            "record \(position) of the cluster was not written by a relay with this key, or is damaged; see who can write to the NATS "
                + "servers, and make a new cluster, with another name, from the node with the latest records"
        case .incomplete(let position):
            "record \(position) of the cluster is gone; make a new cluster, with another name, from the node with the latest records"
        case .tooMuch: "the change is too large for the cluster's log; make it in smaller steps"
        case .fenced: "another relay of the cluster writes the records now"
        case .notAnswered(let why): "the relay that writes the cluster's records does not answer; try again (\(why))"
        }
    }
}
