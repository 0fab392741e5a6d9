// PCMs of other rates and channel counts than ours, and one that another holds: real alsa-lib, without a card.
import Glibc
import MonotonicTime
import Testing

@testable import Audio

@Suite(.serialized) struct DeviceKindTests {
    /// Runs `body` with a folder and an ALSA configuration in it.
    private func withALSA(_ configuration: (String) -> String, _ body: (String, [String: String]) throws -> Void) throws
    {
        let folder = temporaryPath("alsa")
        mkdir(folder, 0o700)
        defer { _ = Child(["rm", "-rf", folder])?.finish(within: .seconds(5)) }
        writeFile(folder + "/asound.conf", Array(("pcm.null { type null }\n" + configuration(folder)).utf8))
        try body(folder, ["ALSA_CONFIG_PATH": folder + "/asound.conf", "HOME": folder])
    }

    /// Whose rate, and channels.
    private struct Form: CustomTestStringConvertible {
        var rate: Int
        var channels: Int
        var format = "S16_LE"

        var testDescription: String { "\(rate) Hz, \(channels) channels, \(format)" }
        /// What makes `slave` take this form only: `plug` without its resampling (we ask for none) has the slave's rate, and
        /// `multi` has as many channels as bindings.
        func pcm(_ name: String, slave: String) -> String {
            let bindings = (0..<channels).map { "\($0) { slave a channel \($0) }" }.joined(separator: " ")
            return """
                pcm.\(name)_slave { \(slave) }
                pcm.\(name)_rate { type plug slave { pcm \(name)_slave rate \(rate) channels \(channels) format \(format) } }
                pcm.\(name) { type multi slaves.a { pcm \(name)_rate channels \(channels) } bindings { \(bindings) } }

                """
        }
    }

    /// What is spoken into a file of raw samples is heard in another one. (The microphones have one channel: what converts
    /// channels over a `file` loses samples of it. `SignalTests` mix every number of channels.)
    @Test func whatIsSpokenIsHeardAtAnyRateAndWithAnyNumberOfChannels() throws {
        let program = try #require(probe, "AudioProbe was not built: swift build --build-tests")
        let pairs = [
            (Form(rate: 44_100, channels: 1), Form(rate: 96_000, channels: 6)),
            (Form(rate: 96_000, channels: 1), Form(rate: 8_000, channels: 1)),
            (Form(rate: 8_000, channels: 1), Form(rate: 44_100, channels: 2)),
        ]
        try withALSA(
            { folder in
                pairs.enumerated().map { index, forms in
                    forms.0.pcm(
                        "mic\(index)",
                        slave: "type file file /dev/null infile \(folder)/mic\(index) slave.pcm null format raw")
                        + forms.1.pcm(
                            "ear\(index)", slave: "type file file \(folder)/ear\(index).wav slave.pcm null format wav")
                }.joined()
            },
            { folder, environment in
                for (index, forms) in pairs.enumerated() {
                    let samples = chirps(seconds: 3, rate: forms.0.rate)
                    let bytes = wav(samples, rate: forms.0.rate, channels: forms.0.channels)
                    writeFile("\(folder)/mic\(index)", Array(bytes.dropFirst(44)))
                }
                let spoken = chirps(seconds: 3)
                let children = try pairs.indices.map {
                    try #require(
                        Child(
                            [program, "loop", "mic\($0)_rate", "ear\($0)", "800", "1", "1"], environment: environment))
                }
                for (index, forms) in pairs.enumerated() {
                    let output = children[index].finish(within: .seconds(30))
                    #expect(output.contains("reason=complete") && !output.contains("failed"), "\(output)")
                    let reader = try WAVReader(path: "\(folder)/ear\(index).wav", framesPerRead: 4_096)
                    #expect(reader.rate == forms.1.rate)
                    let heard = try at48kHz(readWAV("\(folder)/ear\(index).wav"), rate: reader.rate)
                    let first = try #require(
                        heard.firstIndex { abs($0) > 0.05 }, "\(forms.0) to \(forms.1): nothing heard")
                    // Any 20 ms may have been stretched; not all of them.
                    let end = min(first + 24_000, heard.count - 960)
                    let likenesses = stride(from: first + 4_800, to: end, by: 1_920).map { place in
                        find(
                            heard[place..<place + 960], in: spoken,
                            max(0, place - first - 4_800)..<place - first + 4_800
                        )
                        .likeness
                    }
                    print("\(forms.0.testDescription) to \(forms.1.testDescription): likeness", likenesses.max() ?? 0)
                    #expect(likenesses.contains { $0 > 0.6 }, "\(forms.0) to \(forms.1): \(likenesses)")
                }
            })
    }

    private func at48kHz(_ samples: [Float], rate: Int) throws -> [Float] {
        guard rate != audioClockRate else { return samples }
        let resampler = try #require(Resampler(from: rate, to: audioClockRate, inputMax: 1_000))
        var output = [Float](repeating: 0, count: resampler.outputMax)
        var result: [Float] = []
        for start in stride(from: 0, to: samples.count, by: 1_000) {
            let part = Array(samples[start..<min(start + 1_000, samples.count)])
            result += output[..<resampler.process(part, count: part.count, into: &output)]
        }
        return result
    }

    /// `share` gives each channel of its slave to one PCM only: who comes second is told EBUSY by alsa-lib itself, from the call
    /// that says it of a card that another program has. It stays so, for alsa-lib 1.2.8 corrupts its memory when the first of the
    /// two is closed then; that a device which becomes free is taken, `DeviceRecoveryTests` show.
    @Test func aDeviceThatAnotherHasIsWaitedForAndThenFailsWithWordsThatSayWhatToDo() throws {
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
                    "microphone-failed", "microphone-lost", "speaker-failed",
                ])
            #expect(lines.allSatisfy { $0.contains("is busy") && $0.contains("end that program") }, "\(lines)")
        }
    }
}
