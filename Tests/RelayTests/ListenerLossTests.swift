// What a talker is told of its listeners' losses: by what is lost, not by how many report it.
import MonotonicTime
import RelayProtocol
import Testing

@testable import RelayServer

@Suite struct ListenerLossTests {
    private let interval = Duration.seconds(2)
    private let talker = SSRC(rawValue: 7)

    /// A burst of a minute at 100 packets a second, of which some came by repair, while `listeners` report every two seconds each, from
    /// the second second on.
    private func told(listeners: Int, repaired: (Int) -> Bool) -> [Int] {
        var loss = TalkerLoss()
        var told: [Int] = []
        for packet in 0..<6_000 {
            let now = Instant(nanoseconds: Int64(packet) * 10_000_000)
            loss.note(isRepaired: repaired(packet))
            for listener in 0..<listeners where packet > 100 && (packet + listener * 200 / listeners) % 200 == 199 {
                if let percent = loss.update(worst: 0, interval: interval, at: now) { told.append(percent) }
            }
        }
        return told
    }

    @Test(arguments: [1, 50, 400]) func `a talkers loss is told alike to few and many listeners`(listeners: Int) {
        #expect(told(listeners: listeners) { $0 == 3_000 }.allSatisfy { $0 <= 1 })
        let tenth = told(listeners: listeners) { $0 % 10 == 0 }
        #expect(!tenth.isEmpty && tenth.allSatisfy { (8...12).contains($0) }, "\(tenth)")
    }

    @Test func `the first value of a burst is told even if it is none`() {
        var loss = TalkerLoss()
        loss.note(isRepaired: false)
        let start = Instant(nanoseconds: 0)
        #expect(loss.update(worst: 0, interval: interval, at: start) == 0)
        #expect(!loss.isDue(interval, at: start + .seconds(1)))
        #expect(loss.update(worst: 0, interval: interval, at: start + .seconds(2)) == nil)
        #expect(loss.update(worst: 0.2, interval: interval, at: start + .seconds(4)) == 20)
    }

    @Test func `what was missed of an earlier burst does not count for the next`() {
        var reception = ListenerReception()
        reception.note(.init(ssrc: talker, received: 100, lost: 100, highestSequence: 199, jitter: 0))
        #expect(reception.loss(of: talker) == 0.5)
        reception.begin(talker)
        #expect(reception.loss(of: talker) == nil)
        reception.note(.init(ssrc: talker, received: 200, lost: 100, highestSequence: 299, jitter: 0))
        #expect(reception.loss(of: talker) == 0)
    }
}
