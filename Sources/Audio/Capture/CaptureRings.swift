// The rings between the owner of a microphone and its thread: commands in, frames and events out, statistics.
import MonotonicTime
import Synchronization
import Vocabulary

/// What `CaptureEngine` asks of its thread.
enum CaptureCommand: BitwiseCopyable {
    case prepare
    case unprepare
    case start(burst: UInt32, at: Instant, afterGoAhead: Bool)
    case goAhead(from: Instant)
    case stop(end: Instant)
    case abort
}

/// One slot of the ring of outputs: a `CaptureOutput` without what has to be allocated. A frame's payload is the slot's.
enum CaptureSlot: BitwiseCopyable {
    case prepared(took: Duration)
    case hears(burst: UInt32, after: Duration, really: Bool, settledAfter: Duration?)
    case began(burst: UInt32, firstSampleAt: Instant, after: Duration)
    case frame(
        capturedAt: Instant, position: UInt32, burst: UInt32, isFirst: Bool, isLast: Bool, level: Float)
    case fellSilent(burst: UInt32)
    case heardAgain(burst: UInt32)
    case lost(AudioFault)
    case resumed(gap: Duration)
    case ended(burst: UInt32, CaptureEnd)
    case failed(AudioFault)

    /// The slot as the owner sees it. Allocates: for the owner's thread.
    func output(payload: UnsafeRawBufferPointer, frameSamples: Int, device: AudioDevice) -> CaptureOutput {
        switch self {
        case .prepared(let took): .prepared(took: took)
        case .hears(let burst, let after, let really, let settledAfter):
            .hears(burst: burst, after: after, really: really, settledAfter: settledAfter)
        case .began(let burst, let first, let after): .began(burst: burst, firstSampleAt: first, after: after)
        case .frame(let capturedAt, let position, let burst, let isFirst, let isLast, let level):
            .frame(
                OutgoingFrame(
                    payload: Array(payload), samples: UInt32(clamping: frameSamples), capturedAt: capturedAt,
                    position: position, burst: burst, isFirst: isFirst, isLast: isLast, level: level))
        case .fellSilent(let burst): .fellSilent(burst: burst)
        case .heardAgain(let burst): .heardAgain(burst: burst)
        case .lost(let fault): .lost(AudioError(fault, device: device))
        case .resumed(let gap): .resumed(gap: gap)
        case .ended(let burst, let reason): .ended(burst: burst, reason)
        case .failed(let fault): .failed(AudioError(fault, device: device))
        }
    }
}

/// Two rings, two descriptors and the counts. Nothing in it blocks, allocates or locks, but `next`, which is the owner's.
final class CaptureRings: Sendable {
    /// Outputs that wait to be taken; 128 frames of 10 ms are 1.3 s.
    static let outputsMax = 128
    /// Slots that frames leave free, so that a burst's last frame and its end always fit.
    private static let outputsReserve = 8
    private static let commandsMax = 64

    let outputReady: WakeDescriptor
    private let wake: WakeDescriptor
    private let commands = SPSCRing<CaptureCommand>(capacity: commandsMax, payloadCapacity: 0)
    private let outputs = SPSCRing<CaptureSlot>(capacity: outputsMax, payloadCapacity: opusPayloadMax + 1)
    private let shutdown = Atomic<Bool>(false)
    /// Set when a command did not fit. The current burst is then ended, because the lost command may have been the
    /// release.
    private let overloaded = Atomic<Bool>(false)
    private let running = Atomic<Bool>(false)
    private let framesOut = Atomic<Int>(0)
    private let framesDropped = Atomic<Int>(0)
    private let overruns = Atomic<Int>(0)
    private let returns = Atomic<Int>(0)
    private let encoding = Atomic<Int64>(0)
    private let starts = Atomic<Int>(0)
    private let stops = Atomic<Int>(0)

    init() throws(AudioFault) {
        outputReady = try WakeDescriptor()
        wake = try WakeDescriptor()
    }

    /// Whether the device runs. From any thread.
    var isRunning: Bool { running.load(ordering: .acquiring) }

    var statistics: CaptureStatistics {
        var counts = CaptureStatistics()
        counts.frames = framesOut.load(ordering: .relaxed)
        counts.framesDropped = framesDropped.load(ordering: .relaxed)
        counts.overruns = overruns.load(ordering: .relaxed)
        counts.encoding = .nanoseconds(encoding.load(ordering: .relaxed))
        counts.returns = returns.load(ordering: .relaxed)
        counts.deviceStops = stops.load(ordering: .acquiring)
        counts.deviceStarts = starts.load(ordering: .acquiring)
        return counts
    }

    // MARK: The owner's side

    func command(_ command: CaptureCommand) {
        if !commands.push(command) { overloaded.store(true, ordering: .releasing) }
        wake.signal()
    }

    func shutDown() {
        shutdown.store(true, ordering: .releasing)
        wake.signal()
    }

    func next(device: AudioDevice, frameSamples: Int) -> CaptureOutput? {
        outputs.pop { slot, payload in slot.output(payload: payload, frameSamples: frameSamples, device: device) }
    }

    // MARK: The thread's side

    var isShutDown: Bool { shutdown.load(ordering: .acquiring) }

    func nextCommand() -> CaptureCommand? { commands.pop { command, _ in command } }

    /// Whether a command was lost; then those that wait are void, too.
    func takeOverload() -> Bool {
        guard overloaded.exchange(false, ordering: .acquiring) else { return false }
        while nextCommand() != nil {}
        return true
    }

    /// Sleeps until the owner wants something, or until `deadline`. Returns whether it is the deadline that has come.
    func wait(until deadline: Instant?) -> Bool { wake.wait(until: deadline) }

    /// Puts an event out. Events use the slots that frames leave free; an owner who takes nothing for many bursts loses them.
    func put(_ slot: CaptureSlot) {
        if !outputs.push(slot) { framesDropped.add(1, ordering: .relaxed) }
        outputReady.signal()
    }

    /// Puts out a frame that took `time` to make; one without payload was not made.
    func put(_ slot: CaptureSlot, frame: UnsafeRawBufferPointer, isLast: Bool, took time: Duration) {
        encoding.add(time.nanoseconds, ordering: .relaxed)
        if frame.count > 0, outputs.push(slot, frame, reserve: isLast ? 0 : Self.outputsReserve) {
            framesOut.add(1, ordering: .relaxed)
            outputReady.signal()
        } else {
            framesDropped.add(1, ordering: .relaxed)
        }
    }

    /// The device is set running, or runs already.
    func deviceStarts() {
        guard !running.load(ordering: .relaxed) else { return }
        starts.add(1, ordering: .releasing)
        running.store(true, ordering: .releasing)
    }

    /// The device has been stopped.
    func deviceStopped() {
        stops.add(1, ordering: .releasing)
        running.store(false, ordering: .releasing)
    }

    func overran(_ times: Int) { overruns.add(times, ordering: .relaxed) }

    func returned() { returns.add(1, ordering: .relaxed) }
}
