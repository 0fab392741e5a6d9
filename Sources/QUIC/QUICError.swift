// The errors of this module: refused calls, and the reasons why a connection ended.
import Cryptography
import Reactor

/// A call on an endpoint, connection or stream that could not be done. Nothing has changed when one is thrown.
public enum QUICError: Error, Equatable, Sendable, CustomStringConvertible {
    /// A socket call failed; `during` says what was attempted.
    case socket(SystemError, during: String)
    /// The certificate or private key cannot be used; `reason` is GnuTLS's.
    case unusableIdentity(reason: String)
    /// An endpoint that accepts connections has no identity to show.
    case serverWithoutIdentity
    /// The TLS or QUIC library refused; `call` names its function, `reason` is its own words.
    case library(call: String, reason: String)
    /// A setting is outside its range; the text says which and what is allowed.
    case invalidSetting(String)
    /// The endpoint or the connection is closed.
    case closed
    /// The state does not allow it; the text says why.
    case invalidState(String)
    /// The peer allows no further stream now; try again when one of them has closed.
    case streamLimitReached
    /// The stream's sending side was finished or reset.
    case streamFinished
    /// `needed` bytes do not fit into the `available` bytes of the stream's send buffer: wait for the
    /// delegate's `streamDidBecomeWritable`.
    case sendBufferFull(needed: Int, available: Int)
    /// A datagram is longer than this connection carries.
    case datagramTooLarge(maximum: Int)
    /// The peer does not take datagrams (RFC 9221: `max_datagram_frame_size` is 0).
    case datagramsNotSupported
    /// A name that resolves to no address; `reason` is the resolver's.
    case unresolvedHost(String, reason: String)

    /// The failure, and what to do about it where that is known.
    public var description: String {
        switch self {
        case .socket(let error, let during): "\(during): \(error)"
        case .unusableIdentity(let reason):
            "the certificate and private key cannot be used (\(reason)); make a new pair or check the files"
        case .serverWithoutIdentity: "an endpoint that accepts connections needs a certificate and private key"
        case .library(let call, let reason): "\(call): \(reason)"
        case .invalidSetting(let text): text
        case .closed: "the connection is closed"
        case .invalidState(let text): text
        case .streamLimitReached: "the peer allows no further stream now"
        case .streamFinished: "the stream's sending side has been finished"
        case .sendBufferFull(let needed, let available):
            "\(needed) bytes do not fit into the \(available) bytes left of the stream's send buffer"
        case .datagramTooLarge(let maximum): "datagrams on this connection carry at most \(maximum) bytes"
        case .datagramsNotSupported: "the peer does not accept QUIC datagrams"
        case .unresolvedHost(let host, let reason): "no address for '\(host)': \(reason)"
        }
    }
}

/// Why a connection ended. Every connection that a delegate knew ends with exactly one of these.
public enum QUICCloseReason: Error, Equatable, Sendable, CustomStringConvertible {
    /// This side's application closed it.
    case closedLocally(code: UInt64, reason: String)
    /// The peer's application closed it, with its code and words.
    case closedByPeer(code: UInt64, reason: String)
    /// A violation of the protocol, found here or (`fromPeer`) by the peer; codes of RFC 9000, section 20.1.
    case transportError(code: UInt64, reason: String, fromPeer: Bool)
    /// Nothing was heard from the peer for the idle time-out.
    case idleTimeout
    /// The handshake took too long: nobody answers there, or packets are lost on the way.
    case handshakeTimeout
    /// The peer has lost the connection's state (it restarted) and said so.
    case statelessReset
    /// The peer's key, whose SPKI has this SHA-256, is not the pinned one or was refused by the hook.
    case peerKeyRejected(sha256: [UInt8])
    /// The peer refused this side's key.
    case ownKeyRejected
    /// The peer demands a certificate and this side showed none.
    case ownCertificateMissing
    /// The peer showed no certificate.
    case peerCertificateMissing
    /// The two sides speak different application protocols (ALPN).
    case applicationProtocolMismatch
    /// Any other TLS alert (RFC 8446, section 6), sent by this side or (`fromPeer`) the peer.
    case tlsAlert(UInt8, fromPeer: Bool)
    /// The server speaks no version of QUIC that this side does.
    case versionMismatch
    /// The endpoint was closed.
    case endpointClosed

    /// The reason in words for a log or a user.
    public var description: String {
        switch self {
        case .closedLocally(let code, let reason): "closed here (\(code)\(Self.suffix(reason)))"
        case .closedByPeer(let code, let reason): "closed by the peer (\(code)\(Self.suffix(reason)))"
        case .transportError(let code, let reason, let fromPeer):
            "QUIC error 0x\(String(code, radix: 16)) \(fromPeer ? "from the peer" : "found here")\(Self.suffix(reason))"
        case .idleTimeout: "nothing was heard from the peer for the idle time-out"
        case .handshakeTimeout: "no answer from the peer"
        case .statelessReset: "the peer has lost the connection (restarted)"
        case .peerKeyRejected(let hash):
            "the peer's key is not the expected one (its SHA-256 is \(Hexadecimal.encode(hash))); get a new invitation"
        case .ownKeyRejected: "the peer refused this side's key"
        case .ownCertificateMissing: "the peer demands a certificate and none is configured"
        case .peerCertificateMissing: "the peer showed no certificate"
        case .applicationProtocolMismatch: "the peer speaks another application protocol"
        case .tlsAlert(let alert, let fromPeer): "TLS alert \(alert) \(fromPeer ? "from the peer" : "found here")"
        case .versionMismatch: "the server does not speak QUIC version 1"
        case .endpointClosed: "the endpoint was closed"
        }
    }

    private static func suffix(_ reason: String) -> String { reason.isEmpty ? "" : ", \"\(reason)\"" }
}
