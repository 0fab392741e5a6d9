// The microphone as the other modules see it: commands in, encoded frames and events out. The work is the worker's.
import Logging
import MonotonicTime
import Synchronization
import Vocabulary

/// A microphone and its Opus encoder on a thread of their own.
///
/// The thread sleeps but between `start()` and the end of the tail; only then the device runs. Commands return at once
/// and are called from one thread at a time (the owner's loop). Watch `descriptor` for reading and call `drain` then.
///
///     let microphone = try CaptureEngine(device: AudioDevice("default"), logger: logger)
///     loop.watch(microphone.descriptor, for: .readable) { _ in microphone.drain { handle($0) } }
///     microphone.prepare()
///     microphone.start()            // at the press
///     microphone.stop()             // at the release; 200 ms of tail follow
public final class CaptureEngine: Sendable {
    /// The tail after a release, when none is given.
    public static let tailDefault = Duration.milliseconds(200)

    /// The microphone.
    public let device: AudioDevice
    private let worker: CaptureWorker
    private let thread: RealTimeThread
    private let logger: Logger
    private let nextBurst = Atomic<UInt32>(1)
    private let closed = Atomic<Bool>(false)

    /// Makes the engine and its sleeping thread. The device is not opened; of a WAV file the format is checked.
    ///
    /// - Parameter predecessor: The end of an engine that may hold the device still. Commands wait for it.
    /// - Throws: `AudioError` when the WAV file cannot be used or the process has no thread or descriptor left.
    public init(
        device: AudioDevice, configuration: CaptureConfiguration = .init(), after predecessor: AudioThreadEnd? = nil,
        logger: Logger
    ) throws(AudioError) {
        self.device = device
        self.logger = logger
        let framer = try SpeechFramer(
            configuration.opus, gain: configuration.gain, suppressesNoise: configuration.suppressesNoise,
            echoOf: configuration.echoOf)
        do throws(AudioFault) {
            let source = try makeCaptureSource(device, period: configuration.period)
            worker = try CaptureWorker(
                source: source, framer: framer,
                waitsForLevel: configuration.microphoneStart.waitsForLevel(of: device),
                settling: configuration.settling,
                isWatched: source.mayBeSilent ? configuration.isFileWatched : configuration.isWatched)
            let worker = self.worker
            thread = try RealTimeThread(name: "ptt-capture", after: predecessor) { worker.run() }
        } catch {
            throw AudioError(error, device: device)
        }
        if thread.priorityError != 0 {
            logger.debug(
                "capture runs without real-time priority; allow it by LimitRTPRIO= (systemd) or limits.d(5)",
                metadata: ["errno": "\(thread.priorityError)"])
        }
    }

    deinit { close() }

    /// Readable when `drain` has something to give.
    public var descriptor: Int32 { worker.rings.outputReady.descriptor }

    /// Opens and configures the device, so that `start()` finds it ready. `prepared` or `failed` follows.
    ///
    /// Through a sound server this may show a "microphone in use" mark, and a hardware device is then taken from others.
    public func prepare() { worker.rings.command(.prepare) }

    /// Closes the device again; not while a burst is going on (then nothing happens).
    public func unprepare() { worker.rings.command(.unprepare) }

    /// Captures from now on, opening the device first where it is not. `began`, frames and `ended` follow, or `failed`
    /// and `ended`.
    ///
    /// A burst that is still going on ends here with its last frame (`restarted`), and the device runs on.
    ///
    /// - Returns: The burst's number.
    @discardableResult
    public func start(_ start: CaptureStart = .atOnce) -> UInt32 {
        let burst = nextBurst.wrappingAdd(1, ordering: .relaxed).oldValue
        worker.rings.command(.start(burst: burst, at: .now, afterGoAhead: start == .afterGoAhead))
        return burst
    }

    /// The answer to `CaptureOutput.hears`: the burst begins with the sound at the microphone at `instant`, when the
    /// go-ahead tone sounds.
    public func goAhead(from instant: Instant) { worker.rings.command(.goAhead(from: instant)) }

