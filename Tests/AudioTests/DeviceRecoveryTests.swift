// How a lost device is tried again: the rules, and the two workers by them on devices that go and come.
import Glibc
import MonotonicTime
import Synchronization
import TestSupport
import Testing
import Vocabulary

@testable import Audio

@Suite(.serialized) struct DeviceRecoveryTests {
    private let start = Instant.zero + .seconds(1_000)
    private let gone = AudioFault(.transfer, ENODEV)
    private let missing = AudioFault(.open, ENOENT)
    private let busy = AudioFault(.open, EBUSY)

    /// A device that is in use and gives samples.
    private func flowing() -> DeviceRecovery {
        var recovery = DeviceRecovery()
        _ = recovery.handle(.began(isOpen: false), at: start)
        _ = recovery.handle(.flowed, at: start)
        return recovery
    }

    @Test func `a lost device is tried at once then ever more rarely and then given up with its last fault`() {
        var recovery = flowing()
        var action = recovery.handle(.failed(gone), at: start)
        #expect(action == .wait(isFirst: true) && recovery.nextDeadline == start)
        var attempts: [Instant] = []
        while let next = recovery.nextDeadline {
            attempts.append(next)
            action = recovery.handle(.due, at: next)
            #expect(action == .open && recovery.nextDeadline == nil && recovery.isLost)
            // It may also open and fail only then: no second limit for that.
            action = recovery.handle(.failed(attempts.count % 2 == 0 ? missing : gone), at: next)
            #expect(action != .wait(isFirst: true))
        }
        let pauses = zip(attempts, attempts.dropFirst()).map { $1 - $0 }
        #expect(Array(pauses.prefix(5)) == [20, 40, 80, 160, 200].map { Duration.milliseconds($0) })
        #expect(pauses.dropFirst(4).allSatisfy { $0 == DeviceRecovery.pauseMax })
        #expect(attempts.last! < start + DeviceRecovery.limit && attempts.last! > start + .seconds(1))
        #expect(action == .giveUp(attempts.count % 2 == 0 ? missing : gone))
    }

    @Test func `a device that is back has its whole time again and tells how long it was away`() {
        var recovery = flowing()
        _ = recovery.handle(.failed(gone), at: start)
        _ = recovery.handle(.due, at: start)
        let back = recovery.handle(.flowed, at: start + .milliseconds(70))
        #expect(back == .isBack(after: .milliseconds(70)) && !recovery.isLost)
        let again = recovery.handle(.flowed, at: start + .milliseconds(80))
        #expect(again == .nothing)
        let later = start + .seconds(60)
        let lost = recovery.handle(.failed(gone), at: later)
        #expect(lost == .wait(isFirst: true) && recovery.nextDeadline == later)
    }

    @Test func `only a busy device is waited for before its first sample`() {
        for fault in [missing, gone, AudioFault(.configure, EINVAL), AudioFault(.start, EIO)] {
            var recovery = DeviceRecovery()
            let action = recovery.handle(.failed(fault), at: start)
            #expect(action == .giveUp(fault) && recovery.nextDeadline == nil)
        }
        var recovery = DeviceRecovery()
        let action = recovery.handle(.failed(busy), at: start)
        #expect(action == .wait(isFirst: true))
        // What it moved in an earlier use says nothing about this one.
        var other = flowing()
        _ = other.handle(.ended, at: start)
        _ = other.handle(.began(isOpen: false), at: start)
        let second = other.handle(.failed(missing), at: start)
        #expect(second == .giveUp(missing))
    }

    @Test func `a device that was left open and has gone meanwhile is opened again at its next use`() {
        for fault in [gone, AudioFault(.start, ENODEV), AudioFault(.resume, EIO)] {
            var recovery = DeviceRecovery()
            _ = recovery.handle(.began(isOpen: true), at: start)
            let lost = recovery.handle(.failed(fault), at: start)
            #expect(lost == .wait(isFirst: true) && recovery.nextDeadline == start)
            let due = recovery.handle(.due, at: start)
            #expect(due == .open)
            // Its server may still be starting.
            let again = recovery.handle(.failed(missing), at: start)
            #expect(again == .wait(isFirst: false) && recovery.nextDeadline == start + DeviceRecovery.pauseMin)
        }
    }

