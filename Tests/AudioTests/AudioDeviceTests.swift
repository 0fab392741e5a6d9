// Device names, and errors that say what to do.
import CALSA
import Glibc
import Testing

@testable import Audio

@Suite struct AudioDeviceTests {
    @Test(arguments: [
        ("default", "alsa:default"), ("alsa:hw:1,0", "alsa:hw:1,0"),
        ("plughw:CARD=Device,DEV=0", "alsa:plughw:CARD=Device,DEV=0"),
        ("pulse", "alsa:pulse"), ("wav:/tmp/a b.wav", "wav:/tmp/a b.wav"), ("wav:relative.wav", "wav:relative.wav"),
    ]) func `a name is read and written back`(text: String, expected: String) throws {
        let device = try AudioDevice(text)
        #expect(device.description == expected)
        #expect(try AudioDevice(device.description) == device)
    }

    @Test(arguments: [
        "", "alsa:", "wav:", "/tmp/a.wav", " default", "default\n", "a\u{0}b", String(repeating: "x", count: 5_000),
    ])
    func `what is no device is refused with the reason`(text: String) {
        #expect {
            _ = try AudioDevice(text)
        } throws: { error in
            guard case .invalidDeviceName(_, let reason)? = error as? AudioError else { return false }
            return !reason.isEmpty && "\(error)".contains("wav:PATH")
        }
    }

    @Test func `an error says what to do`() {
        let card = AudioDevice.alsa("hw:7")
        #expect("\(AudioError(AudioFault(.open, EBUSY), device: card))".contains("another program"))
        #expect("\(AudioError(AudioFault(.open, EACCES), device: card))".contains("group audio"))
        #expect(AudioError(AudioFault(.transfer, ENODEV), device: card) == .deviceVanished("alsa:hw:7"))
        #expect("\(AudioError(AudioFault(.configure, EINVAL), device: card))".contains("plughw:"))
        #expect(AudioError(AudioFault(.stall, 0), device: card) == .deviceStalled("alsa:hw:7"))
        #expect(AudioError(AudioFault(.open, -ENOENT), device: card) == .noSuchDevice("hw:7"))
        // What ALSA says of a card number that is not there.
        let unknown = "\(AudioError(AudioFault(.open, EINVAL), device: card))"
        #expect(unknown.contains("no such device") && unknown.contains("pttctl audio list"), "\(unknown)")
        let file = AudioDevice.wav(path: "/x.wav")
        #expect("\(AudioError(AudioFault(.parseFile, WAVProblem.notRIFF.rawValue), device: file))".contains("RIFF"))
        #expect("\(AudioError(AudioFault(.open, ENOENT), device: file))".contains("No such file"))
    }

    @Test func `a device that is not there is found without using it`() throws {
        let missing = try AudioDevice("hw:99")
        for use in [AudioDevice.Use.microphone, .speaker] {
            #expect(missing.problem(asA: use) == .noSuchDevice("hw:99"))
        }
        #expect(try AudioDevice("null").problem(asA: .microphone) == nil)
        #expect(try AudioDevice("null").problem(asA: .speaker) == nil)
        let path = temporaryPath("none.wav")
        #expect(AudioDevice.wav(path: path).problem(asA: .microphone) != nil)
        // A recording is not begun by looking.
        #expect(AudioDevice.wav(path: path).problem(asA: .speaker) == nil)
        #expect(access(path, F_OK) != 0)
    }

    @Test func `tone samples are distinct quiet at both ends and bounded`() {
        let tones = ToneSound.allCases.map { $0.samples(volume: 0.25) }
        #expect(Set(tones).count == ToneSound.allCases.count)
        for samples in tones {
            #expect(samples.count <= 48_000 / 2 && samples.count >= 48_000 / 20)
            #expect(samples.allSatisfy { abs($0) <= 0.25 })
            #expect(abs(samples[0]) < 0.001 && abs(samples[samples.count - 1]) < 0.001)
            // No step between two samples is louder than the tones' own slope.
            #expect(zip(samples, samples.dropFirst()).allSatisfy { abs($0 - $1) < 0.06 })
        }
    }
}
