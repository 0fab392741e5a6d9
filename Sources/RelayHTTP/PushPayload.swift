// The body of a request: a JSON object. Pure.
import FoundationEssentials
import RelayProtocol

/// What a push carries.
public enum PushPayload {
    /// The most bytes.
    public static let byteCountMaximum = RelayProtocolLimits.pushPayloadByteCountMaximum

    /// A value of any kind, which is not kept.
    private struct Anything: Decodable {
        init(from decoder: any Decoder) throws {}
    }

    /// Throws unless the bytes are a JSON object (RFC 8259) of 1 to 4096 bytes.
    public static func check(_ bytes: [UInt8]) throws(PushRejection) {
        guard !bytes.isEmpty else { throw .payloadEmpty }
        guard bytes.count <= byteCountMaximum else { throw .payloadTooLarge }
        // The decoder would also read UTF-16 and UTF-32, which are full of zeros; JSON on the wire is UTF-8 (RFC 8259, 8.1).
        // What is in the values it does not look at, but devices do.
        guard !bytes.contains(0), String(validating: bytes, as: UTF8.self) != nil else { throw .badPayload }
        guard (try? JSONDecoder().decode([String: Anything].self, from: Data(bytes))) != nil else {
            throw .badPayload
        }
    }
}