    @Test(arguments: [
        AudioFault(.open, EACCES), AudioFault(.open, EPERM), AudioFault(.configure, ENOTSUP), AudioFault(.open, ENOMEM),
        AudioFault(.open, EMFILE), AudioFault(.stall, 0), AudioFault(.overload, 0), AudioFault(.writeFile, ENOSPC),
        AudioFault(.readFile, EIO), AudioFault(.fileFull, EFBIG), AudioFault(.encode, -1),
    ]) func `what time does not heal is not tried`(fault: AudioFault) {
        var recovery = flowing()
        let action = recovery.handle(.failed(fault), at: start)
        #expect(action == .giveUp(fault))
    }

    @Test func `a device that goes away again and again is given up`() {
        var recovery = flowing()
        for time in 0..<DeviceRecovery.lossesMax {
            let now = start + .seconds(time)
            let action = recovery.handle(.failed(gone), at: now)
            #expect(action == .wait(isFirst: true))
            _ = recovery.handle(.due, at: now)
            _ = recovery.handle(.flowed, at: now)
        }
        let last = recovery.handle(.failed(gone), at: start + .seconds(100))
        #expect(last == .giveUp(gone))
        // Until it is used for something new.
        _ = recovery.handle(.began(isOpen: false), at: start)
        _ = recovery.handle(.flowed, at: start)
        let fresh = recovery.handle(.failed(gone), at: start)
        #expect(fresh == .wait(isFirst: true))
    }

    /// Whatever happens: no attempt before its time, none after the limit, never for ever, and only after a failure.
    @Test(arguments: 0..<40 as Range<UInt64>) func `it keeps its bounds whatever happens`(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        var recovery = DeviceRecovery()
        var now = start
        var lostSince: Instant?
        var losses = 0
        for _ in 0..<2_000 {
            now = now + .milliseconds(Int.random(in: 0...300, using: &generator))
            switch Int.random(in: 0..<12, using: &generator) {
            case 0:
                _ = recovery.handle(.began(isOpen: false), at: now)
                (lostSince, losses) = (nil, 0)
            case 1..<4:
                let action = recovery.handle(.flowed, at: now)
                if let since = lostSince {
                    #expect(action == .isBack(after: now - since), "seed \(seed)")
                } else {
                    #expect(action == .nothing, "seed \(seed)")
                }
                lostSince = nil
            case 4..<8:
                let fault = [gone, missing, busy, AudioFault(.stall, 0)].randomElement(using: &generator)!
                if lostSince == nil { losses += 1 }
                switch recovery.handle(.failed(fault), at: now) {
                case .wait(let isFirst):
                    #expect(isFirst == (lostSince == nil) && losses <= DeviceRecovery.lossesMax, "seed \(seed)")
                    lostSince = lostSince ?? now
                    let due = recovery.nextDeadline!
                    #expect(due >= now && due < lostSince! + DeviceRecovery.limit, "seed \(seed)")
                case .giveUp(let told):
                    #expect(told == fault && recovery.nextDeadline == nil, "seed \(seed)")
                    // As both workers do.
                    _ = recovery.handle(.ended, at: now)
                    (lostSince, losses) = (nil, 0)
                case let other: Issue.record("seed \(seed): \(other) of a failure")
                }
            default:
                let due = recovery.nextDeadline
                let action = recovery.handle(.due, at: now)
                #expect((action == .open) == (due.map { now >= $0 } ?? false), "seed \(seed)")
            }
            #expect(recovery.isLost == (lostSince != nil), "seed \(seed)")
        }
    }

    // MARK: The workers

