// The queue of a link over TLS.
import MonotonicTime
import TestSupport
import Testing

@testable import RelayProtocol

@Suite struct WebOutboxTests {
    private func outbox() -> WebOutbox { WebOutbox(.init(controlBytes: 100, answers: 2, answerBytes: 40_000)) }

    /// The macro cannot call what changes its value.
    private func isTaken(_ value: Bool) -> Bool { value }

    private func drain(_ outbox: inout WebOutbox, at now: Instant = .zero) -> [WebOutbox.Item] {
        var items: [WebOutbox.Item] = []
        while let item = outbox.next(at: now) { items.append(item) }
        return items
    }

    @Test func `control messages go before media and media before answers`() {
        var outbox = outbox()
        #expect(isTaken(outbox.add(answer: [9, 9])))
        outbox.add(media: [128, 1], at: .zero)
        outbox.add(media: [128, 2], at: .zero)
        #expect(isTaken(outbox.add(control: [1])))
        outbox.add(pong: 7)
        outbox.set(acknowledgement: 3)
        outbox.set(acknowledgement: 4)
        #expect(
            drain(&outbox) == [
                .sealed(.control([1])), .sealed(.pong(7)), .sealed(.acknowledgement(4)), .media([128, 1]),
                .media([128, 2]), .sealed(.answer(number: 1, isEnd: true, bytes: [9, 9])),
            ])
        #expect(outbox.isEmpty)
    }

    @Test func `media that have waited for half a second are dropped and counted`() {
        var outbox = outbox()
        outbox.add(media: [128, 1], at: .zero)
        outbox.add(media: [128, 2], at: .zero + .milliseconds(10))
        #expect(drain(&outbox, at: .zero + .milliseconds(500)) == [.media([128, 2])])
        #expect(outbox.mediaDropped == 1)
    }

    @Test func `too many bytes of media push the oldest ones out`() {
        var outbox = outbox()
        let size = 1_000
        for number in 0..<100 {
            outbox.add(media: [128, UInt8(number)] + [UInt8](repeating: 0, count: size - 2), at: .zero)
        }
        let items = drain(&outbox)
        #expect(items.count == WebLinkLimits.mediaQueueBytes / size)
        #expect(outbox.mediaDropped == 100 - items.count)
        guard case .media(let last)? = items.last else {
            Issue.record("the newest packet is missing")
            return
        }
        #expect(last[1] == 99)
    }

    @Test func `control messages beyond the bound are refused and one alone is not`() {
        var outbox = outbox()
        #expect(isTaken(outbox.add(control: [UInt8](repeating: 1, count: 150))))
        #expect(!isTaken(outbox.add(control: [1])))
        #expect(outbox.controlCapacity == 0)
        _ = drain(&outbox)
        #expect(outbox.controlCapacity == 100)
        #expect(isTaken(outbox.add(control: [1])))
        #expect(isTaken(outbox.add(control: [UInt8](repeating: 1, count: 99))))
        #expect(!isTaken(outbox.add(control: [1])))
    }

    @Test func `a long answer comes in parts, after what became urgent meanwhile`() {
        var outbox = outbox()
        let answer = (0..<40_000).map { UInt8(truncatingIfNeeded: $0) }
        #expect(isTaken(outbox.add(answer: answer)))
        #expect(!isTaken(outbox.add(answer: [1])))
        var bytes: [UInt8] = []
        var parts = 0
        while let item = outbox.next(at: .zero) {
            switch item {
            case .sealed(.answer(let number, let isEnd, let part)):
                #expect(number == 1)
                #expect(part.count <= WebLinkLimits.answerPartBytes)
                bytes += part
                parts += 1
                #expect(isEnd == (bytes.count == answer.count))
                if parts == 1 { outbox.add(media: [128], at: .zero) }
            case .media: #expect(parts == 1)
            default: Issue.record("\(item)")
            }
        }
        #expect(bytes == answer)
        #expect(parts == 3)
        // There is room again: two at a time, with their own numbers.
        #expect(isTaken(outbox.add(answer: [1])))
        #expect(isTaken(outbox.add(answer: [])))
        #expect(!isTaken(outbox.add(answer: [2])))
        #expect(
            drain(&outbox) == [
                .sealed(.answer(number: 2, isEnd: true, bytes: [1])),
                .sealed(.answer(number: 3, isEnd: true, bytes: [])),
            ])
    }

    @Test func `whatever is added comes out once and in order`() {
        var random = SeededGenerator(seed: 4)
        for _ in 0..<50 {
            var outbox = WebOutbox(.init(controlBytes: 10_000_000))
            var (sent, got) = ([UInt8](), [UInt8]())
            for number in 0..<1_000 {
                let byte = UInt8(truncatingIfNeeded: number)
                sent.append(byte)
                #expect(isTaken(outbox.add(control: [byte])))
                for _ in 0..<Int.random(in: 0...3, using: &random) {
                    if case .sealed(.control(let bytes))? = outbox.next(at: .zero) { got += bytes }
                }
            }
            for item in drain(&outbox) { if case .sealed(.control(let bytes)) = item { got += bytes } }
            #expect(got == sent)
        }
    }
}
