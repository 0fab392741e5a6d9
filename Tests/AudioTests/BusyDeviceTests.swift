// A device that another holds: real alsa-lib, without a card.
import Glibc
import MonotonicTime
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

    /// BlueALSA has a device from the agreement on parameters until the close, and a `file` PCM its file.
    @Test func `a stopped stream of BlueALSA does not keep the next one out`() throws {
        let program = try #require(probe, "AudioProbe was not built: swift build --build-tests")
        let pcm = { (name: String, folder: String) in
            """
            pcm.\(name) { type file slave.pcm null file \(folder)/\(name) infile /dev/urandom format raw }

            """
        }
        try withALSA({ pcm("bluealsa_mic", $0) + pcm("bluealsa_ear", $0) }) { folder, environment in
            let child = try #require(
                Child([program, "press", "bluealsa_mic", "bluealsa_ear"], environment: environment))
            func isHeld(_ name: String) -> Bool { child.hasOpen("\(folder)/\(name)") }
            try #require(child.wait(for: "ready"), "\(child.text)")
            child.say("1")
            #expect(child.wait(for: "capture-began"), "\(child.text)")
            #expect(isHeld("bluealsa_mic"))
            child.say("0")
            #expect(child.wait(for: "capture-ended burst=1 reason=stopped"), "\(child.text)")
            #expect(!isHeld("bluealsa_mic"))
            child.say("t")
            #expect(child.wait(for: "tone-ended"), "\(child.text)")
            // It stops soon after the tone, and not only when a stream has rested.
            let limit = Instant.now + RestingStream.speakerSpan / 2
            while isHeld("bluealsa_ear"), .now < limit { usleep(20_000) }
            #expect(!isHeld("bluealsa_ear"))
        }
    }
}

extension Child {
    /// Whether it has a file open.
    fileprivate func hasOpen(_ file: String) -> Bool {
        let folder = "/proc/\(identifier)/fd"
        guard let directory = opendir(folder) else { return false }
        defer { closedir(directory) }
        while let entry = readdir(directory) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            var path = [CChar](repeating: 0, count: 4_096)
            guard readlink("\(folder)/\(name)", &path, path.count - 1) > 0 else { continue }
            if path.withUnsafeBufferPointer({ String(cString: $0.baseAddress!) }) == file { return true }
        }
        return false
    }
}
