// Tests that need a process of their own: allocations by thread, and a private PulseAudio through ALSA's plug-in.
import Glibc
import MonotonicTime
import Testing

@testable import Audio

@Suite(.serialized) struct ProbeTests {
    @Test func `the real time threads allocate nothing and lock nothing while they run`() throws {
        let program = try #require(probe, "AudioProbe was not built: swift build --build-tests")
        let (source, sink) = (temporaryPath("mic.wav"), temporaryPath("ear.wav"))
        writeFile(source, wav(chirps(seconds: 3, rate: 44_100), rate: 44_100))
        defer {
            unlink(source)
            unlink(sink)
        }
        for (microphone, speaker) in [("wav:\(source)", "wav:\(sink)"), ("null", "null")] {
            // alsa-lib's own mutex around each call of a PCM that is no card: here a PCM has one thread.
            let child = try #require(
                Child(
                    [program, "allocations", microphone, speaker, "200"],
                    environment: ["LIBASOUND_THREAD_SAFE": "0"]))
            let output = child.finish(within: .seconds(60))
            #expect((number("frames", "allocations", in: output) ?? 0) >= 200, "\(output)")
            #expect(number("capture", "allocations", in: output) == 0, "\(output)")
            #expect(number("playback", "allocations", in: output) == 0, "\(output)")
            #expect(number("capture_locks", "allocations", in: output) == 0, "\(output)")
            #expect(number("playback_locks", "allocations", in: output) == 0, "\(output)")
            // That the count counts: the threads' preparations and the owner's frames do allocate.
            #expect((number("capture_before", "allocations", in: output) ?? 0) > 0)
            #expect((number("main", "allocations", in: output) ?? 0) > 200)
        }
    }

    @Test(.enabled(if: hasPulse, "needs pulseaudio and libasound2-plugins"))
    func `through PulseAudio what is spoken is heard and no stream is left open`() throws {
        let pulse = try PrivatePulse()
        defer { pulse.stop() }
        let program = try #require(probe, "AudioProbe was not built: swift build --build-tests")
        // The microphone hears what is played to its sink. Both monitors are read in small pieces, which makes the null
        // sinks work in small pieces, as a card does.
        let keeper = try pulse.run(["parec", "-d", "mic.monitor", "--latency-msec=2", "/dev/null"])
        let recorder = try pulse.run([
            "parec", "-d", "ear.monitor", "--latency-msec=2", "--file-format=wav", "--rate=48000", "--channels=1",
            pulse.folder + "/ear.wav",
        ])
        let voice = try pulse.run(["paplay", "-d", "mic", pulse.folder + "/voice.wav"])
        usleep(2_500_000)
        let child = try #require(
            Child([program, "loop", "ptt_mic", "ptt_ear", "700", "2", "200"], environment: pulse.environment))
        let output = child.finish(within: .seconds(30))
        let streams = try pulse.run(["pactl", "list", "short", "source-outputs"]).finish(within: .seconds(5))
        for process in [voice, recorder, keeper] { process.stop() }
        let heard = try readWAV(pulse.folder + "/ear.wav")
        for burst in 0..<2 {
            let frame = number("after_start_ms", "first-frame", in: output, burst)
            let packet = number("after_packet_ms", "playback-began", in: output, burst)
            print("pulse: start to first frame \(frame ?? -1) ms, packet to speaker \(packet ?? -1) ms")
            #expect((frame ?? 1_000) < 200, "\(output)")
            #expect((packet ?? 1_000) < 300, "\(output)")
            // I1: nothing from before the press.
            #expect((number("after_ms", "capture-began", in: output, burst) ?? -100) > -15, "\(output)")
        }
        #expect(output.contains("reason=complete") && !output.contains("failed"), "\(output)")
        // The keeper's own stream is all that is left.
        #expect(streams.split(separator: "\n").count <= 2, "\(streams)")
        // The first burst is somewhere in what was spoken. A machine that was halted stretches a part of it, not most.
        let loud = heard.indices.filter { abs(heard[$0]) > 0.05 }
        let first = try #require(loud.first)
        #expect(Double(loud.count) > 0.3 * 48_000)
        let likenesses = stride(from: 9_600, through: 24_000, by: 4_800).map { place in
            let part = heard[first + place..<first + place + 1_440]
            return find(part, in: pulse.voice, 0..<pulse.voice.count - part.count).likeness
        }
        #expect(likenesses.filter { $0 > 0.6 }.count >= 2, "likenesses \(likenesses)")
    }
}
