// PCMs of other rates and channel counts than ours.
import Glibc
import Testing

@testable import Audio

@Suite(.serialized) struct DeviceFormTests {
    /// A PCM that takes samples of this rate and number of channels only, as 16 bits.
    private struct Form: CustomStringConvertible {
        var rate: Int
        var channels: Int

        var description: String { "\(rate) Hz, \(channels) channels" }

        /// `plug` without its resampling (we ask for none) has the slave's rate, and `multi` has as many channels as bindings.
        func pcm(_ name: String, slave: String) -> String {
            let bindings = (0..<channels).map { "\($0) { slave a channel \($0) }" }.joined(separator: " ")
            return """
                pcm.\(name)_slave { \(slave) slave.pcm null format raw }
                pcm.\(name)_rate { type plug slave { pcm \(name)_slave rate \(rate) channels \(channels) format S16_LE } }
                pcm.\(name) { type multi slaves.a { pcm \(name)_rate channels \(channels) } bindings { \(bindings) } }

                """
        }
    }

    /// A named pipe that a `file` PCM writes to, and what was copied out of it. A file would begin anew with every device that ran
    /// dry and is opened again, as happens when the machine is halted for a moment.
    private final class Ear {
        /// Room for more than what is played, so that who plays never waits for who copies.
        private static let room: Int32 = 1 << 20
        /// F_SETPIPE_SZ of fcntl(2), which the C library's module leaves out.
        private static let setPipeSize: Int32 = 1_031

        private let path: String
        private let descriptor: Int32
        private let copier: Child

        init(_ path: String) throws {
            self.path = path
            try #require(mkfifo(path, 0o600) == 0)
            descriptor = open(path, O_RDWR | O_CLOEXEC)
            try #require(fcntl(descriptor, Self.setPipeSize, Self.room) >= 0)
            let script = "exec 3< \(path); echo ready; cat <&3 > \(path).raw; echo done"
            copier = try #require(Child(["sh", "-c", script]))
            try #require(copier.wait(for: "ready"))
        }

        /// All that was played, one array a channel. To be called once, when nothing plays any more.
        func samples(channels: Int) throws -> [[Int16]] {
            close(descriptor)
            try #require(copier.wait(for: "done"))
            let bytes = readFile(path + ".raw")
            let frame = 2 * channels
            return (0..<channels).map { channel in
                stride(from: 2 * channel, to: bytes.count / frame * frame, by: frame).map {
                    Int16(bitPattern: UInt16(bytes[$0]) | UInt16(bytes[$0 + 1]) << 8)
                }
            }
        }
    }

    /// A tone whose frequency tells its instant: 300 Hz, and 1 Hz more with every millisecond.
    private func sweep(seconds: Double, rate: Int) -> [Float] {
        (0..<Int(seconds * Double(rate))).map { index -> Float in
            let time = Double(index) / Double(rate)
            let turns: Double = (300 + 500 * time) * time
            return Float(0.3 * sin(2 * Double.pi * turns))
        }
    }

    /// Which milliseconds of the sweep are heard, one number for every 20 ms in which it sounds.
    private func heard(_ samples: [Int16], rate: Int) -> [Double] {
        let length = rate / 50
        return stride(from: 0, through: samples.count - length, by: length).compactMap { start in
            let part: [Double] = samples[start..<start + length].map { Double($0) }
            var power = 0.0
            var crossings: [Double] = []
            for (index, sample) in part.enumerated() {
                power += sample * sample / Double(length)
                guard index > 0 else { continue }
                let before = part[index - 1]
                if (before < 0) != (sample < 0) { crossings.append(Double(index) - sample / (sample - before)) }
            }
            guard power > 1_000_000 else { return nil }
            guard let first = crossings.first, let last = crossings.last, last > first else { return nil }
            return Double(crossings.count - 1) / 2 / (last - first) * Double(rate) - 300
        }
    }

    /// What is spoken into a file of raw samples is heard in another one, at its speed and whole, in every channel. (The microphones
    /// have one channel: what converts channels over a `file` loses samples of it. `SignalTests` mix every number of channels.)
    @Test func `what is spoken is heard at any rate and with any number of channels`() throws {
        let program = try #require(probe, "AudioProbe was not built: swift build --build-tests")
        let pairs = [
            (Form(rate: 44_100, channels: 1), Form(rate: 96_000, channels: 6)),
            (Form(rate: 96_000, channels: 1), Form(rate: 8_000, channels: 1)),
            (Form(rate: 8_000, channels: 1), Form(rate: 44_100, channels: 2)),
        ]
        try withALSA(
            { folder in
                pairs.enumerated().map { index, forms in
                    forms.0.pcm("mic\(index)", slave: "type file file /dev/null infile \(folder)/mic\(index)")
                        + forms.1.pcm("ear\(index)", slave: "type file file \(folder)/ear\(index)")
                }.joined()
            },
            { folder, environment in
                let ears = try pairs.indices.map { try Ear("\(folder)/ear\($0)") }
                for (index, forms) in pairs.enumerated() {
                    let bytes = wav(sweep(seconds: 3, rate: forms.0.rate), rate: forms.0.rate)
                    writeFile("\(folder)/mic\(index)", Array(bytes.dropFirst(44)))
                }
                let children = try pairs.indices.map {
                    try #require(
                        Child(
                            [program, "loop", "mic\($0)_rate", "ear\($0)", "800", "1", "1"], environment: environment))
                }
                for (index, forms) in pairs.enumerated() {
                    let output = children[index].finish(within: .seconds(30))
                    #expect(output.contains("reason=complete") && !output.contains("failed"), "\(output)")
                    let channels = try ears[index].samples(channels: forms.1.channels)
                    #expect(channels.allSatisfy { $0 == channels[0] }, "\(forms.1): the channels differ")
                    let places = heard(channels[0], rate: forms.1.rate)
                    let steps = zip(places.dropFirst(), places).map { $0 - $1 }.sorted()
                    // Some may be stretched, or shortened when the machine was halted; most is heard as it was spoken.
                    let step = steps.isEmpty ? 0 : steps[steps.count / 2]
                    #expect((14...28).contains(step), "\(forms.0) to \(forms.1): \(places)")
                    let missing = (1..<15).filter { part in !places.contains { Int(($0 / 50).rounded(.down)) == part } }
                    #expect(missing.count <= 2, "\(forms.0) to \(forms.1): \(missing) of \(places), \(output)")
                }
            })
    }
}
