// A device that another holds: real alsa-lib, without a card.
import Testing

@testable import Audio

@Suite(.serialized) struct BusyDeviceTests {
    /// `share` gives each channel of its slave to one PCM only: who comes second is told EBUSY by alsa-lib itself, from the call
    /// that says it of a card that another program has. It stays so, for alsa-lib 1.2.8 corrupts its memory when the first of the
    /// two is closed then; that a device which becomes free is taken, `DeviceRecoveryTests` show.
    @Test func `a device that another has is waited for and then fails with words that say what to do`() throws {
        let program = try #require(probe, "AudioProbe was not built: swift build --build-tests")
        let share = { (name: String) in
            """
            pcm.\(name)_slave { type null }
            pcm.\(name) { type share slave { pcm \(name)_slave rate 44100 channels 2 format S16_LE } bindings.0 0 }

            """
        }
        try withALSA({ _ in share("mic") + share("ear") }) { _, environment in
            let child = try #require(Child([program, "busy", "mic", "ear"], environment: environment))
            try #require(child.wait(for: "ready"), "\(child.text)")
            child.say("t1")
            #expect(child.wait(for: "capture-ended burst=1 reason=deviceFailed"), "\(child.text)")
            #expect(child.wait(for: "speaker-failed"), "\(child.text)")
            child.stop()
            let lines = child.text.split(separator: "\n").filter { $0.contains("-lost") || $0.contains("-failed") }
            #expect(
                lines.map { $0.prefix { $0 != " " } }.sorted() == [
                    "microphone-failed", "microphone-lost", "speaker-failed", "speaker-lost",
                ])
            #expect(lines.allSatisfy { $0.contains("is busy") && $0.contains("end that program") }, "\(lines)")
        }
    }
}
