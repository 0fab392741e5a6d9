// Which played samples belong to captured ones: stamps that jitter, clocks that drift, pauses, what comes too late, and the path
// between the two threads.
import MonotonicTime
import TestSupport
import Testing

@testable import Audio

@Suite struct EchoAlignmentTests {
    private let start = Instant(nanoseconds: 5_000_000_000)

    /// The instant `samples` after the beginning, by a clock that is fast by so many parts per million.
    private func instant(_ samples: Int64, fast partsPerMillion: Double = 0) -> Instant {
        start + .nanoseconds(Int64(Double(samples) * 1e9 / 48_000 / (1 + partsPerMillion * 1e-6)))
    }

    // MARK: Stamps

    @Test func `what is heard then is found and without playing there is nothing`() {
        var alignment = EchoAlignment()
        alignment.restartCapture()
        alignment.stampCapture(0, at: instant(4_800))
        let before = alignment.place(of: 0, 240)
        #expect(before == nil)
        let place = alignment.play(120, heardAt: start, isContinued: false)
        #expect(place == 0)
        // The capture began 100 ms after the playing.
        let first = alignment.place(of: 0, 240)
        #expect(first == .init(start: 4_800 + EchoAlignment.leadMax, isNew: true))
        let second = alignment.place(of: 240, 240)
        #expect(second == .init(start: 5_040 + EchoAlignment.leadMax, isNew: false))
    }

    @Test(arguments: 0..<10) func `stamps that are late by chance move nothing`(seed: Int) {
        var generator = SeededGenerator(seed: UInt64(seed))
        var alignment = EchoAlignment()
        alignment.restartCapture()
        var news = 0
        for block in 0..<8_000 {
            let sample = Int64(block * 120)
            // Two of three come up to 20 ms late.
            func late() -> Duration {
                block == 0 || generator.chance(33)
                    ? .zero : .microseconds(Int64.random(in: 0...20_000, using: &generator))
            }
            _ = alignment.play(120, heardAt: instant(sample + 480) + late(), isContinued: block > 0)
            alignment.stampCapture(sample, at: instant(sample) + late())
            guard block % 2 == 1 else { continue }
            guard let place = alignment.place(of: sample - 120, 240) else { continue }
            news += place.isNew ? 1 : 0
            // What is played is heard 10 ms later, so what is heard now was played as the one 480 samples before.
            #expect(abs(place.start - (sample - 120 - 480 + alignment.lead)) <= EchoAlignment.tolerance, "seed \(seed)")
        }
        #expect(news == 1, "seed \(seed)")
    }

    @Test(arguments: [-100.0, -20, 20, 100])
    func `a drift is followed in steps and never further off than the tolerance`(
        partsPerMillion: Double
    ) {
        var alignment = EchoAlignment()
        alignment.restartCapture()
        var news = 0
        var worst: Int64 = 0
        let seconds: Int64 = 120
        for block in 0..<seconds * 400 {
            let sample = block * 120
            _ = alignment.play(120, heardAt: instant(sample + 4_800), isContinued: block > 0)
            alignment.stampCapture(sample, at: instant(sample, fast: partsPerMillion))
            guard let place = alignment.place(of: sample, 120) else { continue }
            news += place.isNew ? 1 : 0
            let right = (instant(sample, fast: partsPerMillion) - start).nanoseconds * 48 / 1_000_000 - 4_800
            worst = max(worst, abs(place.start - alignment.lead - right))
        }
        let moved = abs(partsPerMillion) * 1e-6 * Double(seconds) * 48_000
        print("drift of \(partsPerMillion) ppm: \(news - 1) moves, \(worst) samples off at most")
        // A window of 100 ms may pass until it is seen.
        #expect(worst <= EchoAlignment.tolerance + 2)
        #expect(news - 1 == Int(moved / Double(EchoAlignment.tolerance)) || news - 1 == Int(moved / 145))
    }

    // MARK: Pauses, and what comes too late

