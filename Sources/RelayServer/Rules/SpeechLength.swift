// How long a burst is for who hears it, which is not how long its packets took to come. Pure.
import RelayProtocol

/// The length of a burst's speech, by the RTP time stamps of its packets.
struct SpeechLength: Sendable {
    /// Samples a second of the RTP clock (RFC 7587).
    private static let clockRate: Int64 = 48_000
    /// A packet of 20 ms, in samples: what a burst of one packet is taken for.
    private static let frameDefault: UInt32 = 960

    private var first: (number: Int64, timestamp: UInt32)?
    private var last: (number: Int64, timestamp: UInt32)?
    /// The shortest distance of two packets in a row.
    private var frame: UInt32?

    /// A packet came that is of that number in its burst.
    mutating func note(_ packet: [UInt8], _ number: Int64) {
        guard let timestamp = packet.withUnsafeBytes({ try? RTPHeader(parsing: $0).timestamp }) else { return }
        if let last, number == last.number + 1 {
            let step = timestamp &- last.timestamp
            if step > 0, step < frame ?? 2 * Self.frameDefault { frame = step }
        }
        if number < first?.number ?? .max { first = (number, timestamp) }
        if number > last?.number ?? .min { last = (number, timestamp) }
    }

    /// From the beginning of its first packet to the end of its last; zero without packets.
    var duration: Duration {
        guard let first, let last else { return .zero }
        let samples = Int64(last.timestamp &- first.timestamp) + Int64(frame ?? Self.frameDefault)
        return .nanoseconds(samples * 1_000_000_000 / Self.clockRate)
    }
}
