// A try of a microphone and a speaker: records, closes the microphone, and plays the recording back.
import Glibc
import MonotonicTime
import Synchronization

/// What a device agreed to.
public struct SoundDeviceForm: Sendable, Equatable {
    /// Samples a second.
    public var rate: Int
    /// Channels.
    public var channels: Int

    /// A form.
    public init(rate: Int, channels: Int) { (self.rate, self.channels) = (rate, channels) }
}

/// What a device did in a try.
public struct SoundDeviceReport: Sendable, Equatable {
    /// Its rate and channels; nil where they cannot be found out.
    public var form: SoundDeviceForm?
    /// From the call that opens it to its first sample: at the microphone, or heard.
    public var firstSample = Duration.zero
    /// Times that samples were lost, or that it ran empty.
    public var interruptions = 0

    /// Of a device that has done nothing yet.
    public init() {}
}

/// Tries a microphone and a speaker on a thread of its own, once.
///
/// The microphone is open while it records, and not before or after. A microphone that gives nothing that can be played leaves a
/// tone for the speaker. Nothing is written to disk, unless the speaker is a WAV file.
public final class SoundCheck: Sendable {
    /// What comes of it, in this order: `level` while it records, `heard` or `failed`, `played` or `failed`, `ended`.
    public enum Event: Sendable {
        /// The loudness at this moment, in dBFS, about ten times a second.
        case level(Float)
        /// The recording is over and the microphone closed.
        case heard(SoundLevels, SoundDeviceReport)
        /// The speaker begins; `isTone`: with a tone in place of the recording.
        case plays(isTone: Bool)
        /// The speaker has played all, and is closed.
        case played(SoundDeviceReport)
        /// A device cannot be used; it is closed.
        case failed(AudioDevice.Use, AudioError)
        /// Nothing more comes; both devices are closed.
        case ended
    }

    /// How long it may record.
    public static let lengths: ClosedRange<Duration> = .milliseconds(500) ... .seconds(60)
    /// How long the first sample is waited for. A Bluetooth link takes up to 1.5 s to run.
    private static let firstSampleMax = Duration.seconds(3)
    private static let period = Duration.milliseconds(10)
    private static let levelEvery = Duration.milliseconds(100)
    /// What a speaker that holds more than this at the end has left to play is not waited for.
    private static let restMax = Duration.seconds(1)

    private let (microphone, speaker): (AudioDevice, AudioDevice)
    private let samplesWanted: Int
    private let handler: @Sendable (Event) -> Void
    private let isStopped = Atomic<Bool>(false)
    private let thread = Mutex<RealTimeThread?>(nil)

    /// A try that has not begun. `length` is brought into `lengths`; `handler` is called on the thread of the try.
    public init(
        microphone: AudioDevice, speaker: AudioDevice, length: Duration, handler: @escaping @Sendable (Event) -> Void
    ) {
        (self.microphone, self.speaker) = (microphone, speaker)
        let length = min(Self.lengths.upperBound, max(Self.lengths.lowerBound, length))
        samplesWanted = Int(CaptureStateMachine.samples(length))
        self.handler = handler
    }

    /// Begins. Call it once.
    ///
    /// - Throws: `AudioError` when there is no thread for it.
    public func start() throws(AudioError) {
        do throws(AudioFault) {
            let made = try RealTimeThread(name: "sound-check") { [self] in
                run()
                handler(.ended)
            }
            thread.withLock { $0 = made }
        } catch {
            throw AudioError(error, device: microphone)
        }
    }

    /// Ends it early: both devices are closed within a tenth of a second, and `ended` follows. From any thread.
    public func stop() { isStopped.store(true, ordering: .releasing) }

    /// Waits until the devices are closed; false when a driver or a server keeps them for longer than `AudioThreadEnd.limit`.
    public func waitForEnd() -> Bool { thread.withLock { $0 }?.end.wait() ?? true }

    private var goesOn: Bool { !isStopped.load(ordering: .acquiring) }