    @Test func `pauses are counted and what was dropped unheard is overwritten`() {
        var alignment = EchoAlignment()
        _ = alignment.play(120, heardAt: start, isContinued: false)
        // The speaker stood still for 200 ms.
        let later = alignment.play(120, heardAt: instant(120 + 9_600), isContinued: false)
        #expect(later == 120 + 9_600)
        // 60 samples of that were dropped: what comes now takes their place.
        let instead = alignment.play(120, heardAt: instant(120 + 9_600 + 60), isContinued: false)
        #expect(instead == 120 + 9_600 + 60)
        // A day later all of it is over, and time is right.
        let day = instant(86_400 * 48_000 * 3)
        let next = alignment.play(120, heardAt: day, isContinued: false)
        #expect(next == instead + 120 + EchoAlignment.pauseMax)
        alignment.restartCapture()
        alignment.stampCapture(0, at: day)
        let place = alignment.place(of: 0, 240)
        #expect(place == .init(start: next + alignment.lead, isNew: true))
    }

    /// A speaker that writes `ahead` samples before they are heard, a microphone that asks for frames of 10 ms when they are full.
    private func run(
        _ alignment: inout EchoAlignment, ahead: Int64, frames: ClosedRange<Int64>
    ) -> (late: Int, news: Int) {
        var (late, news) = (0, 0)
        for frame in frames {
            // Written until the frame is full: what is heard up to `ahead` after it.
            while alignment.playedEnd < frame * 480 + 480 + ahead {
                let end = alignment.playedEnd
                _ = alignment.play(120, heardAt: instant(end), isContinued: end > 0)
            }
            for part in 0..<2 {
                let sample = frame * 480 + Int64(part * 240)
                alignment.stampCapture(sample, at: instant(sample))
                guard let place = alignment.place(of: sample, 240) else { continue }
                news += place.isNew ? 1 : 0
                late += place.start + 240 > alignment.playedEnd ? 1 : 0
            }
        }
        return (late, news)
    }

