// A try of a microphone and a speaker: on files, with devices that fail, and ended early.
import Glibc
import MonotonicTime
import Synchronization
import Testing

@testable import Audio

@Suite(.serialized) struct SoundCheckTests {
    private final class Events: Sendable {
        let all = Mutex<[SoundCheck.Event]>([])
        func add(_ event: SoundCheck.Event) { all.withLock { $0.append(event) } }

        /// Without the levels, in a word each.
        var words: [String] {
            all.withLock { $0 }.compactMap { event in
                switch event {
                case .level: nil
                case .heard(let levels, _): "heard \(levels.verdict)"
                case .plays(let isTone): isTone ? "plays a tone" : "plays"
                case .played: "played"
                case .failed(let use, _): "failed \(use)"
                case .ended: "ended"
                }
            }
        }
    }

    private func run(
        _ microphone: AudioDevice, _ speaker: AudioDevice, length: Duration = .milliseconds(500)
    ) throws -> Events {
        let events = Events()
        let check = SoundCheck(microphone: microphone, speaker: speaker, length: length) { events.add($0) }
        try check.start()
        // Longer than `waitForEnd` waits.
        for _ in 0..<200 where events.words.last != "ended" { usleep(50_000) }
        #expect(check.waitForEnd())
        return events
    }

    @Test func `what a file says is heard, and played into another`() throws {
        let (from, to) = (temporaryPath("said.wav"), temporaryPath("played.wav"))
        defer {
            unlink(from)
            unlink(to)
        }
        let voice = chirps(seconds: 0.5)
        writeFile(from, wav(voice, rate: 48_000, channels: 2))
        let events = try run(.wav(path: from), .wav(path: to))
        #expect(events.words == ["heard steadySound", "plays", "played", "ended"])
        let all = events.all.withLock { $0 }
        #expect(all.contains { if case .level = $0 { true } else { false } })
        for case .heard(let levels, let report) in all {
            #expect(report.form == SoundDeviceForm(rate: 48_000, channels: 2) && report.interruptions == 0)
            #expect(abs(levels.peak + 10.5) < 0.5, "\(levels.peak)")
        }
        for case .played(let report) in all { #expect(report.form == SoundDeviceForm(rate: 48_000, channels: 1)) }
        let played = try readWAV(to)
        let start = try #require(played.firstIndex { abs($0) > 0.001 })
        let first = voice.firstIndex { abs($0) > 0.001 } ?? 0
        let differences = (0..<20_000).map { abs(played[start + $0] - voice[first + $0]) }
        #expect(differences.max() ?? 1 < 0.001)
    }

    @Test func `a microphone that is not there, and one that is silent, leave a tone for the speaker`() throws {
        let to = temporaryPath("tone.wav")
        defer { unlink(to) }
        #expect(
            try run(.alsa("hw:99"), .wav(path: to)).words == ["failed microphone", "plays a tone", "played", "ended"])
        #expect(try readWAV(to).map { abs($0) }.max() ?? 0 > 0.1)
        let silent = temporaryPath("silent.wav")
        defer { unlink(silent) }
        writeFile(silent, wav([Float](repeating: 0, count: 100)))
        let words = try run(.wav(path: silent), .alsa("null")).words
        #expect(words == ["heard silence", "plays a tone", "played", "ended"], "\(words)")
    }

    @Test func `a speaker that is not there does not hide what was heard`() throws {
        let from = temporaryPath("said.wav")
        defer { unlink(from) }
        writeFile(from, wav(chirps(seconds: 0.5)))
        #expect(
            try run(.wav(path: from), .alsa("hw:99")).words == [
                "heard steadySound", "plays", "failed speaker", "ended",
            ]
        )
    }

    @Test func `stopped, it ends at once, and no file is made of what was not played`() throws {
        let to = temporaryPath("none.wav")
        let events = Events()
        let check = SoundCheck(microphone: .alsa("null"), speaker: .wav(path: to), length: .seconds(60)) {
            events.add($0)
        }
        try check.start()
        usleep(200_000)
        let stopped = Instant.now
        check.stop()
        #expect(check.waitForEnd())
        #expect(Instant.now - stopped < .seconds(2))
        #expect(events.words == ["ended"])
        #expect(access(to, F_OK) != 0)
    }

    @Test func `a device that another has is told as busy`() throws {
        let program = try #require(probe, "AudioProbe was not built: swift build --build-tests")
        // As in `BusyDeviceTests`: alsa-lib itself refuses the second one.
        let configuration = """
            pcm.mic_slave { type null }
            pcm.mic { type share slave { pcm mic_slave rate 44100 channels 2 format S16_LE } bindings.0 0 }
            """
        try withALSA({ _ in configuration }) { _, environment in
            let child = try #require(Child([program, "check", "mic", "null"], environment: environment))
            #expect(child.wait(for: "check-ended"), "\(child.text)")
            child.stop()
            let line = child.text.split(separator: "\n").first { $0.hasPrefix("check-failed microphone") }
            #expect(line?.contains("is busy") == true, "\(child.text)")
            #expect(child.text.contains("check-played"), "\(child.text)")
        }
    }

    @Test(.enabled(if: hasPulse, "pulseaudio is not installed"))
    func `a monitor of PulseAudio is heard, and played back into another sink`() throws {
        let program = try #require(probe, "AudioProbe was not built: swift build --build-tests")
        let pulse = try PrivatePulse()
        defer { pulse.stop() }
        let recorder = try pulse.record("ear")
        defer { recorder.stop() }
        let player = try pulse.run(["paplay", "-d", "mic", pulse.folder + "/voice.wav"])
        defer { player.stop() }
        let child = try pulse.run([program, "check", "ptt_mic", "ptt_ear", "free"])
        #expect(child.wait(for: "check-ended"), "\(child.text)")
        #expect(child.text.contains("check-heard steadySound rate=48000"), "\(child.text)")
        #expect(child.text.contains("check-played"), "\(child.text)")
        #expect(pulse.isLoud("ear"))
    }
}