    /// One burst of a microphone: what it put out, and its statistics. It is released 0.1 s after an output that `isReleased` knows.
    private func capture(
        _ source: FlickeringSource, isPrepared: Bool = false, isReleased: @escaping (CaptureOutput) -> Bool
    ) throws -> (outputs: [CaptureOutput], rings: CaptureRings) {
        let worker = try CaptureWorker(
            source: source, framer: SpeechFramer(OpusSettings()), waitsForLevel: false, isWatched: false)
        let thread = try RealTimeThread(name: "ptt-flicker") { worker.run() }
        if isPrepared { worker.rings.command(.prepare) }
        worker.rings.command(.start(burst: 1, at: .now, afterGoAhead: false))
        var outputs: [CaptureOutput] = []
        let limit = Instant.now + .seconds(10)
        var isEnding = false
        func isOver() -> Bool { outputs.contains { if case .ended = $0 { true } else { false } } }
        while !isOver(), .now < limit {
            while let output = worker.nextOutput(device: .alsa("flicker")) { outputs.append(output) }
            if !isEnding, outputs.contains(where: isReleased) {
                isEnding = true
                worker.rings.command(.stop(end: .now + .milliseconds(100)))
            }
            usleep(2_000)
        }
        worker.rings.shutDown()
        #expect(thread.end.wait())
        #expect(!outputs.contains { if case .failed = $0 { true } else { false } })
        return (outputs, worker.rings)
    }

    /// A microphone that goes away and comes back, in a burst of its own.
    @Test func `a microphone that comes back goes on in the same burst`() throws {
        let (outputs, rings) = try capture(FlickeringSource(samplesUntilLost: 14_400, lostOpens: 2)) {
            if case .resumed = $0 { true } else { false }
        }
        let frames = outputs.compactMap { if case .frame(let frame) = $0 { frame } else { nil } }
        #expect(frames.first?.isFirst == true && frames.last?.isLast == true)
        #expect(frames.allSatisfy { $0.burst == 1 })
        // In order, each at its time, with one gap where the device was away.
        let steps = zip(frames, frames.dropFirst()).map { $1.position - $0.position }
        #expect(steps.count { $0 > 480 } == 1 && steps.allSatisfy { $0 >= 480 && $0 % 480 == 0 })
        #expect(rings.statistics.returns == 1)
        #expect(rings.statistics.deviceStarts == rings.statistics.deviceStops)
        #expect(outputs.contains { if case .lost(.deviceVanished) = $0 { true } else { false } })
    }

    /// The sound server was restarted while nobody talked: the press that finds out is heard all the same.
    @Test func `a microphone that has gone while it was prepared is opened again by the press`() throws {
        let (outputs, _) = try capture(FlickeringSource(samplesUntilLost: 240, lostOpens: 1), isPrepared: true) {
            if case .began = $0 { true } else { false }
        }
        #expect(outputs.contains { if case .frame(let frame) = $0 { frame.isLast } else { false } })
        #expect(outputs.contains { if case .ended(_, .stopped) = $0 { true } else { false } })
    }

