// Samples into frames: collected, processed, faded, encoded. Runs on the capture thread.
import COpus
import Glibc
import MonotonicTime
import Synchronization
import Vocabulary

/// Makes the frames of a burst. Allocates in `init` only. Confined to the capture thread but for `setExpectedLoss`.
final class SpeechFramer {
    /// A frame as it comes out.
    struct Frame {
        /// The encoder's result: the packet's length, or a negative Opus error.
        var length: Int32
        /// In samples of the burst.
        var position: Int64
        var isFirst: Bool
        var isLast: Bool
        /// dBFS.
        var level: Float
        /// Time that processing and encoding took.
        var took: Duration
    }

    let frameSamples: Int
    /// The packet that came out last.
    let packet: UnsafeMutableRawBufferPointer
    private let encoder: OpusEncoder
    private var protection: LossProtection
    private let expectedLoss: Atomic<Int>
    private var lossSeen = 0
    private var gain: GainControl?
    private let canceller: EchoCanceller?
    private let suppressor: NoiseSuppressor?
    private let pending: UnsafeMutablePointer<Float>
    private var pendingCount = 0
    private var position: Int64 = 0
    private var isFirst = true
    /// Whether samples of the frame that is being collected were lost.
    private var hasGap = false

    /// - Parameter played: What the speaker plays, whose echo is taken out.
    init(
        _ settings: OpusSettings, gain: MicrophoneGain = .off, suppressesNoise: Bool = false,
        echoOf played: PlayedSound? = nil
    ) throws(AudioError) {
        self.gain = gain.control
        do throws(AudioFault) {
            let canceller = try played.map { played throws(AudioFault) in try EchoCanceller(played) }
            self.canceller = canceller
            suppressor =
                suppressesNoise || canceller != nil
                ? try NoiseSuppressor(suppressesNoise: suppressesNoise, echo: canceller) : nil
        } catch {
            throw .device(
                "the noise suppression or echo cancellation", operation: "make its state", code: error.code)
        }
        encoder = try OpusEncoder(settings)
        protection = LossProtection(settings)
        expectedLoss = Atomic(min(100, max(0, settings.expectedLossPercent)))
        frameSamples = settings.frameDuration.samples
        pending = .allocate(capacity: frameSamples)
        pending.initialize(repeating: 0, count: frameSamples)
        packet = .allocate(byteCount: opusPayloadMax, alignment: 16)
    }

    deinit {
        pending.deallocate()
        packet.deallocate()
    }

    /// From any thread.
    func setExpectedLoss(percent: Int) { expectedLoss.store(percent, ordering: .relaxed) }

    /// Forgets the burst before.
    func begin() {
        pendingCount = 0
        position = 0
        isFirst = true
        encoder.reset()
        hasGap = false
        canceller?.begin()
        suppressor?.begin()
    }

    /// The burst is over, and the microphone stands still.
    func end() { canceller?.end() }

    /// Takes samples of the burst that `machine` is in, the first of which was at the microphone at `instant`; every frame that is
    /// full goes to `put`.
    func append(
        _ samples: UnsafePointer<Float>, _ count: Int, at instant: Instant, in machine: CaptureStateMachine,
        _ put: (Frame) -> Void
    ) {
        canceller?.stamp(at: instant, offset: pendingCount)
        var taken = 0
        while taken < count {
            let part = min(count - taken, frameSamples - pendingCount)
            memcpy(pending + pendingCount, samples + taken, part * MemoryLayout<Float>.stride)
            pendingCount += part
            taken += part
            if pendingCount == frameSamples { put(encode(in: machine, isLast: false)) }
        }
    }

    /// Moves the frame that is being collected, and all later ones, by `frames` frames.
    func skip(frames: Int) { position += Int64(frames * frameSamples) }

    /// Puts silence in the place of `count` lost samples: whole frames of it are not made but skipped.
    func appendGap(_ count: Int, in machine: CaptureStateMachine, _ put: (Frame) -> Void) {
        let skipped = max(0, count - (frameSamples - pendingCount)) / frameSamples
        let silent = count - skipped * frameSamples
        let filling = min(silent, frameSamples - pendingCount)
        appendSilence(filling, in: machine, put)
        position += Int64(skipped * frameSamples)
        appendSilence(silent - filling, in: machine, put)
    }

    private func appendSilence(_ count: Int, in machine: CaptureStateMachine, _ put: (Frame) -> Void) {
        guard count > 0 else { return }
        memset(pending + pendingCount, 0, count * MemoryLayout<Float>.stride)
        pendingCount += count
        hasGap = true
        if pendingCount == frameSamples { put(encode(in: machine, isLast: false)) }
    }

    /// Puts out what is left, and silence after it for as long as the encoder and what comes before it hold back, so that
    /// every sample arrives.
    func finish(in machine: CaptureStateMachine, _ put: (Frame) -> Void) {
        guard machine.position > 0 else { return }
        var left = pendingCount + encoder.lookahead + (suppressor == nil ? 0 : NoiseSuppressor.block)
        while left > 0 {
            memset(pending + pendingCount, 0, (frameSamples - pendingCount) * MemoryLayout<Float>.stride)
            left -= frameSamples
            put(encode(in: machine, isLast: left <= 0))
        }
    }

    private func encode(in machine: CaptureStateMachine, isLast: Bool) -> Frame {
        let began = Instant.now
        cancelEcho()
        if let end = machine.endPosition, position + Int64(pendingCount) > end - CaptureStateMachine.fade {
            for index in 0..<pendingCount { pending[index] *= machine.gain(at: position + Int64(index)) }
        }
        suppressor?.process(pending, count: frameSamples)
        gain?.process(pending, count: frameSamples)
        let loss = expectedLoss.load(ordering: .relaxed)
        if loss != lossSeen {
            lossSeen = loss
            encoder.protect(protection.expect(percent: loss))
        }
        let level = Self.level(pending, count: frameSamples)
        let length = encoder.encode(pending, count: frameSamples, into: packet)
        let frame = Frame(
            length: length, position: position, isFirst: isFirst, isLast: isLast, level: level, took: .now - began)
        pendingCount = 0
        position += Int64(frameSamples)
        if length > 0 { isFirst = false }
        return frame
    }

    /// Only of what was captured: silence that was put in has no echo, and would get one.
    private func cancelEcho() {
        guard let canceller, pendingCount > 0 else { return }
        if hasGap {
            canceller.interrupt()
            hasGap = false
            return
        }
        canceller.process(pending, count: frameSamples)
        memset(pending + pendingCount, 0, (frameSamples - pendingCount) * MemoryLayout<Float>.stride)
    }

    /// The mean power of `samples` in dBFS.
    static func level(_ samples: UnsafePointer<Float>, count: Int) -> Float {
        var power: Float = 0
        for index in 0..<count { power += samples[index] * samples[index] }
        return min(0, max(OutgoingFrame.levelMin, 10 * log10f(power / Float(count) + 1e-12)))
    }
}
