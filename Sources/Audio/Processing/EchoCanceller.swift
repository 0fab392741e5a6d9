// Removes what the speaker plays from what the microphone hears, by libspeexdsp.
import CSpeexDSP
import Glibc
import MonotonicTime

/// Takes the echo of a speaker out of the microphone's samples, where they are and without delay. Allocates in `init`
/// only; confined to the capture thread.
///
/// libspeexdsp's adaptive filter in blocks of 5 ms, 125 ms long. Measured with espeak's speech in a room whose echo
/// decays by 60 dB in 60 ms: shorter blocks learn sooner, and a longer filter later (of 150 ms: 1 dB less after the
/// same time). A filter that has learnt another offset is worse than an untrained one: with 0.5 ms of error it leaves
/// more echo for two seconds than a new one, which has removed 10 dB after one second and 16 dB after two. So it is
/// reset when the offset changes, and at every press. `NoiseSuppressor` handles the remaining echo.
final class EchoCanceller {
    /// Samples in a block; the suppressor of what is left must have the same.
    static let block = NoiseSuppressor.block
    /// Blocks of the filter: the longest echo, with the place in time being wrong by a few milliseconds.
    static let blocks = 25

    /// libspeexdsp's, for `NoiseSuppressor`, which asks it what is left.
    let state: OpaquePointer
    private let played: PlayedSound
    private let reference = EchoReference()
    private let heard: UnsafeMutablePointer<Float>
    private let speaker: UnsafeMutablePointer<Int16>
    private let microphone: UnsafeMutablePointer<Int16>
    private let result: UnsafeMutablePointer<Int16>
    /// Samples captured since the press, or the last gap.
    private var position: Int64 = 0
    /// Blocks until what was played has died away; at 0 nothing is done.
    private var blocksLeft = 0
    /// Whether there is anything to forget.
    private var hasRun = false

    /// A canceller of what goes through `played`.
    init(_ played: PlayedSound) throws(AudioFault) {
        guard let made = speex_echo_state_init(Int32(Self.block), Int32(Self.blocks * Self.block)) else {
            throw AudioFault(.configure, ENOMEM)
        }
        state = made
        self.played = played
        var rate = Int32(audioClockRate)
        speex_echo_ctl(state, SPEEX_ECHO_SET_SAMPLING_RATE, &rate)
        // Touches all of its memory, too.
        speex_echo_state_reset(state)
        heard = .allocate(capacity: Self.block)
        heard.initialize(repeating: 0, count: Self.block)
        LockedMemory.lock(heard, Self.block * MemoryLayout<Float>.stride)
        speaker = Self.samples()
        microphone = Self.samples()
        result = Self.samples()
    }

    private static func samples() -> UnsafeMutablePointer<Int16> {
        let made = UnsafeMutablePointer<Int16>.allocate(capacity: block)
        made.initialize(repeating: 0, count: block)
        LockedMemory.lock(made, block * MemoryLayout<Int16>.stride)
        return made
    }

    deinit {
        speex_echo_state_destroy(state)
        heard.deallocate()
        speaker.deallocate()
        microphone.deallocate()
        result.deallocate()
    }

    /// A new burst: the microphone is about to hear.
    func begin() {
        played.listen()
        interrupt()
    }

    /// The burst is over: nothing is listened to any more.
    func end() {
        played.rest()
        forget()
    }

    /// Samples are missing before those that come next.
    func interrupt() {
        reference.restartCapture()
        position = 0
        blocksLeft = 0
    }

    /// The sample that comes `offset` samples after all that were processed was at the microphone at `instant`.
    func stamp(at instant: Instant, offset: Int) { reference.stampCapture(position + Int64(offset), at: instant) }

    /// Changes `count` captured samples, a multiple of `block`, where they are. Without a sound played they stay as they are.
    func process(_ sound: UnsafeMutablePointer<Float>, count: Int) {
        while played.take({ block, samples in
            reference.play(
                samples, playbackBlock, heardAt: Instant(nanoseconds: block.heardAt), isContinued: block.isContinued)
        }) {}
        for start in stride(from: 0, to: count - Self.block + 1, by: Self.block) { processBlock(sound + start) }
    }

    private func processBlock(_ sound: UnsafeMutablePointer<Float>) {
        let found = reference.find(position, Self.block, into: heard)
        position += Int64(Self.block)
        if found.isMoved { forget() }
        let ran = blocksLeft > 0
        // One more than the filter is long: its last echo ends in there.
        blocksLeft = found.sounds ? Self.blocks + 1 : max(0, blocksLeft - 1)
        guard ran || blocksLeft > 0 else { return }
        hasRun = true
        for index in 0..<Self.block {
            microphone[index] = Self.sample(sound[index])
            speaker[index] = Self.sample(heard[index])
        }
        speex_echo_cancellation(state, microphone, speaker, result)
        // libspeexdsp takes very low tones out, too: where it sets in and where it ends one sound fades into the other.
        for index in 0..<Self.block {
            let cancelled = Float(result[index]) / 32_767
            let passed = Float(index) / Float(Self.block)
            let part: Float = ran && blocksLeft > 0 ? 1 : ran ? 1 - passed : passed
            sound[index] += (cancelled - sound[index]) * part
        }
    }

    /// Forgets the room, and the last echo that was taken out of it. libspeexdsp's reset leaves that one to the suppressor, which would
    /// take it out of all that is said until the room is known again: it has to die away before. 2 ms of work.
    private func forget() {
        guard hasRun else { return }
        hasRun = false
        for index in 0..<Self.block {
            microphone[index] = 0
            speaker[index] = 0
        }
        // As many as the filter is long, and the two that are kept of what was taken out.
        for _ in 0..<Self.blocks + 3 { speex_echo_cancellation(state, microphone, speaker, result) }
        speex_echo_state_reset(state)
    }

    private static func sample(_ value: Float) -> Int16 { Int16(max(-32_767, min(32_767, value * 32_767))) }
}
