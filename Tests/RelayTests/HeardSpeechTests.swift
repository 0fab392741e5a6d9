// What was heard over a lost host is not heard again over the next one; and how a host is asked for a sign of life.
import MonotonicTime
import RelayProtocol
import Testing
import Vocabulary

@testable import RelayClient

@Suite struct HeardSpeechTests {
    private static let anna = RelayMember(id: "anna", name: "Anna")
    private let now = Instant(nanoseconds: 1_000_000_000)
    private var heard = HeardSpeech()

    private func burst(_ number: UInt64) -> BurstName { BurstName(ssrc: SSRC(rawValue: UInt32(number)), keyID: number) }

    private mutating func hear(
        _ timestamps: [UInt32], _ number: UInt64, of talker: RelayMember = anna, at time: Instant
    )
        -> [UInt32]
    {
        timestamps.filter { !heard.hasHeard($0, of: talker, in: burst(number), at: time) }
    }

    @Test mutating func `a burst that goes on over the next host is heard from where it was`() {
        // The clock goes over its end meanwhile.
        let clock: [UInt32] = [.max &- 1_919, 0, 1_920, 3_840]
        #expect(hear(Array(clock[0..<3]), 1, at: now) == Array(clock[0..<3]))
        #expect(hear(Array(clock[1...]), 2, at: now + .seconds(2)) == [3_840])
        #expect(hear([5_760], 2, at: now + .seconds(2)) == [5_760])
    }

    @Test mutating func `packets of one burst may overtake each other`() {
        #expect(hear([0, 3_840, 1_920], 1, at: now) == [0, 3_840, 1_920])
        #expect(hear([3_840, 5_760], 2, at: now) == [5_760], "the newest one counts")
    }

    @Test mutating func `another talker, another clock and a later time are none of it`() {
        #expect(hear([5_000_000], 1, at: now) == [5_000_000])
        #expect(hear([4_990_000], 2, of: RelayMember(id: "bert", name: "Anna"), at: now) == [4_990_000])
        #expect(hear([1_000_000], 3, at: now) == [1_000_000], "a client that was started anew")
        #expect(hear([1_000_000], 4, at: now + HeardSpeech.memory) == [1_000_000])
    }

    @Test mutating func `the beginning of a burst that was heard to its end elsewhere is not heard after it`() {
        // A minute of speech at most: 3,000 packets of 20 ms.
        let burst = (0..<3_000).map { UInt32($0) &* 960 &- 1_000_000 }
        #expect(hear(Array(burst[1_000...]), 1, at: now).count == 2_000)
        #expect(hear(Array(burst[..<1_200]), 2, at: now + .seconds(1)).isEmpty)
    }

    @Test mutating func `no more talkers are remembered than may be`() {
        for number in 0...HeardSpeech.talkersMaximum {
            let talker = RelayMember(id: "\(number)", name: "a name")
            #expect(hear([1], 1, of: talker, at: now) == [1])
        }
        #expect(hear([1], 2, of: RelayMember(id: "0", name: "a name"), at: now) == [1])
        #expect(hear([1], 2, of: RelayMember(id: "8", name: "a name"), at: now).isEmpty)
    }

    @Test func `a relay that is asked for a sign of life has four tenths of a second`() {
        let question = LivenessProbe(askedAt: now)
        let look = now + LivenessProbe.lookInterval
        #expect(question.verdict(heard: now - .seconds(5), at: look) == .look(at: look + LivenessProbe.lookInterval))
        #expect(question.verdict(heard: now + .milliseconds(30), at: look) == .isThere)
        let last = question.deadline - .milliseconds(10)
        #expect(question.verdict(heard: nil, at: last) == .look(at: question.deadline))
        #expect(question.verdict(heard: nil, at: now + LivenessProbe.timeout) == .isGone)
    }
}
