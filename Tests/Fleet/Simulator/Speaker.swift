// The speaker of one pttd: how long what it gets takes to play, and when it has been heard. The jitter buffer is left out: it has no say
// in who talks, and its own simulations.
import MonotonicTime
import Vocabulary

@testable import Audio

final class Speaker {
    private unowned let process: Process
    private let world: World
    private let clock: MachineClock
    /// Until when what each voice has got is heard.
    private var busy: [Int: Instant] = [:]
    private var ending: [Int: UInt64] = [:]
    private var ends: UInt64 = 0
    private(set) var tonesUntil = Instant.zero
    var played: (Int) -> Void = { _ in }
    var failed: (String) -> Void = { _ in }
    /// The last tone or voice has been heard.
    var rested: () -> Void = {}

    init(process: Process) {
        self.process = process
        world = process.world
        clock = process.device.clock
    }

    private var isBroken: Bool { world.now < process.device.speakerBrokenUntil }

    var packetsHeld: Int {
        busy.values.reduce(0) { $0 + max(0, Int(($1 - clock.now) / .milliseconds(40))) }
    }

    /// Whether nothing sounds.
    var isResting: Bool { busy.isEmpty && clock.now >= tonesUntil }

    func playTone() {
        guard !isBroken else { return failed("the speaker is gone") }
        tonesUntil = max(tonesUntil, clock.now) + .milliseconds(100)
        clock.at(tonesUntil) { [self] in if process.isAlive { rested() } }
    }

    func play(_ packet: ReceivedFrame, voice: Int) -> Bool {
        guard !isBroken else {
            failed("the speaker is gone")
            return false
        }
        process.ledger.heard(packet)
        busy[voice] = max(busy[voice] ?? clock.now, clock.now) + .milliseconds(40)
        return true
    }

    /// The burst ends; a voice that has got nothing has been heard already.
    func end(voice: Int) {
        guard let until = busy[voice] else { return played(voice) }
        ends += 1
        ending[voice] = ends
        let number = ends
        clock.at(max(until, clock.now) + .milliseconds(60)) { [self] in
            guard process.isAlive, ending[voice] == number else { return }
            ending[voice] = nil
            busy[voice] = nil
            played(voice)
            rested()
        }
    }

    func drop(voice: Int) {
        (busy[voice], ending[voice]) = (nil, nil)
        if busy.isEmpty { tonesUntil = clock.now }
        rested()
    }

    func dropAll() {
        (busy, ending) = ([:], [:])
        tonesUntil = clock.now
    }
}
