// The streams that the relay opens: answers to requests for packets and for bursts.
import QUIC

/// The reader of one stream.
private final class StreamAnswer {
    var reader = AnswerReader()
}

extension QUICTransport {
    func beginAnswer(on stream: QUICStream) {
        stream.context = StreamAnswer()
        // Nothing is said on this side.
        stream.finish()
    }

    func readAnswer(on stream: QUICStream) {
        guard let answer = stream.context as? StreamAnswer, !answer.reader.isOver else { return }
        let (bytes, isEnd) = stream.read()
        if let event = answer.reader.take(bytes, isEnd: isEnd) { tell(event) }
    }

    /// The stream was reset, or has ended as it should: what is missing is asked for again when its time has come.
    func endAnswer(on stream: QUICStream) { readAnswer(on: stream) }
}