    @Test(arguments: [0, 60, 120, 240, 480, 4_800]) func `a lead that is too long is shortened once and for good`(
        ahead: Int64
    ) {
        var alignment = EchoAlignment()
        alignment.restartCapture()
        _ = run(&alignment, ahead: ahead, frames: 0...19)
        #expect(alignment.lead <= max(ahead + 119, 0) && alignment.lead >= min(EchoAlignment.leadMax, ahead - 120))
        let after = run(&alignment, ahead: ahead, frames: 20...200)
        #expect(after.late == 0 && after.news == 0, "\(ahead) samples ahead: \(after), lead \(alignment.lead)")
        if ahead >= EchoAlignment.leadMax { #expect(alignment.lead == EchoAlignment.leadMax) }
    }

    @Test func `one that is late once changes nothing`() {
        var alignment = EchoAlignment()
        alignment.restartCapture()
        _ = run(&alignment, ahead: 480, frames: 0...9)
        for turn in 0..<20 {
            // The speaker's thread is kept waiting for one frame in three.
            let frame = Int64(10 + turn * 3)
            let one = run(&alignment, ahead: 0, frames: frame...frame)
            let others = run(&alignment, ahead: 480, frames: frame + 1...frame + 2)
            #expect(one.news == 0 && others.news == 0)
        }
        #expect(alignment.lead == EchoAlignment.leadMax)
    }

    // MARK: The sound itself

    /// Plays `samples` from `place` on in blocks.
    private func play(_ samples: [Float], from place: Int64, into reference: EchoReference, isContinued: Bool = false) {
        samples.withUnsafeBufferPointer { samples in
            guard let base = samples.baseAddress else { return }
            for offset in stride(from: 0, to: samples.count - 119, by: 120) {
                reference.play(
                    base + offset, 120, heardAt: instant(place + Int64(offset)), isContinued: isContinued || offset > 0)
            }
        }
    }

    private func find(_ first: Int64, _ count: Int, in reference: EchoReference) -> ([Float], EchoReference.Found) {
        var block = [Float](repeating: 9, count: count)
        let found = block.withUnsafeMutableBufferPointer { reference.find(first, count, into: $0.baseAddress!) }
        return (block, found)
    }

    @Test func `sound is found long before it is heard and silence where nothing is known`() {
        let reference = EchoReference()
        let sound = chirps(seconds: 1)
        reference.restartCapture()
        reference.stampCapture(0, at: start)
        let (none, nothing) = find(0, 240, in: reference)
        #expect(none.allSatisfy { $0 == 0 } && nothing == .init(sounds: false, isMoved: false))
        // A queue of half a second; then a pause of 100 ms, and more.
        play(Array(sound[..<24_000]), from: 24_000, into: reference)
        play(Array(sound[24_000..<36_000]), from: 52_800, into: reference)
        let lead = Int(EchoAlignment.leadMax)
        let (early, before) = find(0, 240, in: reference)
        #expect(early.allSatisfy { $0 == 0 } && before == .init(sounds: false, isMoved: true))
        let (found, during) = find(Int64(30_000 - lead), 240, in: reference)
        #expect(found == Array(sound[6_000..<6_240]) && during == .init(sounds: true, isMoved: false))
        let (pause, meanwhile) = find(Int64(50_000 - lead), 240, in: reference)
        #expect(pause.allSatisfy { $0 == 0 } && !meanwhile.sounds)
        let (second, _) = find(Int64(52_800 + 1_200 - lead), 240, in: reference)
        #expect(second == Array(sound[25_200..<25_440]))
        let (after, _) = find(70_000, 240, in: reference)
        #expect(after.allSatisfy { $0 == 0 })
    }

    @Test func `what is over is forgotten`() {
        let reference = EchoReference()
        reference.restartCapture()
        reference.stampCapture(0, at: start)
        play(chirps(seconds: 3), from: 0, into: reference)
        let (old, _) = find(Int64(144_000 - EchoReference.capacity) - EchoAlignment.leadMax - 240, 240, in: reference)
        #expect(old.allSatisfy { $0 == 0 })
        let (kept, found) = find(Int64(144_000 - EchoReference.capacity) - EchoAlignment.leadMax, 240, in: reference)
        #expect(kept.contains { $0 != 0 } && found.sounds)
    }

    // MARK: Between the threads

    /// Takes all that waits: first samples, and whether each is continued.
    private func takeAll(_ played: PlayedSound) -> (samples: [Float], isContinued: [Bool]) {
        var (samples, continued): ([Float], [Bool]) = ([], [])
        while played.take({ block, sound in
            samples.append(sound[0])
            continued.append(block.isContinued)
        }) {}
        return (samples, continued)
    }

    private func add(_ numbers: ClosedRange<Int>, to played: PlayedSound) {
        for number in numbers {
            let block = [Float](repeating: Float(number), count: playbackBlock)
            block.withUnsafeBufferPointer {
                played.add($0.baseAddress!, heardAt: instant(Int64(number * playbackBlock)), isContinued: true)
            }
        }
    }

    @Test func `nothing is handed on while nobody listens and a full ring is told`() {
        let played = PlayedSound()
        add(0...9, to: played)
        #expect(takeAll(played).samples.isEmpty)
        played.listen()
        add(10...12, to: played)
        var taken = takeAll(played)
        #expect(taken.samples == [10, 11, 12] && taken.isContinued == [false, true, true])
        let last = 12 + PlayedSound.blocksMax
        add(13...last + 3, to: played)
        taken = takeAll(played)
        #expect(taken.samples.count == PlayedSound.blocksMax && taken.samples.last == Float(last))
        #expect(taken.isContinued.allSatisfy { $0 })
        add(last + 4...last + 5, to: played)
        taken = takeAll(played)
        #expect(taken.samples == [Float(last + 4), Float(last + 5)] && taken.isContinued == [false, true])
        // A press within the tail listens on.
        add(last + 6...last + 6, to: played)
        played.listen()
        #expect(takeAll(played).isContinued == [true])
        // A rest too short for the speaker to see it drops what waits, and that is told, too.
        add(last + 7...last + 7, to: played)
        played.rest()
        played.listen()
        add(last + 8...last + 9, to: played)
        taken = takeAll(played)
        #expect(taken.samples == [Float(last + 8), Float(last + 9)] && taken.isContinued == [false, true])
    }
}
