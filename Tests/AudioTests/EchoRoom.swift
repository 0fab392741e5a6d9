// A room in numbers for the tests of echoes: how sound comes back in it, someone far away, and a speaker and a microphone in real time.
import Glibc
import MonotonicTime
import Synchronization
import TestSupport

@testable import Audio

/// A room: what is played comes back `delay` samples later, and its echoes for 60 ms more, decaying by 60 dB.
struct EchoPath {
    /// Offsets and strengths of the echoes.
    let taps: [(offset: Int, strength: Float)]

    init(delay: Int, taps count: Int = 60, seed: UInt64 = 21) {
        var generator = SeededGenerator(seed: seed)
        let made = (0..<count).map { number in
            let offset = number * 2_880 / count + Int.random(in: 0..<max(1, 2_880 / count), using: &generator)
            return (offset, Float.random(in: -1...1, using: &generator) * expf(-6.9 * Float(offset) / 2_880))
        }
        let norm = made.reduce(Float(0)) { $0 + $1.1 * $1.1 }.squareRoot()
        taps = made.map { (delay + $0.0, 0.5 * $0.1 / norm) }
    }

    /// What is heard of what was played, sample by sample. By pointers, for a debug build's sake.
    func echo(of played: [Float]) -> [Float] {
        var heard = [Float](repeating: 0, count: played.count)
        played.withUnsafeBufferPointer { played in
            heard.withUnsafeMutableBufferPointer { heard in
                for (offset, strength) in taps {
                    var index = offset
                    while index < played.count {
                        heard[index] += strength * played[index - offset]
                        index += 1
                    }
                }
            }
        }
        return heard
    }

    /// What is heard at `index` of what was played.
    func echo(of played: [Float], at index: Int) -> Float {
        var sum: Float = 0
        for (offset, strength) in taps where index >= offset && index - offset < played.count {
            sum += strength * played[index - offset]
        }
        return sum
    }
}

/// Someone far away: hissing in syllables, as rich as speech.
func farEnd(seconds: Double) -> [Float] {
    var generator = SeededGenerator(seed: 31)
    var low: Float = 0
    return (0..<Int(seconds * 48_000)).map { index in
        low += 0.2 * (.random(in: -1...1, using: &generator) - low)
        let syllable = max(0, sin(2 * Double.pi * 2.2 * Double(index) / 48_000))
        return 0.8 * low * Float(syllable.squareRoot())
    }
}

func power(_ samples: ArraySlice<Float>) -> Double {
    samples.reduce(1e-12) { $0 + Double($1 * $1) } / Double(max(1, samples.count))
}

func decibels(_ ratio: Double) -> Double { 10 * log10(ratio) }

/// The air between a speaker and a microphone, sample by sample since it was made.
final class Room: Sendable {
    private struct Air {
        var played = [Float](repeating: 0, count: 48_000 * 24)
        var heard: [Float] = []
        var underruns = 0
    }

    let origin = Instant.now
    private let path: EchoPath
    private let air = Mutex(Air())

    init(path: EchoPath) { self.path = path }

    func index(of instant: Instant) -> Int { Int(CaptureStateMachine.samples(instant - origin)) }

    func play(_ samples: UnsafePointer<Float>, _ count: Int, from index: Int) {
        air.withLock { air in
            for offset in 0..<count where index + offset < air.played.count {
                air.played[index + offset] = samples[offset]
            }
        }
    }

    func hear(_ output: UnsafeMutablePointer<Float>, _ count: Int, from index: Int) {
        air.withLock { air in
            for offset in 0..<count {
                output[offset] = path.echo(of: air.played, at: index + offset)
                air.heard.append(output[offset])
            }
        }
    }

    func ranEmpty() { air.withLock { $0.underruns += 1 } }

    var heardByMicrophone: [Float] { air.withLock { $0.heard } }
    var underruns: Int { air.withLock { $0.underruns } }
}

final class RoomSpeaker: PlaybackSink, @unchecked Sendable {
    private static let queue = CaptureStateMachine.duration(960)

    private let room: Room
    private var heardAt = Instant.zero
    private(set) var underruns = 0

    init(_ room: Room) { self.room = room }

    let recordingOrigin: Instant? = nil
    var delay: Duration { max(.zero, heardAt - .now) }

    func open() throws(AudioFault) {}
    func start() throws(AudioFault) { heardAt = .now + Self.queue }

    func waitForRoom() throws(AudioFault) -> Bool {
        sleep(until: heardAt - Self.queue + CaptureStateMachine.duration(Int64(playbackBlock)))
        if heardAt < .now {
            underruns += 1
            room.ranEmpty()
            heardAt = .now + Self.queue
        }
        return true
    }

    func write(_ samples: UnsafePointer<Float>) throws(AudioFault) {
        room.play(samples, playbackBlock, from: room.index(of: heardAt))
        heardAt = heardAt + CaptureStateMachine.duration(Int64(playbackBlock))
    }

    func stop() {}
    func close() {}
}

final class RoomMicrophone: CaptureSource, @unchecked Sendable {
    let readMax = 120
    let recoveries = 0
    private let room: Room
    private var startedAt = Instant.zero
    private var given = 0

    init(_ room: Room) { self.room = room }

    var nextSampleTime: Instant { startedAt + CaptureStateMachine.duration(Int64(given)) }

    func open() throws(AudioFault) {}

    func start() throws(AudioFault) {
        startedAt = .now
        given = 0
    }

    func read(into output: UnsafeMutablePointer<Float>) throws(AudioFault) -> Int {
        let first = nextSampleTime
        given += readMax
        sleep(until: nextSampleTime)
        room.hear(output, readMax, from: room.index(of: first))
        return readMax
    }

    func stop() {}
    func close() {}
}
