// Cutting the control stream: any chunking gives the same messages.
import RelayProtocol
import TestSupport
import Testing

@Suite struct MessageDecoderTests {
    @Test func `messages come out whole and in order, however the stream is cut`() throws {
        var random = SeededGenerator()
        for _ in 0..<100 {
            let messages = (0..<20).map { _ in
                random.bytes(Int.random(in: 1...(random.oneIn(10) ? 16_384 : 100), using: &random))
            }
            let stream = messages.flatMap { message in
                (0..<4).map { UInt8(truncatingIfNeeded: message.count >> (24 - 8 * $0)) } + message
            }
            var decoder = MessageDecoder()
            var received: [[UInt8]] = []
            var rest = stream[...]
            while !rest.isEmpty {
                let count = min(rest.count, Int.random(in: 1...(random.oneIn() ? 3 : 5000), using: &random))
                try decoder.feed(rest.prefix(count)) { received.append($0) }
                rest = rest.dropFirst(count)
            }
            #expect(received == messages)
            #expect(!decoder.isInsideMessage)
        }
    }

    @Test func `a length that no message has ends the stream, after the messages before it`() {
        for (length, failure) in [
            ([0, 0, 0, 0], MessageDecoder.Failure.empty), ([0, 0, 0x40, 1], .tooLong(16_385)),
            ([255, 255, 255, 255], .tooLong(.max)),
        ] as [([UInt8], MessageDecoder.Failure)] {
            var decoder = MessageDecoder()
            var received: [[UInt8]] = []
            #expect(throws: failure) { try decoder.feed([0, 0, 0, 1, 7] + length + [1, 2]) { received.append($0) } }
            #expect(received == [[7]])
            #expect(throws: failure) { try decoder.feed([0, 0, 0, 1, 8]) { received.append($0) } }
            #expect(received == [[7]])
        }
    }

    @Test func `an unfinished message is told`() throws {
        var decoder = MessageDecoder()
        #expect(!decoder.isInsideMessage)
        for byte in [0, 0, 0, 2, 5] as [UInt8] {
            try decoder.feed([byte]) { _ in Issue.record("too early") }
            #expect(decoder.isInsideMessage)
        }
    }
}
