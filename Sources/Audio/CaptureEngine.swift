// The microphone as the rest of the house sees it: commands in, encoded frames and events out. The work is the worker's.
import Logging
import MonotonicTime
import Synchronization

/// How the microphone is used.
public struct CaptureConfiguration: Sendable {
    /// How speech is encoded.
    public var opus = OpusSettings()
    /// The device's period that is asked for; the device may give another.
    public var period = Duration.microseconds(2_500)

    /// 2.5 ms periods, Opus as `OpusSettings()`.
    public init() {}
}

/// Why a burst of captured speech is over.
public enum CaptureEnd: UInt8, Sendable {
    /// Stopped, and the tail was captured.
    case stopped
    /// `start()` came before the end of the tail: a new burst goes on from here.
    case restarted
    /// Aborted: what was not taken yet is void, and no last frame comes.
    case aborted
    /// The device failed; the last frame was flagged.
    case deviceFailed
    /// The engine was closed; no last frame comes.
    case closed
}

/// What comes out of a `CaptureEngine`, in order.
public enum CaptureOutput: Sendable {
    /// The device is open and waits for `start()`; `took` is how long opening lasted.
    case prepared(took: Duration)
    /// The device runs: its first sample was at the microphone at `firstSampleAt`, `after` the call of `start()`.
    case began(burst: UInt32, firstSampleAt: Instant, after: Duration)
    /// A frame.
    case frame(EncodedFrame)
    /// The burst is over: the device has been stopped, and nothing more comes of it. Comes once for every `start()`.
    case ended(burst: UInt32, CaptureEnd)
    /// The device failed. `ended` of a burst that was going on follows.
    case failed(AudioError)
}

/// Counts since the engine was made.
public struct CaptureStatistics: Sendable, Equatable {
    /// Frames put out.
    public var frames = 0
    /// Frames dropped because the owner did not take them. Their `position` is skipped.
    public var framesDropped = 0
    /// Overruns and suspensions recovered from; samples were lost.
    public var overruns = 0
    /// Times the device was set running.
    public var deviceStarts = 0
    /// Times the device was stopped; equals `deviceStarts` whenever no burst is going on (I1).
    public var deviceStops = 0
}

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
    /// - Throws: `AudioError` when the WAV file cannot be used or the process has no thread or descriptor left.
    public init(device: AudioDevice, configuration: CaptureConfiguration = .init(), logger: Logger) throws(AudioError) {
        self.device = device
        self.logger = logger
        let encoder = try OpusEncoder(configuration.opus)
        do throws(AudioFault) {
            let source = try makeCaptureSource(device, period: configuration.period)
            worker = try CaptureWorker(
                source: source, encoder: encoder, frameSamples: configuration.opus.frameDuration.samples)
            let worker = self.worker
            thread = try RealTimeThread(name: "ptt-capture") { worker.run() }
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
    public var descriptor: Int32 { worker.outputReady.descriptor }

    /// Opens and configures the device, so that `start()` finds it ready. `prepared` or `failed` follows.
    ///
    /// Through a sound server this may show a "microphone in use" mark, and a hardware device is then taken from others.
    public func prepare() { worker.command(.prepare) }

    /// Closes the device again; not while a burst is going on (then nothing happens).
    public func unprepare() { worker.command(.unprepare) }

    /// Captures from now on, opening the device first where it is not. `began`, frames and `ended` follow, or `failed`
    /// and `ended`.
    ///
    /// A burst that is still going on ends here with its last frame (`restarted`), and the device runs on.
    ///
    /// - Returns: The burst's number.
    @discardableResult
    public func start() -> UInt32 {
        let burst = nextBurst.wrappingAdd(1, ordering: .relaxed).oldValue
        worker.command(.start(burst: burst, at: Instant.now.nanoseconds))
        return burst
    }

    /// Ends the burst `tail` from now: the last 5 ms fade out, the last frame is flagged, the device stops.
    public func stop(tail: Duration = CaptureEngine.tailDefault) {
        worker.command(.stop(end: (Instant.now + max(.zero, tail)).nanoseconds))
    }

    /// Ends the burst at once, without tail and without a last frame; what was captured and not encoded is erased.
    public func abort() { worker.command(.abort) }

    /// Takes all that has come out since the last call. On the owner's thread, when `descriptor` is readable.
    public func drain(_ handler: (CaptureOutput) -> Void) {
        worker.outputReady.clear()
        while let output = worker.nextOutput(device: device) {
            log(output)
            handler(output)
        }
    }

    /// Counts since the engine was made. From any thread.
    public var statistics: CaptureStatistics { worker.statistics }

    /// The engine's thread, for who can give it real-time priority.
    public var realTimeThread: RealTimeThreadInfo { thread.information }

    /// Whether the device runs at this moment. From any thread.
    public var isCapturing: Bool { worker.isRunning }

    /// Stops and closes the device and ends the thread. Nothing can be done with the engine afterwards.
    public func close() {
        guard closed.exchange(true, ordering: .relaxed) == false else { return }
        worker.shutDown()
        if !thread.join() {
            logger.error("\(AudioError.unresponsive(device.description))", metadata: ["device": "\(device)"])
        }
    }

    private func log(_ output: CaptureOutput) {
        switch output {
        case .prepared(let took):
            logger.debug(
                "microphone prepared", metadata: ["device": "\(device)", "took_ms": "\(took.milliseconds)"])
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
                        "captured": "\(frame.captureTime.nanoseconds)", "bytes": "\(frame.payload.count)",
                    ])
            }
        case .ended(let burst, let reason):
            logger.info(
                "capture ended",
                metadata: ["t": "\(Instant.now.nanoseconds)", "burst": "\(burst)", "reason": "\(reason)"])
        case .failed(let error):
            logger.error("microphone failed: \(error)", metadata: ["t": "\(Instant.now.nanoseconds)"])
        }
    }
}
