// What happens to devices in mid-burst, with a real PulseAudio: the default moves, a device or the server goes and comes back.
import Glibc
import MonotonicTime
import Testing

@testable import Audio

@Suite(.serialized, .enabled(if: hasPulse, "needs pulseaudio and libasound2-plugins"))
struct DeviceChangeTests {
    /// A probe with these devices, whose burst has begun to play.
    private func talk(_ pulse: PrivatePulse, _ microphone: String, _ speaker: String) throws -> Child {
        let program = try #require(probe, "AudioProbe was not built: swift build --build-tests")
        let child = try #require(Child([program, "press", microphone, speaker], environment: pulse.environment))
        try #require(child.wait(for: "ready"), "\(child.text)")
        child.say("1")
        try #require(child.wait(for: "playback-began"), "\(child.text)")
        return child
    }

    /// Releases, and waits until all is heard.
    private func release(_ child: Child) -> String {
        child.say("0")
        _ = child.wait(for: "playback-ended")
        child.say("q")
        return child.finish(within: .seconds(20))
    }

    /// Both defaults move to other devices, of other rates and channels; then the speaker's stream is moved by hand, as a desktop's
    /// settings do. Only into the other microphone somebody speaks.
    @Test func `the default devices move in mid burst`() throws {
        let pulse = try PrivatePulse()
        defer { pulse.stop() }
        // As on any desktop, a stream that is opened anew goes where the one before was moved to.
        try pulse.control("load-module", "module-stream-restore", "restore_volume=0", "restore_muted=0")
        for (name, rate) in [("mic2", 8_000), ("ear2", 44_100), ("ear3", 96_000)] {
            try pulse.control(
                "load-module", "module-null-sink", "sink_name=\(name)", "rate=\(rate)", "channels=2", "norewinds=1")
        }
        try pulse.control("set-default-sink", "ear")
        try pulse.control("set-default-source", "mic.monitor")
        var processes = [try pulse.record("ear2"), try pulse.record("ear3")]
        defer { for process in processes { process.stop() } }
        processes.append(try pulse.run(["paplay", "-d", "mic2", pulse.folder + "/voice.wav"]))
        let child = try talk(pulse, "ptt_default", "ptt_default")
        try pulse.control("set-default-source", "mic2.monitor")
        try pulse.control("set-default-sink", "ear2")
        #expect(pulse.isLoud("ear2"), "\(child.text)")
        processes.append(try pulse.run(["paplay", "-d", "mic2", pulse.folder + "/voice.wav"]))
        let seen = try pulse.moveStreams(from: "ear2", to: "ear3")
        #expect(pulse.isLoud("ear3"), "\(seen) \(child.text)")
        let output = release(child)
        #expect(output.contains("capture-ended burst=1 reason=stopped"), "\(output)")
        #expect(output.contains("reason=complete") && !output.contains("failed"), "\(output)")
    }

    /// The sound server is restarted while one speaks and is heard: both go on with the new one.
    @Test func `the sound server is restarted in mid burst`() throws {
        let pulse = try PrivatePulse()
        defer { pulse.stop() }
        let child = try talk(pulse, "ptt_mic", "ptt_ear")
        var processes: [Child] = []
        defer { for process in processes { process.stop() } }
        try pulse.replace { environment in
            processes.append(try pulse.record("ear", environment: environment))
            processes.append(
                try pulse.run(["paplay", "-d", "mic", pulse.folder + "/voice.wav"], environment: environment))
        }
        #expect(child.wait(for: "microphone-resumed"), "\(child.text)")
        #expect(pulse.isLoud("ear"), "\(child.text)")
        let output = release(child)
        #expect(output.contains("microphone-lost") && output.contains("returns: 1"), "\(output)")
        #expect(output.contains("capture-ended burst=1 reason=stopped"), "\(output)")
        #expect(output.contains("reason=complete") && !output.contains("failed"), "\(output)")
        #expect(!output.contains("underruns: 0,"), "\(output)")
    }

    @Test func `a speaker that goes and comes back plays the rest of the burst`() throws {
        let pulse = try PrivatePulse()
        defer { pulse.stop() }
        let child = try talk(pulse, "wav:\(pulse.folder)/voice.wav", "ptt_ear")
        // With its last sink the stream is gone, too.
        try pulse.control("unload-module", "module-null-sink")
        try pulse.control(
            "load-module", "module-null-sink", "sink_name=ear", "rate=48000", "channels=1", "norewinds=1")
        let recorder = try pulse.record("ear")
        defer { recorder.stop() }
        #expect(pulse.isLoud("ear"), "\(child.text)")
        let output = release(child)
        #expect(output.contains("reason=complete") && !output.contains("failed"), "\(output)")
        #expect(!output.contains("underruns: 0,"), "\(output)")
    }

    /// The program is halted for longer than the queue lasts. A new stream would cost more than the halt.
    @Test func `a stream that ran empty goes on`() throws {
        let pulse = try PrivatePulse()
        defer { pulse.stop() }
        let child = try talk(pulse, "wav:\(pulse.folder)/voice.wav", "ptt_ear")
        let before = try pulse.streams()
        for _ in 0..<3 {
            usleep(200_000)
            kill(child.identifier, SIGSTOP)
            usleep(150_000)
            kill(child.identifier, SIGCONT)
        }
        usleep(200_000)
        let after = try pulse.streams()
        let recorder = try pulse.record("ear")
        defer { recorder.stop() }
        #expect(pulse.isLoud("ear"), "\(child.text)")
        let output = release(child)
        #expect(!before.isEmpty && after == before, "\(before) became \(after)")
        #expect(output.contains("reason=complete") && !output.contains("failed"), "\(output)")
        #expect(!output.contains("underruns: 0,"), "\(output)")
    }

    @Test func `when the sound server dies the burst ends with its last frame`() throws {
        let pulse = try PrivatePulse()
        defer { pulse.stop() }
        let child = try talk(pulse, "ptt_mic", "ptt_ear")
        pulse.stop()
        #expect(child.wait(for: "capture-ended burst=1 reason=deviceFailed"), "\(child.text)")
        #expect(child.wait(for: "speaker-failed"), "\(child.text)")
        child.say("q")
        let output = child.finish(within: .seconds(15))
        #expect(output.contains("microphone-lost") && output.contains("microphone-failed"), "\(output)")
        #expect(output.contains("statistics"), "\(output)")
    }
}