    /// Listeners miss `percent` (0…100) of the packets: from the next frame on the encoder prepares for it. From any
    /// thread, at any time; it holds for later bursts too.
    public func setExpectedLoss(percent: Int) { worker.setExpectedLoss(percent: min(100, max(0, percent))) }

    /// Ends the burst `tail` from now: the last 10 ms fade out, the last frame is flagged, the device stops.
    public func stop(tail: Duration = CaptureEngine.tailDefault) {
        worker.rings.command(.stop(end: .now + max(.zero, tail)))
    }

    /// Ends the burst at once, without tail and without a last frame; what was captured and not encoded is erased.
    public func abort() { worker.rings.command(.abort) }

    /// Takes all that has come out since the last call. On the owner's thread, when `descriptor` is readable.
    public func drain(_ handler: (CaptureOutput) -> Void) {
        worker.rings.outputReady.clear()
        while let output = worker.nextOutput(device: device) {
            log(output)
            handler(output)
        }
    }

    /// Counts since the engine was made. From any thread.
    public var statistics: CaptureStatistics { worker.rings.statistics }

    /// The engine's thread, for a service that can give it real-time priority.
    public var realTimeThread: RealTimeThreadInfo { thread.information }

    /// Whether the device runs at this moment. From any thread.
    public var isCapturing: Bool { worker.rings.isRunning }

    /// Has the device closed and the thread end; returns at once. Nothing can be done with the engine afterwards.
    public func close() {
        guard closed.exchange(true, ordering: .relaxed) == false else { return }
        worker.rings.shutDown()
    }

    /// When the device is closed and the thread has ended, after `close()`.
    public var end: AudioThreadEnd { thread.end }

    private func log(_ output: CaptureOutput) {
        switch output {
        case .prepared(let took):
            logger.debug(
                "microphone prepared", metadata: ["device": "\(device)", "took_ms": "\(took.milliseconds)"])
        case .hears(let burst, let after, let really, let settledAfter):
            logger.log(
                level: really ? .info : .warning,
                really
                    ? "the microphone hears"
                    : "the microphone stays silent; capturing anyway (check whether it is muted or its Bluetooth link is down)",
                metadata: [
                    "device": "\(device)", "burst": "\(burst)", "after_start_ms": "\(after.milliseconds)",
                    "settled_ms": "\(settledAfter.map { "\($0.milliseconds)" } ?? "")",
                ])
        case .fellSilent(let burst):
            logger.warning(
                "the microphone gives no sound (check whether it is muted or its link is down)",
                metadata: ["device": "\(device)", "burst": "\(burst)", "t": "\(Instant.now.nanoseconds)"])
        case .heardAgain(let burst):
            logger.notice(
                "the microphone gives sound again",
                metadata: ["device": "\(device)", "burst": "\(burst)", "t": "\(Instant.now.nanoseconds)"])
        case .lost(let error):
            logger.warning("microphone lost; retrying: \(error)")
        case .resumed(let gap):
            logger.notice("microphone recovered", metadata: ["gap_ms": "\(gap.milliseconds)"])
        case .began(let burst, let first, let after):
            logger.info(
                "capture began",
                metadata: [
                    "t": "\(first.nanoseconds)", "burst": "\(burst)", "after_start_ms": "\(after.milliseconds)",
                ])
        case .frame(let frame):
            if frame.isFirst || frame.isLast {
                logger.debug(
                    frame.isFirst ? "first frame" : "last frame",
                    metadata: [
                        "t": "\(Instant.now.nanoseconds)", "burst": "\(frame.burst)",
                        "captured": "\(frame.capturedAt.nanoseconds)", "bytes": "\(frame.payload.count)",
                    ])
            }
        case .ended(let burst, let reason):
            let counts = statistics
            let each = counts.encoding.milliseconds * 1000 / Double(max(1, counts.frames))
            logger.info(
                "capture ended",
                metadata: [
                    "t": "\(Instant.now.nanoseconds)", "burst": "\(burst)", "reason": "\(reason)",
                    "encode_us": "\(each)",
                ])
        case .failed(let error):
            logger.error("microphone failed: \(error)", metadata: ["t": "\(Instant.now.nanoseconds)"])
        }
    }
}
