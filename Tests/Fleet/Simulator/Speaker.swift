// The speaker of one pttd: how long what it gets takes to play, and when it has been heard. The jitter buffer is left out: it has no say
// in who talks, and its own simulations.
import MonotonicTime
import Vocabulary

@testable import Audio

final class Speaker {
    private unowned let process: Process
    private var world: World { process.world }
    /// Until when what each voice has got is heard.
    private var busy: [Int: Instant] = [:]
    private var ending: [Int: UInt64] = [:]
    private var ends: UInt64 = 0
    private(set) var tonesUntil = Instant.zero
    var played: (Int) -> Void = { _ in }
    var failed: (String) -> Void = { _ in }
    /// The last tone or voice has been heard.
    var rested: () -> Void = {}

    init(process: Process) { self.process = process }

    private var isBroken: Bool { world.now < process.device.speakerBrokenUntil }

    var packetsHeld: Int {
        busy.values.reduce(0) { $0 + max(0, Int(($1 - world.now) / .milliseconds(40))) }
    }

    /// Whether nothing sounds.
    var isResting: Bool { busy.isEmpty && world.now >= tonesUntil }

    func playTone() {
        guard !isBroken else { return failed("the speaker is gone") }
        tonesUntil = max(tonesUntil, world.now) + .milliseconds(100)
        world.at(tonesUntil) { [self] in if process.isAlive { rested() } }
    }

    func play(_ packet: ReceivedFrame, voice: Int) -> Bool {
        guard !isBroken else {
            failed("the speaker is gone")
            return false
        }
        process.ledger.heard(packet)
        busy[voice] = max(busy[voice] ?? world.now, world.now) + .milliseconds(40)
        return true
    }

    /// The burst ends; a voice that has got nothing has been heard already.
    func end(voice: Int) {
        guard let until = busy[voice] else { return played(voice) }
        ends += 1
        ending[voice] = ends
        let number = ends
        world.at(max(until, world.now) + .milliseconds(60)) { [self] in
            guard process.isAlive, ending[voice] == number else { return }
            ending[voice] = nil
            busy[voice] = nil
            played(voice)
            rested()
        }
    }

    func drop(voice: Int) {
        (busy[voice], ending[voice]) = (nil, nil)
        if busy.isEmpty { tonesUntil = world.now }
        rested()
    }

    func dropAll() {
        (busy, ending) = ([:], [:])
        tonesUntil = world.now
    }
}
