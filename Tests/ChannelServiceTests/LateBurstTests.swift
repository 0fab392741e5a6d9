// A message that had to wait for another one, as the jitter buffer plays it.
import MonotonicTime
import PushToTalkCore
import Testing

@testable import Audio
@testable import ChannelService

@Suite struct LateBurstTests {
    /// Fifteen seconds said while another message was heard, handed over so much later than they came.
    @Test(arguments: [1, 3, 5, 20]) func aMessageThatWaitedIsPlayedWholeAndSteadily(secondsLate: Int) {
        let count = 1_500
        let began = Instant(nanoseconds: 1_000_000_000_000)
        func packet(_ number: Int) -> ReceivedPacket {
            ReceivedPacket(
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
