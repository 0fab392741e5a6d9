import Glibc
// The speaker as the other modules see it: packets, tones and commands in, events out. The work is the worker's.
import Logging
import MonotonicTime
import Synchronization
import Vocabulary

/// How the speaker is used.
public struct PlaybackConfiguration: Sendable {
    /// The device's period that is asked for; the device may give another.
    public var period = Duration.microseconds(2_500)
    /// The least sound that is kept queued in the device; it grows when that is empty again and again (`QueueDepth`).
    public var deviceQueue = Duration.milliseconds(5)
    /// How long received packets wait for later ones.
    public var jitter = JitterBufferSettings()
    /// Whether the device is closed, not just stopped, while nothing plays. Opening costs time at the next burst.
    public var closeWhenIdle = false
    /// Whether the device runs, with silence, from `prepare()` or the first sound on. It keeps a Bluetooth link up.
    public var keepsRunning = false
    /// WAV files only: whether a sound's place in the file is its time since the engine was made (gaps are silence).
    /// Otherwise the file holds only what was played, one sound after the other.
    public var recordingKeepsTime = true
    /// The tones' loudness, 0…1.
    public var toneVolume: Float = 0.25
    /// Where the microphone learns what is played (`CaptureConfiguration.echoOf`); nil: nowhere.
    public var played: PlayedSound?

    /// 2.5 ms periods, at least 5 ms queued, device kept open.
    public init() {}
}

/// Why a received burst is over.
public enum PlaybackEnd: Sendable, BitwiseCopyable {
    /// All of it was played, up to the last sequence number that `end` named.
    case complete
    /// Nothing came any more, and no end was named (or not all up to it).
    case silence
    /// The next burst began.
    case superseded
    /// `flush()` or `close()`.
    case flushed
    /// The device failed.
    case deviceFailed
}

/// Counts of received speech: of one burst in `PlaybackEvent.ended`, since the engine was made in `statistics`.
public struct PlaybackStatistics: Sendable, Equatable, BitwiseCopyable {
    /// Packets accepted into the jitter buffer.
    public var received = 0
    /// Packets decoded.
    public var played = 0
    /// Sequence numbers that never came in time and were passed over.
    public var lost = 0
    /// Of those, how many the next packet's copy (FEC) stood in for.
    public var recovered = 0
    /// Packets that came when their time was over.
    public var late = 0
    /// Packets that had come before.
    public var duplicate = 0
    /// Packets that are no Opus, are too long, or did not decode.
    public var malformed = 0
    /// Packets dropped because the engine or its buffer was full.
    public var dropped = 0
    /// Samples (48 kHz) invented in place of missing ones, or to wait for late ones.
    public var concealedSamples = 0
    /// Packets among those received that were sent again.
    public var repaired = 0
    /// Gaps that were waited for, because repair could close them.
    public var awaitedGaps = 0
    /// Samples taken out to catch up.
    public var acceleratedSamples = 0
    /// Samples put in to wait longer for what follows.
    public var expandedSamples = 0
    /// Times the device ran empty.
    public var underruns = 0
    /// The jitter buffer's present target, in milliseconds.
    public var targetMilliseconds = 0
    /// How much faster the talker's sound card runs than the speaker's, in parts per million, as far as it is
    /// corrected.
    public var driftPartsPerMillion = 0
    /// Packets that wait at present in the jitter buffer that holds the most.
    public var held = 0
}

/// What comes out of a `PlaybackEngine`, in order.
public enum PlaybackEvent: Sendable {
    /// The device is open; `took` is how long opening lasted.
    case prepared(took: Duration)
    /// A burst's first sample was handed to the device, on a voice. It is (or was) at the speaker at `firstSampleAt`, which is the
    /// device's own `delay` after the handing over; its packet was received at `receivedAt`.
    case began(voice: Int, burst: UInt32, firstSampleAt: Instant, delay: Duration, receivedAt: Instant)
    /// The burst's last sample was handed to the device, and leaves the speaker at `lastSampleAt`.
    case ended(voice: Int, burst: UInt32, PlaybackEnd, PlaybackStatistics, lastSampleAt: Instant)
    /// The tone's first sample is at the speaker at `firstSampleAt`.
    case toneBegan(Tone, firstSampleAt: Instant)
    /// The tone's last sample leaves the speaker at `lastSampleAt`.
    case toneEnded(Tone, lastSampleAt: Instant)
    /// The tone is not heard: too many sound already, or the device failed a moment ago.
    case toneDropped(Tone)
    /// The prompt of this number has been handed to the device, or was cut off or dropped.
    case promptEnded(number: UInt32)
    /// The device is lost within a sound, which waits for it: it is opened again and again for 1.5 s.
    case lost(AudioError)
    /// The device failed; what was playing has ended. What comes within the next second is dropped and counted, and the end of a burst is
    /// told as soon as it is named; what comes later tries the device again.
    case failed(AudioError)
}

