import Glibc
// Turns the microphone's samples into frames: it waits for the microphone, assigns samples to the current burst, and
// puts frames out.
import MonotonicTime

/// The bursts of a microphone, one at a time. Confined to the capture thread; allocates nothing after `init`.
final class CaptureBurst {
    /// What is to become of the burst, and of the device.
    enum Progress {
        case goesOn
        /// All of it has been put out.
        case isComplete
        /// The device gives nothing.
        case hasStalled
        /// It has given nothing but silence for too long.
        case isSilent
    }

    /// How long after the tail's end samples of before it may come.
    private static let tailGrace = Duration.milliseconds(500)

    private let rings: CaptureRings
    private let framer: SpeechFramer
    private let waitsForLevel: Bool
    private var machine = CaptureStateMachine()
    private var hearing: MicrophoneHearing
    /// Whether the microphone has been heard since it was set running.
    private var hasHeard = false
    private var stall = StallClock()
    /// Nil for a device that may be silent.
    private var watch: MicrophoneWatch?
    private var lost = LostSamples()

    /// `isWatched`: the device is a microphone that is never wholly silent.
    init(
        _ rings: CaptureRings, framer: SpeechFramer, waitsForLevel: Bool, settling: Duration? = nil, isWatched: Bool
    ) {
        hearing = MicrophoneHearing(settling: SettlingTimes(settling))
        watch = isWatched ? MicrophoneWatch() : nil
        self.rings = rings
        self.framer = framer
        self.waitsForLevel = waitsForLevel
    }

    /// Whether a burst is in progress, so that the device must run.
    var isRunning: Bool { machine.isRunning }
    /// Whether the burst's first sample is known.
    var hasBegun: Bool { machine.firstSampleAt != nil }

    // MARK: The device's life as the rules know it

    func wantsPreparing() -> Bool { machine.prepare() }
    func opened() { machine.opened() }
    func unprepare() -> Bool { machine.unprepare() }

    /// The device is set running.
    func deviceStarts(at now: Instant) {
        stall.moved(at: now)
        watch?.begin(at: now)
        lost.begin()
    }

    /// The device is lost; what comes back may have to be waited for again.
    func deviceLost() { hasHeard = false }

    // MARK: Beginning and ending

    /// A press. The rest of a burst in progress is put out with its end, if that does not require stopping the device.
    func start(_ burst: UInt32, afterGoAhead: Bool, at now: Instant) -> CaptureStateMachine.StartResult {
        if machine.isRunning { finish() } else { hasHeard = false }
        hearing.begin(waitsForLevel: waitsForLevel && !hasHeard, afterGoAhead: afterGoAhead, at: now)
        let result = machine.start(burst: burst, at: now, goesOn: hearing.isPassed)
        framer.begin()
        watch?.begin(at: now)
        lost.begin()
        if case .goOn(let finished) = result {
            rings.put(.ended(burst: finished, .restarted))
            if let first = machine.firstSampleAt { announce(first) }
        }
        return result
    }

    func goAhead(from instant: Instant) { hearing.goAhead(from: instant) }

    /// A release: the burst ends with what is at the microphone at `end`.
    func stop(end: Instant) -> Progress {
        // What was said before the go-ahead is nobody's.
        machine.stop(end: end) && !hearing.isPassed ? .isComplete : .goesOn
    }

    /// Puts out the collected samples as the burst's last frame.
    func finish() { framer.finish(in: machine) { put($0) } }

    /// The burst is over, and the device has been stopped: who hears it may rely on I1.
    func ended(_ reason: CaptureEnd, deviceOpen: Bool) {
        let burst = machine.burst
        machine.ended(deviceOpen: deviceOpen)
        precondition(!machine.isRunning)
        framer.end()
        rings.put(.ended(burst: burst, reason))
    }

    // MARK: Samples

