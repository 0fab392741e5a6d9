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
        var (captures, playbacks): ([Double], [Double]) = ([], [])
        for burst in 0..<2 {
            let frame = number("after_start_ms", "first-frame", in: output, burst)
            let packet = number("after_packet_ms", "playback-began", in: output, burst)
            print("pulse: start to first frame \(frame ?? -1) ms, packet to speaker \(packet ?? -1) ms")
            captures.append(frame ?? 1_000)
            playbacks.append(packet ?? 1_000)
            // I1: nothing from before the press.
            #expect((number("after_ms", "capture-began", in: output, burst) ?? -100) > -15, "\(output)")
        }
        // A machine that is halted delays one of them.
        #expect(captures.contains { $0 < 300 } && playbacks.contains { $0 < 400 }, "\(output)")
        #expect(output.contains("reason=complete") && !output.contains("failed"), "\(output)")
        // The keeper's own stream is all that is left.
        #expect(streams.split(separator: "\n").count <= 2, "\(streams)")
        // A burst is what was spoken. A machine that is halted stretches parts of one, or interrupts one, not both.
        let starts = beginnings(of: heard)
        try #require(!starts.isEmpty, "\(output)")
        let found = starts.map { partsInPlace(of: heard[$0 + 4_800..<$0 + 28_800], in: pulse.voice) }
        print("pulse: of the bursts' parts are where they belong: \(found)")
        #expect(found.contains { $0 > 0.55 }, "\(found)\n\(output)")
        // That the share tells speech from other speech of the same kind.
        let chance = starts.map { partsInPlace(of: heard[$0 + 4_800..<$0 + 28_800], in: chirps(seconds: 1, seed: 2)) }
        #expect(chance.allSatisfy { $0 < 0.45 }, "\(chance)")
    }

    /// Where sound of at least 600 ms begins that is behind at least 200 ms of silence.
    private func beginnings(of heard: [Float]) -> [Int] {
        var bursts: [ClosedRange<Int>] = []
        for index in heard.indices where abs(heard[index]) > 0.05 {
            if let last = bursts.last, index - last.upperBound < 9_600 {
                bursts[bursts.count - 1] = last.lowerBound...index
            } else {
                bursts.append(index...index)
            }
        }
        return bursts.filter { $0.count >= 28_800 }.map(\.lowerBound)
    }

    /// The share of the parts of 20 ms of `heard` that are in `spoken` where they belong, within 100 ms.
    ///
    /// A part that was stretched is also alike to something else. So several parts are taken in turn as the one whose place is right, until
    /// one of them puts most of the others in their places.
    private func partsInPlace(of heard: ArraySlice<Float>, in spoken: [Float]) -> Double {
        let parts = stride(from: heard.startIndex, through: heard.endIndex - 960, by: 480).map { heard[$0..<$0 + 960] }
        var best = 0
        for anchor in stride(from: 0, to: parts.count, by: 8) where best * 10 < parts.count * 6 {
            let place = find(parts[anchor], in: spoken, 0..<spoken.count - 960).offset
            let found = parts.indices.filter { index in
                let expected = place + (index - anchor) * 480
                let range = (expected - 4_800..<expected + 4_800).clamped(to: 0..<spoken.count - 960)
                return find(parts[index], in: spoken, range).likeness > 0.6
            }
            best = max(best, found.count)
        }
        return Double(best) / Double(parts.count)
    }
}