    private func run() {
        var sound: [Float] = []
        do throws(AudioFault) {
            sound = try record()
        } catch {
            if goesOn { handler(.failed(.microphone, AudioError(error, device: microphone))) }
        }
        guard goesOn else { return }
        let isTone = sound.isEmpty
        handler(.plays(isTone: isTone))
        do throws(AudioFault) {
            if let report = try play(isTone ? Self.tone : sound) { handler(.played(report)) }
        } catch {
            if goesOn { handler(.failed(.speaker, AudioError(error, device: speaker))) }
        }
    }

    // MARK: The microphone

    /// What was recorded; empty when it is nothing to be played.
    private func record() throws(AudioFault) -> [Float] {
        let source = try makeCaptureSource(microphone, period: Self.period)
        defer { source.close() }
        let began = Instant.now
        try source.open()
        guard goesOn else { return [] }
        try source.start()
        var report = SoundDeviceReport()
        report.form = source.form
        var levels = SoundLevels()
        var sound: [Float] = []
        sound.reserveCapacity(samplesWanted)
        let scratch = UnsafeMutablePointer<Float>.allocate(capacity: source.readMax)
        defer { scratch.deallocate() }
        var deadline = Instant.now + Self.firstSampleMax
        var nextLevel = Instant.now
        while goesOn, sound.count < samplesWanted {
            let count = try source.read(into: scratch)
            guard count > 0 else {
                if .now >= deadline { throw AudioFault(.stall, ETIMEDOUT) }
                continue
            }
            if sound.isEmpty {
                let first = source.nextSampleTime - CaptureStateMachine.duration(Int64(count))
                report.firstSample = max(.zero, first - began)
            }
            // A device that gives nothing for so long has stalled.
            deadline = .now + StallClock.limit
            let taken = UnsafeBufferPointer(start: scratch, count: min(count, samplesWanted - sound.count))
            sound.append(contentsOf: taken)
            levels.take(taken)
            if .now >= nextLevel {
                nextLevel = .now + Self.levelEvery
                handler(.level(levels.current))
            }
        }
        report.interruptions = source.recoveries
        source.close()
        guard goesOn else { return [] }
        handler(.heard(levels, report))
        return levels.verdict == .silence || levels.verdict == .nothing ? [] : sound
    }

    // MARK: The speaker

    /// Nil when it was stopped.
    private func play(_ sound: [Float]) throws(AudioFault) -> SoundDeviceReport? {
        var configuration = PlaybackConfiguration()
        configuration.recordingKeepsTime = false
        configuration.deviceQueue = .milliseconds(40)
        let sink = try makePlaybackSink(speaker, configuration: configuration)
        defer { sink.close() }
        let began = Instant.now
        try sink.open()
        guard goesOn else { return nil }
        try sink.start()
        var report = SoundDeviceReport()
        let block = UnsafeMutablePointer<Float>.allocate(capacity: playbackBlock)
        defer { block.deallocate() }
        var position = 0
        var end: Instant?
        var stall = StallClock()
        stall.moved(at: .now)
        while goesOn {
            // What the device holds after the last sample is played to its end, with silence behind it.
            if position >= sound.count, end == nil { end = .now + min(sink.delay, Self.restMax) }
            if let end, .now >= end { break }
            guard try sink.waitForRoom() else {
                if stall.movedNothing(at: .now) { throw AudioFault(.stall, ETIMEDOUT) }
                continue
            }
            stall.moved(at: .now)
            for index in 0..<playbackBlock {
                block[index] = position + index < sound.count ? sound[position + index] : 0
            }
            if position == 0 { report.firstSample = .now + sink.delay - began }
            try sink.write(block)
            position += playbackBlock
        }
        report.interruptions = sink.underruns
        report.form = sink.form
        sink.stop()
        sink.close()
        return goesOn ? report : nil
    }

    /// Half a second of 440 Hz at -20 dBFS, which begins and ends softly.
    private static var tone: [Float] {
        let (count, ramp) = (audioClockRate / 2, audioClockRate / 50)
        return (0..<count).map { index in
            let envelope = min(1, Float(min(index, count - 1 - index)) / Float(ramp))
            return 0.14 * envelope * sinf(2 * .pi * 440 * Float(index) / Float(audioClockRate))
        }
    }
}
