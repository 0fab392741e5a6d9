// A microphone that falls silent is noticed in time, and a quiet room is no silence.
import Glibc
import MonotonicTime
import Testing

@testable import Audio

@Suite struct MicrophoneWatchTests {
    private let start = Instant.zero + .seconds(10)

    /// Gives sound of 10 ms each time, and notes when something was told.
    private struct Run {
        var watch = MicrophoneWatch()
        var now: Instant
        var told: [(outcome: MicrophoneWatch.Outcome, after: Duration)] = []
        private let began: Instant
        private var noise = SystemRandomNumberGenerator()

        init(at start: Instant) {
            now = start
            began = start
            watch.begin(at: start)
        }

        mutating func give(milliseconds: Int, _ sample: (Int) -> Float) {
            for window in 0..<milliseconds / 10 {
                let samples = (0..<480).map { sample(window * 480 + $0) }
                now = now + .milliseconds(10)
                note(watch.take(samples, count: samples.count, at: now))
            }
        }

        /// Noise of this root mean square, as a card of 16 bits gives it.
        mutating func noise(milliseconds: Int, rms: Float) {
            var generator = noise
            give(milliseconds: milliseconds) { _ in
                (Float.random(in: -1.73...1.73, using: &generator) * rms * 32_768).rounded() / 32_768
            }
        }

        mutating func nothing(milliseconds: Int) {
            for _ in 0..<milliseconds / 50 {
                now = now + .milliseconds(50)
                note(watch.takeNothing(at: now))
            }
        }

        private mutating func note(_ outcome: MicrophoneWatch.Outcome) {
            if outcome != .nothing { told.append((outcome, now - began)) }
        }
    }

    @Test(arguments: [0, 0.25, -1, 0.003] as [Float])
    func `one value for a quarter of a second is told of and for two seconds it ends the burst`(value: Float) {
        var run = Run(at: start)
        run.noise(milliseconds: 500, rms: 0.1)
        run.give(milliseconds: 3_000) { _ in value }
        #expect(run.told.map(\.outcome) == [.fellSilent, .dead])
        #expect(run.told.map(\.after) == [.milliseconds(750), .milliseconds(2_500)])
    }

    @Test func `no samples at all are silence too`() {
        var run = Run(at: start)
        run.noise(milliseconds: 100, rms: 0.1)
        run.nothing(milliseconds: 300)
        #expect(run.told.map(\.outcome) == [.fellSilent])
        #expect(run.told[0].after <= .milliseconds(400))
        run.noise(milliseconds: 100, rms: 0.1)
        #expect(run.told.map(\.outcome) == [.fellSilent, .heardAgain])
    }

    /// A thread that was not run for a while has not been watching.
    @Test func `a halt of the machine is no silence`() {
        var run = Run(at: start)
        run.noise(milliseconds: 100, rms: 0.1)
        run.now = run.now + .seconds(30)
        run.noise(milliseconds: 100, rms: 0.1)
        run.now = run.now + .seconds(30)
        #expect(run.watch.takeNothing(at: run.now) == .nothing)
        run.noise(milliseconds: 100, rms: 0.1)
        #expect(run.told.isEmpty)
    }

    /// -90 dBFS is the last bit now and then; -50 is an office.
    @Test(arguments: [-90, -84, -70, -50] as [Float])
    func `a quiet room is no silence`(decibels: Float) {
        var run = Run(at: start)
        run.noise(milliseconds: 60_000, rms: pow(10, decibels / 20))
        #expect(run.told.isEmpty)
    }

    @Test func `a card with an offset and a little noise is no silence`() {
        var run = Run(at: start)
        run.give(milliseconds: 10_000) { 0.2 + ($0 % 7 == 0 ? 2 / 32_768 : 0) }
        #expect(run.told.isEmpty)
    }

    @Test func `short holes are let pass`() {
        var run = Run(at: start)
        for _ in 0..<50 {
            run.noise(milliseconds: 300, rms: 0.1)
            run.give(milliseconds: 240) { _ in 0 }
        }
        #expect(run.told.isEmpty)
        // Cut off from loud sound: a link that breaks up, not a microphone that suppresses noise.
        #expect(!run.watch.isGated)
        run.noise(milliseconds: 300, rms: 0.1)
        run.give(milliseconds: 250) { _ in 0 }
        #expect(run.told.map(\.outcome) == [.fellSilent])
    }

    @Test func `a microphone that cuts off noise between words is given more time`() {
        var run = Run(at: start)
        for _ in 0..<3 {
            run.noise(milliseconds: 300, rms: 0.1)
            run.noise(milliseconds: 50, rms: 0.001)
            run.give(milliseconds: 150) { _ in 0 }
        }
        run.noise(milliseconds: 300, rms: 0.1)
        #expect(run.watch.isGated)
        run.watch.begin(at: run.now)
        run.give(milliseconds: 1_500) { _ in 0 }
        run.noise(milliseconds: 300, rms: 0.1)
        #expect(run.told.isEmpty)
        // But not for ever.
        run.give(milliseconds: 2_000) { _ in 0 }
        #expect(run.told.map(\.outcome) == [.dead])
    }

    @Test func `pieces of any length add up`() {
        var watch = MicrophoneWatch()
        watch.begin(at: start)
        let zeros = [Float](repeating: 0, count: 120)
        var outcomes: [MicrophoneWatch.Outcome] = []
        for piece in 0..<100 {
            outcomes.append(watch.take(zeros, count: 120, at: start + .microseconds(piece * 2_500)))
        }
        #expect(outcomes.count { $0 == .fellSilent } == 1)
        #expect(outcomes[99] == .fellSilent)
    }

    // MARK: With an engine

    /// ALSA's null PCM gives zeros at its pace, as a headset does whose link is down.
    @Test func `a microphone of zeros is told of within 300 ms and ends the burst`() throws {
        let engine = try CaptureEngine(device: .alsa("null"), logger: quiet)
        let owner = Owner(microphone: engine)
        let pressed = Instant.now
        engine.start()
        func hasFallenSilent() -> Bool {
            owner.outputs.contains { if case .fellSilent = $0 { true } else { false } }
        }
        #expect(owner.run(for: .seconds(5)) { hasFallenSilent() })
        let noticed = Instant.now - pressed
        #expect(owner.run(for: .seconds(10)) { !owner.ends.isEmpty })
        let ended = Instant.now - pressed
        #expect(owner.ends.map(\.reason) == [.deviceFailed] && !engine.isCapturing)
        let errors = owner.outputs.compactMap { if case .failed(let error) = $0 { error } else { nil } }
        #expect(errors == [.deviceSilent("alsa:null")])
        // The null PCM is allowed 50 ms ahead of the clock.
        #expect(noticed >= .milliseconds(200) && ended >= .milliseconds(1_900))
        print("zeros: noticed after \(noticed.milliseconds) ms, ended after \(ended.milliseconds) ms")

        // It is tried again at the next press, and can be left alone.
        engine.start()
        engine.stop()
        #expect(owner.run(for: .seconds(5)) { owner.ends.count == 2 })
        #expect(owner.ends[1].reason == .stopped)
        var configuration = CaptureConfiguration()
        configuration.isWatched = false
        let calm = try CaptureEngine(device: .alsa("null"), configuration: configuration, logger: quiet)
        let other = Owner(microphone: calm)
        calm.start()
        other.run(for: .milliseconds(2_500))
        #expect(other.ends.isEmpty && other.outputs.allSatisfy { if case .fellSilent = $0 { false } else { true } })
        calm.abort()
        #expect(other.run(for: .seconds(5)) { !other.ends.isEmpty })
    }
}