/// Voices, tones and a speaker on a thread of their own. Each voice is a jitter buffer and an Opus decoder; what sounds on several at
/// once is mixed.
///
/// The thread sleeps, and the device stands still, while nothing plays. Commands return at once and are called from one
/// thread at a time (the owner's loop). Watch `descriptor` for reading and call `drain` then.
///
///     let speaker = try PlaybackEngine(device: AudioDevice("default"), logger: logger)
///     loop.watch(speaker.descriptor, for: .readable) { _ in speaker.drain { handle($0) } }
///     speaker.play(.microphoneOn)
///     speaker.enqueue(packet)                   // for each received packet
///     speaker.end(lastSequence: 4711)           // when the talker's end is announced
public final class PlaybackEngine: Sendable {
    /// How many are heard at once: as many as a relay lets talk.
    public static let voicesMax = 4

    /// The speaker.
    public let device: AudioDevice
    private let worker: PlaybackWorker
    private let thread: RealTimeThread
    private let logger: Logger
    private let closed = Atomic<Bool>(false)

    /// Makes the engine and its sleeping thread. An ALSA device is not opened; a WAV file is made.
    ///
    /// - Parameter predecessor: The end of an engine that may hold the device still. Commands wait for it.
    /// - Throws: `AudioError` when the file cannot be made or the process has no thread or descriptor left.
    public init(
        device: AudioDevice, configuration: PlaybackConfiguration = .init(), after predecessor: AudioThreadEnd? = nil,
        logger: Logger
    ) throws(AudioError) {
        self.device = device
        self.logger = logger
        // All are made before they are needed: the thread allocates nothing.
        var speech: [SpeechRenderer] = []
        for _ in 0..<Self.voicesMax { speech.append(try SpeechRenderer(configuration.jitter, decoder: OpusDecoder())) }
        do throws(AudioFault) {
            let sink = try makePlaybackSink(device, configuration: configuration)
            worker = try PlaybackWorker(sink: sink, speech: speech, configuration: configuration)
            let worker = self.worker
            thread = try RealTimeThread(name: "ptt-playback", after: predecessor) { worker.run() }
        } catch {
            throw AudioError(error, device: device)
        }
        if thread.priorityError != 0 {
            logger.debug(
                "playback runs without real-time priority; allow it by LimitRTPRIO= (systemd) or limits.d(5)",
                metadata: ["errno": "\(thread.priorityError)"])
        }
        if let origin = recordingOrigin {
            logger.info("recording to \(device)", metadata: ["t": "\(origin.nanoseconds)"])
        }
    }

    deinit { close() }

    /// Readable when `drain` has something to give.
    public var descriptor: Int32 { worker.rings.eventReady.descriptor }

    /// When the first sample of the WAV file is (with `recordingKeepsTime`): sample n was heard n/48000 s later. Nil for
    /// an ALSA device.
    public var recordingOrigin: Instant? { worker.recordingOrigin }

    /// Opens and configures the device, so that the first burst finds it ready. `prepared` or `failed` follows.
    public func prepare() { worker.rings.command(.prepare) }

    /// Accepts a received packet for a voice (0 ..< `voicesMax`).
    ///
    /// - Returns: `false` when it was dropped and counted, because it is longer than an Opus packet or the queue is
    ///   full.
    @discardableResult
    public func enqueue(_ packet: ReceivedFrame, voice: Int = 0) -> Bool {
        worker.rings.enqueue(packet, voice: Self.checked(voice))
    }

    /// Says that the burst on a voice ends with `lastSequence`: once that was played, or is overdue, the burst is over.
    public func end(lastSequence: UInt16, voice: Int = 0) {
        worker.rings.command(.end(voice: Self.checked(voice), lastSequence: lastSequence))
    }

    /// Discards all speech of a voice that was not handed to the device yet.
    public func flush(voice: Int) { worker.rings.command(.flushVoice(Self.checked(voice))) }

