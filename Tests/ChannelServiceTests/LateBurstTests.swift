// A message that had to wait for another one, as the jitter buffer plays it.
import Glibc
import MonotonicTime
import PushToTalkCore
import Testing
import Vocabulary

@testable import Audio
@testable import ChannelService

@Suite struct LateBurstTests {
    /// Fifteen seconds said while another message was heard, handed over so much later than they came.
    @Test(arguments: [1, 3, 5, 20]) func `a message that waited is played whole and steadily`(secondsLate: Int) {
        let count = 1_500
        let began = Instant(nanoseconds: 1_000_000_000_000)
        func packet(_ number: Int) -> ReceivedFrame {
            ReceivedFrame(
                sequence: UInt16(truncatingIfNeeded: 65_000 + number), timestamp: UInt32(number * 480),
                marker: number == 0, payload: [UInt8(number & 255)], receivedAt: began + .milliseconds(10 * number))
        }
        var burst = ReceivedBurst(PTParticipant(name: "Ann", image: nil), at: began)
        var next = 0
        var now = began + .seconds(secondsLate)
        while next < count, packet(next).receivedAt <= now {
            burst.append(packet(next), at: packet(next).receivedAt)
            next += 1
        }
        burst.begin(at: now)
        var machine = JitterBufferStateMachine()
        var (played, ends, rest, handedOver) = (0, [PlaybackEnd](), 0, 0)
        while ends.isEmpty, now < began + .seconds(120) {
            while next < count, packet(next).receivedAt <= now {
                burst.append(packet(next), at: now)
                next += 1
            }
            for due in burst.takeDue(at: now) {
                handedOver += 1
                #expect(due.receivedAt <= now)
                _ = due.payload.withUnsafeBytes {
                    machine.insert(
                        sequence: due.sequence, timestamp: due.timestamp, marker: due.marker, samples: 480,
                        payload: $0, receivedAt: due.receivedAt)
                }
            }
            if handedOver == count { machine.end(lastSequence: packet(count - 1).sequence) }
            var wanted = playbackBlock
            while wanted > 0, ends.isEmpty {
                let part = min(rest, wanted)
                rest -= part
                wanted -= part
                guard wanted > 0 else { break }
                switch machine.next(at: now + CaptureStateMachine.duration(Int64(playbackBlock - wanted))) {
                case .idle: wanted = 0
                case .wait(let samples): wanted -= min(samples, wanted)
                case .decode(let slot, _, let pace):
                    rest = 480
                    if case .shorten(let most) = pace { rest -= min(most, 96) }
                    if case .lengthen(let most) = pace { rest += min(most, 96) }
                    machine.release(slot, decoded: true)
                    played += 1
                case .conceal(let samples), .recover(_, let samples): rest = samples
                case .ended(let end): ends.append(end)
                }
            }
            now = now + CaptureStateMachine.duration(Int64(playbackBlock))
        }
        #expect(ends == [.complete])
        #expect(played == count)
        #expect(machine.statistics.concealedSamples < 4_800, "\(machine.statistics.concealedSamples) samples invented")
    }
}

@Suite struct CatchingUpTests {
    private let ann = PTParticipant(name: "Ann", image: nil)
    private let began = Instant(nanoseconds: 1_000_000_000_000)

    private func packet(_ number: Int, at now: Instant, isLate: Bool = false) -> ReceivedFrame {
        ReceivedFrame(
            sequence: UInt16(truncatingIfNeeded: 65_000 + number), timestamp: UInt32(number * 480),
            marker: number == 0, payload: [UInt8(number & 255)], receivedAt: now, isRepaired: isLate, isLate: isLate)
    }

