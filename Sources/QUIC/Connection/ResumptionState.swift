// What a client keeps to resume a connection: ticket, the server's limits, an address token, whose server it was.
import CGnuTLS
import CLinux
import CNgtcp2
import Cryptography

/// What a client needs to greet a server that it knows, with early data in its first packet (0-RTT, RFC 9001,
/// section 4.6). It contains secrets; keep `bytes` as carefully as a private key.
public struct ResumptionState: Sendable, Equatable {
    private static let formatVersion: UInt8 = 1
    /// Bounds the parts of `bytes`; a ticket holds the client's certificate.
    private static let maximumPartLength = 65_535

    /// GnuTLS's session data.
    var session: [UInt8]
    /// The server's transport parameters in wire form; early data keeps to their limits.
    var transportParameters: [UInt8]
    /// From NEW_TOKEN; spares the Retry. May be empty.
    var token: [UInt8]
    /// SHA-256 of the SPKI of the server that gave it.
    public internal(set) var serverKeySHA256: [UInt8]

    /// The state in one piece, for a file.
    public var bytes: [UInt8] {
        var result = [Self.formatVersion]
        for part in [session, transportParameters, token, serverKeySHA256] {
            result.append(UInt8(truncatingIfNeeded: part.count >> 8))
            result.append(UInt8(truncatingIfNeeded: part.count))
            result += part
        }
        return result + sha256(result)
    }

    /// Whether every part can be written into `bytes`.
    var isStorable: Bool {
        [session, transportParameters, token].allSatisfy { $0.count <= Self.maximumPartLength }
    }
}

extension ResumptionState {
    /// The state that `bytes` holds, or nil when it is damaged or of another version: connect without it then.
    public init?(bytes: [UInt8]) {
        // GnuTLS does not survive damaged session data, so not a bit of it may have changed.
        let body = bytes.dropLast(32)
        guard body.first == Self.formatVersion, bytes.suffix(32).elementsEqual(sha256(Array(body))) else { return nil }
        var rest = body.dropFirst()
        var parts: [[UInt8]] = []
        for _ in 0..<4 {
            guard rest.count >= 2 else { return nil }
            let length = Int(rest[rest.startIndex]) << 8 | Int(rest[rest.startIndex + 1])
            rest = rest.dropFirst(2)
            guard rest.count >= length else { return nil }
            parts.append(Array(rest.prefix(length)))
            rest = rest.dropFirst(length)
        }
        guard rest.isEmpty, parts[3].count == 32 else { return nil }
        self.init(session: parts[0], transportParameters: parts[1], token: parts[2], serverKeySHA256: parts[3])
    }
}
