// Reads the relay's answers to requests for packets and for bursts, from a stream of QUIC or in parts over TLS. Pure.
import RelayProtocol

/// One answer, as far as it has come.
struct AnswerReader {
    private var decoder = RepairStreamDecoder()
    /// It is complete, or its rest is not needed.
    private(set) var isOver = false

    /// Takes the next bytes of the answer.
    ///
    /// - Returns: What the rules are to know of it; nil: nothing.
    mutating func take(_ bytes: [UInt8], isEnd: Bool) -> RelayClientCore.Event? {
        guard !isOver else { return nil }
        var packets: [[UInt8]] = []
        do throws(RepairStreamDecoder.Failure) {
            try decoder.feed(bytes, isEnd: isEnd) { packets.append($0) }
        } catch {
            isOver = true
            return .violation(error.description)
        }
        isOver = isEnd
        guard let id = decoder.id, isEnd || !packets.isEmpty else { return nil }
        guard decoder.isBurst else { return .repaired(request: id, packets: packets, isEnd: isEnd) }
        return .burst(
            request: BurstRequestID(rawValue: id), packets: packets, isWhole: decoder.isWhole, isEnd: isEnd)
    }
}