    /// This end comes so late to a burst of 40 s, whose beginning comes at once; what is said from then on as it is said.
    @Test(arguments: [1, 5, 30]) func `what was said before is handed over faster than it was said`(secondsLate: Int) {
        let (count, late) = (4_000, secondsLate * 100)
        var machine = ReceptionStateMachine()
        var now = began + .seconds(secondsLate)
        var played: [ReceivedFrame] = []
        var ends = 0
        func take(_ actions: [ReceptionAction]) {
            for action in actions {
                switch action {
                case .play(let packet, _): played.append(packet)
                case .endPlayback(let last, _):
                    #expect(last == packet(count - 1, at: now).sequence)
                    ends += 1
                case .setParticipant, .dropPlayback: break
                }
            }
        }
        take(machine.handle(.began(ann), at: now))
        for number in 0..<late { take(machine.handle(.packet(packet(number, at: now, isLate: true)), at: now)) }
        // As much as the speaker holds, at once.
        #expect(played.count >= min(late, 100) && played.count <= 182, "\(played.count)")
        var next = late
        var caughtUp: Instant?
        while ends == 0, now < began + .seconds(120) {
            now = now + .milliseconds(10)
            if let due = machine.nextDeadline, due <= now { take(machine.handle(.deadlineReached, at: now)) }
            if next < count {
                take(machine.handle(.packet(packet(next, at: now)), at: now))
                next += 1
                if next == count {
                    take(machine.handle(.ended(lastSequence: packet(count - 1, at: now).sequence), at: now))
                }
            }
            if caughtUp == nil, played.count == next { caughtUp = now }
        }
        #expect(played.map(\.sequence) == (0..<count).map { packet($0, at: now).sequence })
        #expect(machine.packetsDropped == 0)
        // To the speaker they are packets like any other, that come now.
        #expect(played.allSatisfy { !$0.isRepaired })
        // Five sixths of the time that it took to say them, less what the speaker holds.
        let behind = Duration.seconds(secondsLate) - ReceivedBurst.lead
        let expected = behind > .zero ? behind * 6 : .zero
        #expect((caughtUp ?? now) - (began + .seconds(secondsLate)) <= expected + .seconds(1))
        #expect(machine.nextDeadline != nil, "it is still played out")
        take(machine.handle(.played(), at: now))
        #expect(machine.state == .idle)
    }

    /// What so many packets of a beginning cost this thread, the least of some tries.
    private func handingIn(_ count: Int) -> Duration {
        let packets = (0..<count).map { packet($0, at: began, isLate: true) }
        return (0..<5).map { _ in
            var machine = ReceptionStateMachine()
            var memory = ReplayMemory()
            memory.began(ann)
            _ = machine.handle(.began(ann), at: began)
            let start = processorTime()
            for packet in packets {
                _ = machine.handle(.packet(packet), at: began)
                memory.append(packet)
            }
            return processorTime() - start
        }.min() ?? .zero
    }

    private func processorTime() -> Duration {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return .seconds(Int64(time.tv_sec)) + .nanoseconds(Int64(time.tv_nsec))
    }

    @Test func `a long beginning is not copied for each of its packets`() {
        let (few, many) = (handingIn(1_000), handingIn(5_000))
        print("handing in 1000 packets took \(few), 5000 took \(many)")
        // Five times as many; copied each time, they would cost twenty times as much and more.
        #expect(many < few * 11)
    }

    @Test func `whoever talks behind a late burst is heard after it`() {
        var machine = ReceptionStateMachine()
        var sequences: [UInt16] = []
        var now = began
        func take(_ actions: [ReceptionAction]) {
            for case .play(let packet, _) in actions { sequences.append(packet.sequence) }
        }
        take(machine.handle(.began(ann), at: now))
        for number in 0..<1_000 { take(machine.handle(.packet(packet(number, at: now, isLate: true)), at: now)) }
        take(machine.handle(.ended(lastSequence: nil), at: now))
        take(machine.handle(.began(PTParticipant(name: "Bob", image: nil)), at: now))
        for number in 2_000..<2_010 { take(machine.handle(.packet(packet(number, at: now)), at: now)) }
        take(machine.handle(.ended(lastSequence: nil), at: now))
        #expect(machine.burstsQueued == 1)
        while sequences.count < 1_010, let due = machine.nextDeadline, now < began + .seconds(60) {
            now = max(now, due)
            if sequences.count == 1_000 {
                take(machine.handle(.played(), at: now))
            } else {
                take(machine.handle(.deadlineReached, at: now))
            }
        }
        #expect(sequences == (Array(0..<1_000) + Array(2_000..<2_010)).map { packet($0, at: now).sequence })
    }
}