    /// The device gave `count` samples, the first of which was at the microphone at `first`. `isBroken`: samples before
    /// them are missing. Other losses are detected by the clock and skipped.
    func take(_ samples: UnsafePointer<Float>, _ count: Int, first: Instant, isBroken: Bool, at now: Instant)
        -> Progress
    {
        stall.moved(at: now)
        var dropped = 0
        if !hearing.isPassed {
            guard let early = hear(samples, count, first: first, at: now) else { return .goesOn }
            dropped = early
            watch?.begin(at: now)
        }
        if tell(watch?.take(samples, count: count, at: now)) { return .isSilent }
        dropped = max(dropped, machine.early(count, from: first))
        guard dropped < count else { return .goesOn }
        let begin = first + CaptureStateMachine.duration(Int64(dropped))
        if let began = machine.firstSampleAt {
            if isBroken {
                bridgeGap(from: began, to: first)
                lost.begin()
            }
        } else {
            lost.begin()
            machine.began(at: begin)
            announce(begin)
        }
        let taken = machine.take(count - dropped)
        framer.append(samples + dropped, taken, at: begin, in: machine) { put($0) }
        skipLost(upTo: first + CaptureStateMachine.duration(Int64(count)), at: now)
        guard machine.isComplete else { return .goesOn }
        finish()
        return .isComplete
    }

    /// The device gave nothing for a while.
    func takeNothing(_ scratch: UnsafePointer<Float>, at now: Instant) -> Progress {
        if !hearing.isPassed {
            // A Bluetooth microphone may give nothing at all until its link runs.
            _ = hear(scratch, 0, first: now, at: now)
            if !hearing.isPassed { stall.moved(at: now) }
            return .goesOn
        }
        if stall.movedNothing(at: now) { return .hasStalled }
        if tell(watch?.takeNothing(at: now)) { return .hasStalled }
        return endOverdue(at: now, grace: Self.tailGrace)
    }

    /// Ends the burst when its tail is over by the clock, whatever the device gave.
    func endOverdue(at now: Instant, grace: Duration = .zero) -> Progress {
        guard machine.isOverdue(at: now, grace: grace) else { return .goesOn }
        finish()
        return .isComplete
    }

    /// The samples while the microphone does not hear yet: how many come before the burst; nil: all.
    private func hear(_ samples: UnsafePointer<Float>, _ count: Int, first: Instant, at now: Instant) -> Int? {
        switch hearing.take(samples, count: count, first: first, at: now) {
        case .wait: return nil
        case .tell(let really):
            hasHeard = true
            rings.put(
                .hears(
                    burst: machine.burst, after: now - machine.requestedAt, really: really,
                    settledAfter: hearing.settledAfter))
            return nil
        case .pass(let dropping): return dropping
        }
    }

    /// Leaves out the time of samples that were lost unsaid, in whole frames: nothing is to be heard in their place, for where they
    /// were has been said already.
    private func skipLost(upTo next: Instant, at now: Instant) {
        let missing = CaptureStateMachine.samples(lost.read(upTo: machine.position, next: next, at: now))
        let left = machine.endPosition.map { $0 - machine.position } ?? missing
        let frames = Int(min(missing, left, Int64(Int32.max))) / framer.frameSamples
        guard frames > 0 else { return }
        framer.skip(frames: machine.take(frames * framer.frameSamples) / framer.frameSamples)
        rings.overran(1)
    }

    /// Counts samples that were lost as silence.
    private func bridgeGap(from began: Instant, to next: Instant) {
        let lost = CaptureStateMachine.samples(next - began) - machine.position
        guard lost > 0 else { return }
        framer.appendGap(machine.take(Int(min(lost, Int64(Int32.max)))), in: machine) { put($0) }
    }

    // MARK: Out

    /// Tells what the watch has noticed. Returns whether the burst is to end.
    private func tell(_ outcome: MicrophoneWatch.Outcome?) -> Bool {
        switch outcome {
        case nil, .nothing: break
        case .fellSilent: rings.put(.fellSilent(burst: machine.burst))
        case .heardAgain: rings.put(.heardAgain(burst: machine.burst))
        case .dead: return true
        }
        return false
    }

    private func put(_ frame: SpeechFramer.Frame) {
        let slot = CaptureSlot.frame(
            capturedAt: (machine.firstSampleAt ?? .now) + CaptureStateMachine.duration(frame.position),
            position: UInt32(truncatingIfNeeded: frame.position), burst: machine.burst, isFirst: frame.isFirst,
            isLast: frame.isLast, level: frame.level)
        let payload = UnsafeRawBufferPointer(rebasing: framer.packet[..<max(0, Int(frame.length))])
        rings.put(slot, frame: payload, isLast: frame.isLast, took: frame.took)
    }

    private func announce(_ first: Instant) {
        rings.put(.began(burst: machine.burst, firstSampleAt: first, after: first - machine.requestedAt))
    }
}