    private static func checked(_ voice: Int) -> UInt8 {
        precondition((0..<voicesMax).contains(voice), "there is no voice \(voice)")
        return UInt8(voice)
    }

    /// Discards all speech and tones that were not handed to the device yet.
    public func flush() { worker.rings.command(.flush) }

    /// Plays a tone, over whatever is playing.
    public func play(_ tone: Tone) { worker.rings.command(.play(tone)) }

    /// Plays a prompt over whatever is playing, in the place of the prompt before it. `promptEnded` follows.
    ///
    /// - Parameter number: Names the prompt; a different one for each.
    /// - Returns: `false` when it is not played, because the queue is full.
    public func play(_ prompt: PromptSound, number: UInt32) -> Bool { worker.rings.play(prompt, number: number) }

    /// Lets the prompt that is playing fade out within 10 ms.
    public func stopPrompt() { worker.rings.command(.stopPrompt) }

    /// Takes all events since the last call. On the owner's thread, when `descriptor` is readable.
    public func drain(_ handler: (PlaybackEvent) -> Void) {
        worker.rings.eventReady.clear()
        while let slot = worker.rings.next() {
            if case .resumed(let gap) = slot {
                logger.notice("speaker recovered", metadata: ["gap_ms": "\(gap.milliseconds)"])
            }
            guard let event = slot.event(device: device) else { continue }
            if case .promptEnded(let number) = event { worker.rings.ended(prompt: number) }
            log(event)
            handler(event)
        }
    }

    /// Counts since the engine was made. From any thread.
    public var statistics: PlaybackStatistics { worker.rings.statistics }

    /// Packets that wait in the jitter buffers of all voices, as of the last block; each takes `JitterBufferStateMachine.slotCount` at
    /// most, and drops what is more. From any thread.
    public var packetsHeld: Int { worker.rings.packetsHeld }

    /// The engine's thread, for a service that can give it real-time priority.
    public var realTimeThread: RealTimeThreadInfo { thread.information }

    /// Whether the device runs at this moment. From any thread.
    public var isPlaying: Bool { worker.rings.isRunning }

    /// Has the device closed, a WAV file completed, and the thread end; returns at once. Nothing can be done with the engine
    /// afterwards.
    public func close() {
        guard closed.exchange(true, ordering: .relaxed) == false else { return }
        worker.rings.shutDown()
    }

    /// When the device is closed and the thread has ended, after `close()`.
    public var end: AudioThreadEnd { thread.end }

    private func log(_ event: PlaybackEvent) {
        switch event {
        case .prepared(let took):
            logger.debug("speaker prepared", metadata: ["device": "\(device)", "took_ms": "\(took.milliseconds)"])
        case .began(let voice, let burst, let first, let delay, let receivedAt):
            logger.info(
                "playback began",
                metadata: [
                    "t": "\(first.nanoseconds)", "voice": "\(voice)", "burst": "\(burst)",
                    "device_delay_ms": "\(delay.milliseconds)",
                    "after_packet_ms": "\((first - receivedAt).milliseconds)",
                    "jitter_wait_ms": "\((first - receivedAt - delay).milliseconds)",
                ])
        case .ended(let voice, let burst, let reason, let counts, let last):
            logger.info(
                "playback ended",
                metadata: [
                    "t": "\(last.nanoseconds)", "voice": "\(voice)", "burst": "\(burst)", "reason": "\(reason)",
                    "played": "\(counts.played)", "lost": "\(counts.lost)", "late": "\(counts.late)",
                    "repaired": "\(counts.repaired)", "awaited_gaps": "\(counts.awaitedGaps)",
                    "accelerated_ms": "\(counts.acceleratedSamples * 1000 / audioClockRate)",
                    "expanded_ms": "\(counts.expandedSamples * 1000 / audioClockRate)",
                    "drift_ppm": "\(counts.driftPartsPerMillion)",
                    "concealed_ms": "\(counts.concealedSamples * 1000 / audioClockRate)",
                    "underruns": "\(counts.underruns)", "target_ms": "\(counts.targetMilliseconds)",
                ])
        case .toneBegan(let tone, let first):
            logger.debug("tone", metadata: ["t": "\(first.nanoseconds)", "tone": "\(tone)"])
        case .toneEnded, .toneDropped, .promptEnded: break
        case .lost(let error): logger.warning("speaker lost; retrying: \(error)")
        case .failed(let error):
            logger.error("speaker failed: \(error)", metadata: ["t": "\(Instant.now.nanoseconds)"])
        }
    }
}
