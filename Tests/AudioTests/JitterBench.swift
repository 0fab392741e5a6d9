// A player for the jitter buffer in virtual time, for its rules by example and its simulations.
import MonotonicTime
import Testing

@testable import Audio

/// A jitter buffer with a clock and a player that asks for more whenever it has run out.
struct JitterBench {
    var machine: JitterBufferStateMachine
    var now = Instant(nanoseconds: 1_000_000_000_000)
    /// What was played, in order: sequence numbers, and nil for anything invented.
    var played: [Int?] = []
    var ends: [PlaybackEnd] = []
    var firsts = 0
    var silence = 0
    var invented = 0
    /// Samples of packets in whose place invented sound was played.
    var skipped = 0
    var recovered: [Int] = []
    var accelerated = 0
    var expanded = 0
    /// When each of the packets was played, and how late its audio was then on the talker's clock, in nanoseconds.
    var transits: [Int64] = []
    /// How much faster than the clock the player's samples go, in parts per million.
    var speakerPartsPerMillion = 0.0
    /// How much faster than the talker's clock the player takes samples, in parts per million: what a corrector does.
    var correction = 0.0
    /// Samples that the player asks for at once.
    var block = playbackBlock
    private var rest = 0
    private var owed = 0.0

    init(_ settings: JitterBufferSettings = .init()) {
        machine = JitterBufferStateMachine(settings)
    }

    @discardableResult
    mutating func insert(
        _ sequence: Int, time: Int? = nil, base: UInt32 = 0, marker: Bool = false, samples: Int = 960,
        payload: [UInt8]? = nil, at: Instant? = nil, isRepaired: Bool = false
    ) -> JitterBufferStateMachine.Insertion {
        let bytes = payload ?? [UInt8(truncatingIfNeeded: sequence), UInt8(truncatingIfNeeded: sequence >> 8)]
        return bytes.withUnsafeBytes {
            machine.insert(
                sequence: UInt16(truncatingIfNeeded: sequence),
                timestamp: base &+ UInt32(truncatingIfNeeded: time ?? sequence * 960), marker: marker, samples: samples,
                payload: $0, receivedAt: at ?? now, isRepaired: isRepaired)
        }
    }

    /// Plays for `milliseconds`, a block at a time as the playback thread does.
    mutating func play(_ milliseconds: Int) { play(blocks: milliseconds * 48 / block) }

    /// Plays so many blocks.
    mutating func play(blocks: Int) {
        for _ in 0..<blocks {
            var wanted = block
            if let late = machine.latePacket(unplayed: rest, at: now) {
                let packet = machine.slots[late.slot]
                transits.append(
                    now.nanoseconds - JitterBufferStateMachine.nanoseconds(packet.timestamp + Int64(late.skipped)))
                played.append(machine.withPayload(late.slot) { Int($0[0]) | Int($0[1]) << 8 })
                invented -= rest
                skipped += late.skipped
                rest = packet.samples - late.skipped
                machine.release(late.slot, decoded: true)
            }
            while wanted > 0 {
                if rest > 0 {
                    let part = min(rest, wanted)
                    rest -= part
                    wanted -= part
                    continue
                }
                let time = now + CaptureStateMachine.duration(Int64(block - wanted))
                switch machine.next(at: time) {
                case .idle:
                    silence += wanted
                    wanted = 0
                case .wait(let samples):
                    let part = min(samples, wanted)
                    #expect(samples > 0)
                    silence += part
                    wanted -= part
                case .decode(let slot, let isFirst, let pace):
                    let packet = machine.slots[slot]
                    transits.append(
                        time.nanoseconds - JitterBufferStateMachine.nanoseconds(packet.timestamp))
                    let sequence = machine.withPayload(slot) { Int($0[0]) | Int($0[1]) << 8 }
                    played.append(sequence)
                    if isFirst { firsts += 1 }
                    rest = packet.samples
                    // Never more than a fifth, as the real thing.
                    switch pace {
                    case .steady: break
                    case .shorten(let most):
                        let part = min(most, packet.samples / 5)
                        rest -= part
                        accelerated += part
                        machine.rescaled(by: part)
                    case .lengthen(let most):
                        let part = min(most, packet.samples / 5)
                        rest += part
                        expanded += part
                        machine.rescaled(by: -part)
                    }
                    owed += Double(packet.samples) * correction / 1e6
                    let whole = Int(owed)
                    rest -= whole
                    owed -= Double(whole)
                    machine.release(slot, decoded: true)
                case .conceal(let samples):
                    #expect(samples > 0 && samples % 120 == 0)
                    played.append(nil)
                    invented += samples
                    rest = samples
                case .recover(let slot, let samples):
                    #expect(samples > 0 && samples % 120 == 0 && samples <= OpusDecoder.samplesMax)
                    recovered.append(machine.withPayload(slot) { Int($0[0]) | Int($0[1]) << 8 })
                    played.append(nil)
                    rest = samples
                case .ended(let reason): ends.append(reason)
                }
            }
            now = now + .nanoseconds(Int64(Double(block) * 1e9 / 48_000 / (1 + speakerPartsPerMillion / 1e6)))
        }
    }

    var sequences: [Int] { played.compactMap { $0 } }
}
