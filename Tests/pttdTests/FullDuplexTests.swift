// Two who talk at once, heard by a daemon that talks too: from the talkers' frames over the relay to the speaker and the recordings.
import BusTestSupport
import Cryptography
import DBus
import FoundationEssentials
import Glibc
import Logging
import MonotonicTime
import PTTBus
import PushToTalkCore
import Reactor
import Recordings
import RelayClient
import RelayProtocol
import RelayServer
import Synchronization
import Testing
import Vocabulary

@testable import Audio
@testable import pttd

@Suite(.timeLimit(.minutes(2))) struct FullDuplexTests {
    private static let frameSamples = 480

    /// A member with a voice of one frequency.
    private final class Talker: Sendable {
        let link: RelayClient
        let loop: EventLoop
        let frames: [[UInt8]]
        let events = Mutex<[RelayLinkEvent]>([])
        private let mayTalk = Mutex(true)

        init(_ name: String, _ hertz: Double, _ invitation: InvitationLink) async throws {
            loop = try EventLoop(name: name)
            let encoder = try OpusEncoder(OpusSettings())
            var packet = [UInt8](repeating: 0, count: opusPayloadMax)
            frames = (0..<100).map { number in
                let samples = (0..<frameSamples).map { index in
                    Float(0.3 * sin(2 * .pi * hertz * Double(number * frameSamples + index) / 48_000))
                }
                let length = samples.withUnsafeBufferPointer { samples in
                    packet.withUnsafeMutableBytes {
                        encoder.encode(samples.baseAddress!, count: frameSamples, into: $0)
                    }
                }
                return Array(packet[..<Int(length)])
            }
            link = RelayClient(
                invitation: invitation, identity: try Identity(generating: name),
                displayName: DisplayName(cleaning: name, fallback: "?"), openWebSocket: nil, loop: loop,
                logger: Logger(label: name) { _ in
                    SwiftLogNoOpLogHandler()
                })
            await link.setEventHandler { [weak self] event in self?.events.withLock { $0.append(event) } }
            await link.join()
        }

        deinit { loop.stop() }

        func has(_ wanted: @Sendable (RelayLinkEvent) -> Bool) -> Bool {
            events.withLock { $0.contains(where: wanted) }
        }

        /// Says a frame every 10 ms until `stop`.
        func talk() async throws {
            await link.beginBurst(priority: FloorPriority.normal)
            let start = Instant.now
            var number = 0
            while mayTalk.withLock({ $0 }) {
                let due = start + .milliseconds(10 * number)
                await link.send(
                    OutgoingFrame(
                        payload: frames[number % frames.count], samples: UInt32(frameSamples), capturedAt: due))
                number += 1
                let wait = due + .milliseconds(10) - .now
                if wait > .zero { try await Task.sleep(for: wait) }
            }
            await link.endBurst()
        }

        func stop() { mayTalk.withLock { $0 = false } }
    }

    /// How loud a frequency is in a tenth of a second.
    private func amplitude(of hertz: Double, in samples: ArraySlice<Float>) -> Double {
        var (real, imaginary) = (0.0, 0.0)
        for (index, sample) in samples.enumerated() {
            let angle = 2 * Double.pi * hertz * Double(index) / 48_000
            real += Double(sample) * cos(angle)
            imaginary += Double(sample) * sin(angle)
        }
        return 2 * (real * real + imaginary * imaginary).squareRoot() / Double(max(1, samples.count))
    }

    @Test func twoWhoTalkAtOnceAreHeardAtOnceByOneWhoTalksToo() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory, floor: FloorRules(mode: .fullDuplex)) {
                $0.recordings = RecordingSettings(folder: "talk")
            }
            let client = try await DaemonClient.find(
                on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger)
            #expect(try await eventually { try await client.active()?.serviceStatus == "ready" })
            try await client.setTransmissionMode(.fullDuplex)

            let ann = try await Talker("Ann", 500, daemon.invitation)
            let bob = try await Talker("Bob", 1_300, daemon.invitation)
            for talker in [ann, bob] {
                #expect(
                    try await eventually { talker.has { if case .state(.ready) = $0 { true } else { false } } })
            }
            async let annTalks: Void = ann.talk()
            #expect(try await eventually { try await client.active()?.remoteParticipants == ["Ann"] })
            async let bobTalks: Void = bob.talk()
            #expect(try await eventually { try await client.active()?.remoteParticipants == ["Ann", "Bob"] })
            #expect(
                try await client.active()?.activeRemoteParticipant == "Ann", "the one who has been heard for longest")
            #expect(ann.has { if case .floorTaken(let by) = $0 { by.name == "Bob" } else { false } })

            // What is said here is heard by both, who go on.
            try await client.beginTransmitting()
            for talker in [ann, bob] {
                #expect(
                    try await eventually {
                        talker.has {
                            if case .frame(let frame) = $0 {
                                !["Ann", "Bob"].contains(frame.talker?.name)
                            } else {
                                false
                            }
                        }
                    })
            }
            #expect(try await client.active()?.remoteParticipants == ["Ann", "Bob"])
            try await Task.sleep(for: .milliseconds(800))
            #expect(try await client.active()?.transmitting == true)
            ann.stop()
            try await annTalks
            #expect(try await eventually { try await client.active()?.remoteParticipants == ["Bob"] })
            #expect(try await client.active()?.activeRemoteParticipant == "Bob")
            bob.stop()
            try await bobTalks
            #expect(try await eventually { try await client.active()?.remoteParticipants == [] })
            #expect(try await client.active()?.transmitting == true, "others end, and this one goes on")
            try await client.stopTransmitting()
            for talker in [ann, bob] {
                #expect(
                    !talker.has { if case .transmissionEnded(_, let end, _) = $0 { end != .completed } else { false } })
                await talker.link.leave()
            }
            let recordings = directory.path + "/talk"
            #expect(
                try await eventually {
                    let all = (try? FileManager.default.contentsOfDirectory(atPath: recordings)) ?? []
                    let names = all.filter { !$0.hasPrefix(".") }
                    return names.count == 2 && names.allSatisfy { $0.hasSuffix(".opus") }
                        && names.contains { $0.contains("Ann") } && names.contains { $0.contains("Bob") }
                })
            await client.close()
            await daemon.stop()

            let reader = try WAVReader(path: directory.path + "/heard.wav", framesPerRead: 4_800)
            var samples = [Float](repeating: 0, count: reader.frames + 4_800)
            var count = 0
            while count < reader.frames {
                let read = try samples.withUnsafeMutableBufferPointer { buffer throws in
                    try reader.read(4_800, into: buffer.baseAddress! + count)
                }
                guard read > 0 else { break }
                count += read
            }
            var (both, one) = (0, 0)
            for start in stride(from: 0, to: count - 4_800, by: 4_800) {
                let part = samples[start..<start + 4_800]
                let isHeard = [500.0, 1_300].map { amplitude(of: $0, in: part) > 0.1 }
                if isHeard == [true, true] { both += 1 } else if isHeard.contains(true) { one += 1 }
                #expect(part.allSatisfy { abs($0) < 1 })
            }
            #expect(both >= 4, "\(both) tenths of a second with both, \(one) with one")
        }
    }
}