    /// Another program holds the speaker, and lets go: what waited is heard, and nobody is told of a failure.
    @Test func `a busy speaker is waited for and a vanished one comes back within a tone`() throws {
        let sink = FlickeringSink(busyOpens: 3, blocksUntilLost: 10, lostOpens: 2)
        let (events, worker) = try play(on: sink, until: { $0.contains("toneEnded") })
        #expect(
            events == [
                "lost", "prepared", "toneBegan", "resumed", "lost", "prepared", "resumed", "toneEnded",
            ])
        #expect(sink.opens == 3 + 1 + 2 + 1)
        #expect(worker.rings.statistics.dropped == 0)
    }

    /// A device that stays away takes the tone with it, once, and does not run afterwards.
    @Test func `a speaker that stays away fails once and stands still`() throws {
        let sink = FlickeringSink(busyOpens: 0, blocksUntilLost: 10, lostOpens: .max)
        let (events, worker) = try play(on: sink, until: { $0.contains("failed") })
        #expect(events == ["prepared", "toneBegan", "lost", "failed"])
        #expect(!worker.rings.isRunning && worker.rings.statistics.dropped == 1)
    }

    /// What came is dropped or known already, so that nothing is left to be heard when the end is named.
    @Test func `each end that is named is told once, though nothing of the burst is heard`() throws {
        let rings = try PlaybackRings()
        let speech = try (0..<2).map { _ in try SpeechRenderer(JitterBufferSettings(), decoder: OpusDecoder()) }
        let sound = PlaybackSound(rings, speech: speech, toneVolume: 0.25)
        let came = Instant.now
        func insert(_ sequence: UInt16) {
            let frame = ReceivedFrame(
                sequence: sequence, timestamp: UInt32(sequence) * 960, marker: sequence == 1,
                payload: [0x08, 0xFF, 0xFE], receivedAt: came)
            frame.payload.withUnsafeBytes { sound.insert(PacketHeader(frame), payload: $0, voice: 0) }
        }
        func told() -> [String] {
            var told: [String] = []
            while let slot = rings.next() {
                switch slot {
                case .ended(let voice, _, let reason, _, _): told.append("\(voice) \(reason)")
                case .toneDropped(let tone): told.append("\(tone)")
                case .promptEnded(let number): told.append("prompt \(number)")
                default: told.append("\(slot)")
                }
            }
            return told
        }
        sound.end(voice: 0, lastSequence: 2)
        #expect(told() == [], "nothing came")
        insert(1)
        sound.discard(.deviceFailed)
        #expect(told() == ["0 deviceFailed"])
        sound.isRefusing = true
        insert(2)
        // Somebody else finds meanwhile that the device fails still.
        sound.discard(.deviceFailed)
        #expect(told() == [] && sound.isIdle)
        sound.isRefusing = false
        sound.end(voice: 0, lastSequence: 2)
        #expect(told() == ["0 deviceFailed"])
        // One that was sent again, and that came for a burst which is over.
        insert(1)
        #expect(sound.isIdle)
        sound.end(voice: 0, lastSequence: 2)
        sound.end(voice: 0, lastSequence: 2)
        #expect(told() == ["0 silence"])
        sound.isRefusing = true
        sound.play(.denied)
        let prompt = PromptSound([Float](repeating: 0.1, count: 4_800))
        sound.play(prompt: prompt.samples, count: prompt.count, number: 7)
        #expect(told() == ["denied", "prompt 7"] && sound.isIdle)
        sound.isRefusing = false
        for _ in 0...TonePlayer.tonesMax { sound.play(.denied) }
        #expect(told() == ["denied"])
    }

    @Test func `a burst of which a missing speaker drops the rest ends with its end`() throws {
        let speaker = try PlaybackEngine(device: AudioDevice("no-such-device"), logger: quiet)
        let owner = Owner(speaker: speaker)
        func enqueue(_ sequences: Range<UInt16>) {
            for sequence in sequences {
                speaker.enqueue(
                    ReceivedFrame(
                        sequence: sequence, timestamp: UInt32(sequence) * 960, marker: sequence == 0,
                        payload: [0x08, 0xFF, 0xFE], receivedAt: .now))
            }
        }
        enqueue(0..<1)
        #expect(owner.run(for: .seconds(20)) { !owner.playbackEnds.isEmpty })
        enqueue(1..<40)
        speaker.end(lastSequence: 39)
        #expect(owner.run(for: .seconds(20)) { owner.playbackEnds.count > 1 })
        #expect(owner.playbackEnds.allSatisfy { $0.reason == .deviceFailed })
    }

    /// What a stopped device leaves behind goes when its time has come, by one wake-up, and the thread sleeps on.
    @Test func `a stream that rests is closed once and nothing wakes afterwards`() throws {
        let sink = FlickeringSink(busyOpens: 0, blocksUntilLost: .max, lostOpens: 0)
        let (_, worker) = try play(on: sink, until: { _ in sink.endedRests.load(ordering: .acquiring) > 0 })
        #expect(sink.endedRests.load(ordering: .acquiring) == 1 && sink.endedEarly == 0)
        #expect(!worker.rings.isRunning)
    }

    /// Plays a tone on `sink` until `isDone`; returns what was told, and the worker at its end.
    private func play(on sink: FlickeringSink, until isDone: ([String]) -> Bool) throws
        -> ([String], PlaybackWorker)
    {
        let worker = try PlaybackWorker(
            sink: sink, speech: [SpeechRenderer(JitterBufferSettings(), decoder: OpusDecoder())], configuration: .init()
        )
        let thread = try RealTimeThread(name: "ptt-flicker") { worker.run() }
        worker.rings.command(.play(.microphoneOn))
        var events: [String] = []
        func name(_ slot: PlaybackSlot) -> String { String("\(slot)".prefix { $0 != "(" }) }
        let limit = Instant.now + .seconds(10)
        while !isDone(events), .now < limit {
            while let slot = worker.rings.next() { events.append(name(slot)) }
            usleep(2_000)
        }
        worker.rings.shutDown()
        #expect(thread.end.wait())
        while let slot = worker.rings.next() { events.append(name(slot)) }
        return (events, worker)
    }
}

