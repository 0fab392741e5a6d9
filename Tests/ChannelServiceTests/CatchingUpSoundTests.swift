// Coming late to a long message, up to the samples that are heard: every packet is played, however well the speech can be shortened.

import Glibc
import MonotonicTime
import PushToTalkCore
import TestSupport
import Testing
import Vocabulary

@testable import Audio
@testable import ChannelService

@Suite struct CatchingUpSoundTests {
    enum Sound: CaseIterable {
        /// A voice with pauses, of which much can be taken out.
        case voice
        /// Wind, or an engine: nothing repeats itself, and nothing is a pause.
        case noise
    }

    /// A second of it, in packets of 10 ms.
    private func second(of sound: Sound) throws -> [[UInt8]] {
        var random = SeededGenerator(seed: 7)
        var settings = OpusSettings()
        settings.frameDuration = .milliseconds10
        let encoder = try OpusEncoder(settings)
        var packet = [UInt8](repeating: 0, count: opusPayloadMax)
        return (0..<100).map { number in
            let samples = (0..<480).map { index -> Float in
                let time = Double(number * 480 + index) / 48_000
                switch sound {
                case .noise: return Float.random(in: -0.3...0.3, using: &random)
                case .voice:
                    let isPause = time > 0.7
                    let tone = 0.3 * sin(2 * .pi * 140 * time) + 0.2 * sin(2 * .pi * 280 * time)
                    return isPause ? 0 : Float(tone * (0.6 + 0.4 * sin(2 * .pi * 3 * time)))
                }
            }
            let length = samples.withUnsafeBufferPointer { samples in
                packet.withUnsafeMutableBytes { encoder.encode(samples.baseAddress!, count: 480, into: $0) }
            }
            return Array(packet[..<Int(length)])
        }
    }

    @Test(arguments: Sound.allCases) func `all of a late minute is heard`(sound: Sound) throws {
        let (late, count) = (5_500, 6_000)
        let payloads = try second(of: sound)
        let began = Instant(nanoseconds: 1_000_000_000_000)
        let joined = began + .milliseconds(10 * late)
        func packet(_ number: Int, at now: Instant, isLate: Bool) -> ReceivedFrame {
            ReceivedFrame(
                sequence: UInt16(truncatingIfNeeded: 63_000 + number), timestamp: UInt32(number * 480),
                marker: number == 0, payload: payloads[number % 100], receivedAt: now, isRepaired: isLate,
                isLate: isLate)
        }
        let renderer = try SpeechRenderer(.init(), decoder: OpusDecoder())
        var machine = ReceptionStateMachine()
        var (ends, heldMost, now) = ([PlaybackEnd](), 0, joined)
        func take(_ actions: [ReceptionAction]) {
            for action in actions {
                switch action {
                case .play(let packet, _):
                    _ = packet.payload.withUnsafeBytes { renderer.insert(PacketHeader(packet), payload: $0) }
                case .endPlayback(let last, _): renderer.end(lastSequence: last)
                case .setParticipant, .dropPlayback: break
                }
            }
        }
        take(machine.handle(.began(PTParticipant(name: "Ann", image: nil)), at: now))
        for number in 0..<late { take(machine.handle(.packet(packet(number, at: now, isLate: true)), at: now)) }
        var next = late
        var block = [Float](repeating: 0, count: playbackBlock)
        while ends.isEmpty, now < joined + .seconds(90) {
            while next < count, began + .milliseconds(10 * next) <= now {
                take(machine.handle(.packet(packet(next, at: now, isLate: false)), at: now))
                next += 1
                if next == count { take(machine.handle(.ended(lastSequence: nil), at: now)) }
            }
            machine.speakerHolds = renderer.statistics.held
            if let due = machine.nextDeadline, due <= now { take(machine.handle(.deadlineReached, at: now)) }
            heldMost = max(heldMost, renderer.statistics.held)
            block.withUnsafeMutableBufferPointer { block in
                renderer.render(into: block.baseAddress!, count: block.count, at: now) { event in
                    if case .ended(let end, _, _) = event { ends.append(end) }
                }
            }
            now = now + CaptureStateMachine.duration(Int64(playbackBlock))
        }
        let counts = renderer.statistics
        let pace = Duration.milliseconds(10 * count).milliseconds / (now - joined).milliseconds
        print(
            "late by 55 s, \(sound): \(counts.played) of \(count) packets heard in \((now - joined).milliseconds) ms,"
                + " \(Double(Int(pace * 100)) / 100) times as fast as said; \(heldMost) held at most")
        #expect(ends == [.complete])
        #expect(counts.played == count && counts.lost == 0 && counts.dropped == 0 && machine.packetsDropped == 0)
        #expect(heldMost <= ReceptionStateMachine.speakerHoldsMax)
        #expect(pace <= 1.3)
        if sound == .voice { #expect(pace > 1.1) }
    }

    /// A speaker that has stopped is given what is due in the end: it says what it drops, and nothing waits for ever.
    @Test func `a speaker that plays nothing holds nobody back for ever`() {
        var burst = ReceivedBurst(PTParticipant(name: "Ann", image: nil), at: .zero)
        for number in 0..<100 as Range<UInt16> {
            burst.append(
                ReceivedFrame(
                    sequence: number, timestamp: UInt32(number) * 480, marker: number == 0, payload: [1],
                    receivedAt: .zero), at: .zero)
        }
        burst.begin(at: .zero)
        #expect(burst.takeDue(at: .zero, room: 30).count == 30)
        var (now, looks) = (Instant.zero, 0)
        while let due = burst.nextDue, burst.waitingCount == 70, looks < 10_000 {
            #expect(due > now || looks == 0)
            now = max(now, due)
            looks += 1
            _ = burst.takeDue(at: now, room: 0)
        }
        #expect(burst.waitingCount == 0 && now - .zero <= ReceivedBurst.holdBackMax + .seconds(1))
        #expect(looks >= 400, "it is looked at only now and then: \(looks)")
    }
}
