// The streams that the relay opens: answers to requests for packets and for bursts.
import QUIC
import RelayProtocol

/// One answer, as far as it has come.
private final class RepairAnswer {
    var decoder = RepairStreamDecoder()
    /// It is complete, or its rest is not needed.
    var isOver = false
}

extension RelayTransport {
    func beginAnswer(on stream: QUICStream) {
        stream.context = RepairAnswer()
        // Nothing is said on this side.
        stream.finish()
    }

    func readAnswer(on stream: QUICStream) {
        guard let answer = stream.context as? RepairAnswer, !answer.isOver else { return }
        let (bytes, isEnd) = stream.read()
        var packets: [[UInt8]] = []
        do throws(RepairStreamDecoder.Failure) {
            try answer.decoder.feed(bytes, isEnd: isEnd) { packets.append($0) }
        } catch {
            answer.isOver = true
            return tell(.violation(error.description))
        }
        answer.isOver = isEnd
        guard let id = answer.decoder.id, isEnd || !packets.isEmpty else { return }
        if answer.decoder.isBurst {
            return tell(
                .burst(
                    request: BurstRequestID(rawValue: id), packets: packets, isWhole: answer.decoder.isWhole,
                    isEnd: isEnd))
        }
        tell(.repaired(request: id, packets: packets, isEnd: isEnd))
    }

    /// The stream was reset, or has ended as it should: what is missing is asked for again when its time has come.
    func endAnswer(on stream: QUICStream) { readAnswer(on: stream) }
}