/// A microphone in real time that vanishes once, and cannot be opened for some attempts.
private final class FlickeringSource: CaptureSource, @unchecked Sendable {
    let readMax = 240
    let recoveries = 0
    private var untilLost: Int
    private var lostOpens: Int
    private var startedAt = Instant.zero
    private var given = 0

    init(samplesUntilLost: Int, lostOpens: Int) {
        untilLost = samplesUntilLost
        self.lostOpens = lostOpens
    }

    var nextSampleTime: Instant { startedAt + CaptureStateMachine.duration(Int64(given)) }

    func open() throws(AudioFault) {
        guard untilLost <= 0, lostOpens > 0 else { return }
        lostOpens -= 1
        throw AudioFault(.open, ENODEV)
    }

    func start() throws(AudioFault) {
        startedAt = .now
        given = 0
    }

    func read(into output: UnsafeMutablePointer<Float>) throws(AudioFault) -> Int {
        if untilLost > 0 {
            untilLost -= 240
            if untilLost <= 0 { throw AudioFault(.transfer, ENODEV) }
        }
        given += 240
        sleep(until: nextSampleTime)
        for index in 0..<240 { output[index] = index % 2 == 0 ? 0.1 : -0.1 }
        return 240
    }

    func stop() {}
    func close() {}
}

/// A speaker in real time that is busy at first, then vanishes once, and cannot be opened for some attempts.
private final class FlickeringSink: PlaybackSink, @unchecked Sendable {
    let underruns = 0
    let recordingOrigin: Instant? = nil
    let delay = Duration.milliseconds(5)
    private(set) var opens = 0
    private var busyOpens: Int
    private var untilLost: Int
    private var lostOpens: Int
    private var next = Instant.zero

    init(busyOpens: Int, blocksUntilLost: Int, lostOpens: Int) {
        self.busyOpens = busyOpens
        untilLost = blocksUntilLost
        self.lostOpens = lostOpens
    }

    func open() throws(AudioFault) {
        opens += 1
        if busyOpens > 0 {
            busyOpens -= 1
            throw AudioFault(.open, EBUSY)
        }
        guard untilLost < 0, lostOpens > 0 else { return }
        lostOpens -= 1
        throw AudioFault(.open, ENOENT)
    }

    func start() throws(AudioFault) { next = .now }

    func waitForRoom() throws(AudioFault) -> Bool {
        sleep(until: next)
        next = next + CaptureStateMachine.duration(Int64(playbackBlock))
        return true
    }

    func write(_ samples: UnsafePointer<Float>) throws(AudioFault) {
        untilLost -= 1
        if untilLost == 0 {
            untilLost = -1
            throw AudioFault(.transfer, ENODEV)
        }
    }

    private(set) var restsUntil: Instant?
    let endedRests = Atomic<Int>(0)
    private(set) var endedEarly = 0

    func stop() { restsUntil = .now + .milliseconds(30) }

    func endRest() {
        if let restsUntil, .now < restsUntil { endedEarly += 1 }
        restsUntil = nil
        endedRests.add(1, ordering: .releasing)
    }

    func close() {}
}
