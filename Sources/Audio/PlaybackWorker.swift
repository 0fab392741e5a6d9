// The playback thread: carries packets to the renderer, and its sound and the tones to the device.
import MonotonicTime
import Synchronization

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

/// What the owner puts into the playback ring. A packet's payload is the slot's.
enum PlaybackCommand: BitwiseCopyable {
    case packet(sequence: UInt16, timestamp: UInt32, marker: Bool, receivedAt: Int64, isRepaired: Bool)
    case end(lastSequence: UInt16)
    case flush
    case play(Tone)
    case prepare
}

/// One slot of the ring of events.
struct PlaybackSlot: BitwiseCopyable {
    enum Kind: UInt8, BitwiseCopyable { case prepared, began, ended, toneBegan, toneEnded, failed }

    var kind: Kind
    var tone = Tone.micOn
    var end = PlaybackEnd.complete.rawValue
    var fault = AudioFault(.open, 0)
    var burst: UInt32 = 0
    var time: Int64 = 0
    var span: Int64 = 0
    var receivedAt: Int64 = 0
    var counts = PlaybackStatistics()
}

/// The part of the engine that the thread runs. While it plays it allocates nothing and takes no lock.
final class PlaybackWorker: @unchecked Sendable {
    /// Packets and commands that wait for the thread: it takes them with every block, and later only while it opens a
    /// device. As many packets as a repaired gap of 2 s and held speech of 1 s bring at once.
    static let commandsMax = 320
    /// Slots that packets leave free for commands.
    private static let commandsReserve = 8
    private static let eventsMax = 64
    /// Silence played after the last sound before the device stops, beyond what the device holds: the next burst or
    /// tone often follows soon.
    private static let hangover = Duration.milliseconds(60)
    private static let stallMax = Duration.seconds(2)
    private static let tonesMax = 4
    /// A device that failed is left alone for so long, whatever comes for it: else it would fail with every packet.
    private static let retryAfter = Duration.seconds(1)

    let eventReady: WakeDescriptor
    let recordingOrigin: Instant?
    private let wake: WakeDescriptor
    private let commands = SPSCRing<PlaybackCommand>(capacity: commandsMax, payloadCapacity: opusPayloadMax)
    private let events = SPSCRing<PlaybackSlot>(capacity: eventsMax, payloadCapacity: 0)
    private let shutdown = Atomic<Bool>(false)
    private let running = Atomic<Bool>(false)
    private let refused = Atomic<Int>(0)
    private let published = PublishedStatistics()

    // The thread's own from here on.
    private let sink: any PlaybackSink
    private let speech: SpeechRenderer
    private let closeWhenIdle: Bool
    private let tones: [[Float]]
    private var tonesPlaying: [(tone: Tone, position: Int)] = []
    /// The speaker's clock against this machine's.
    private var speakerClock = ClockSlope()
    private var samplesWritten: Int64 = 0
    private let block: UnsafeMutablePointer<Float>
    private var isOpen = false
    private var underrunsSeen = 0
    private var counts = PlaybackStatistics()
    private var countsAtBurst = PlaybackStatistics()
    private var silentSince = Instant.zero
    private var lastWriteAt = Instant.zero
    private var retryAt = Instant.zero

    init(sink: any PlaybackSink, speech: SpeechRenderer, configuration: PlaybackConfiguration) throws(AudioFault) {
        self.sink = sink
        self.speech = speech
        closeWhenIdle = configuration.closeWhenIdle
        recordingOrigin = sink.recordingOrigin
        eventReady = try WakeDescriptor()
        wake = try WakeDescriptor()
        let volume = min(1, max(0, configuration.toneVolume))
        tones = Tone.allCases.map { $0.samples(volume: volume) }
        tonesPlaying.reserveCapacity(Self.tonesMax)
        block = .allocate(capacity: playbackBlock)
        block.initialize(repeating: 0, count: playbackBlock)
    }

    deinit {
        block.deallocate()
    }

    // MARK: The owner's side

    func enqueue(_ packet: ReceivedPacket) -> Bool {
        let command = PlaybackCommand.packet(
            sequence: packet.sequence, timestamp: packet.timestamp, marker: packet.marker,
            receivedAt: packet.receivedAt.nanoseconds, isRepaired: packet.isRepaired)
        let taken = packet.payload.withUnsafeBytes { commands.push(command, $0, reserve: Self.commandsReserve) }
        if !taken { refused.add(1, ordering: .relaxed) }
        wake.signal()
        return taken
    }

    func command(_ command: PlaybackCommand) {
        if !commands.push(command) { refused.add(1, ordering: .relaxed) }
        wake.signal()
    }

    func shutDown() {
        shutdown.store(true, ordering: .releasing)
        wake.signal()
    }

    var isRunning: Bool { running.load(ordering: .acquiring) }

    var statistics: PlaybackStatistics {
        var counts = published.load()
        counts.dropped += refused.load(ordering: .relaxed)
        return counts
    }

    func nextEvent(device: AudioDevice) -> PlaybackEvent? {
        events.pop { slot, _ in
            let time = Instant(nanoseconds: slot.time)
            return switch slot.kind {
            case .prepared: .prepared(took: .nanoseconds(slot.span))
            case .began:
                .began(
                    burst: slot.burst, firstSampleAt: time, delay: .nanoseconds(slot.span),
                    receivedAt: Instant(nanoseconds: slot.receivedAt))
            case .ended:
                .ended(
                    burst: slot.burst, PlaybackEnd(rawValue: slot.end) ?? .deviceFailed, slot.counts,
                    lastSampleAt: time)
            case .toneBegan: .toneBegan(slot.tone, firstSampleAt: time)
            case .toneEnded: .toneEnded(slot.tone, lastSampleAt: time)
            case .failed: .failed(AudioError(slot.fault, device: device))
            }
        }
    }

    // MARK: The thread

    func run() {
        while !shutdown.load(ordering: .acquiring) {
            takeCommands()
            if running.load(ordering: .relaxed) {
                play()
            } else if hasSound {
                if Instant.now < retryAt { discard() } else { startDevice() }
            } else {
                wake.wait()
            }
        }
        let burst = speech.jitter.burst
        if speech.flush(at: .now) { ended(.flushed, burst: burst, at: .now) }
        if running.load(ordering: .relaxed) { stopDevice() }
        sink.close()
    }

    private var hasSound: Bool { !speech.isIdle || !tonesPlaying.isEmpty }

    private func takeCommands() {
        while commands.pop({ command, payload in take(command, payload) }) != nil {}
    }

    private func take(_ command: PlaybackCommand, _ payload: UnsafeRawBufferPointer) {
        switch command {
        case .packet(let sequence, let timestamp, let marker, let receivedAt, let isRepaired):
            let isOpus = speech.insert(
                sequence: sequence, timestamp: timestamp, marker: marker, payload: payload,
                receivedAt: Instant(nanoseconds: receivedAt), isRepaired: isRepaired)
            guard !isOpus else { return }
            counts.malformed += 1
            published.store(total)
        case .end(let lastSequence): speech.end(lastSequence: lastSequence)
        case .flush:
            let burst = speech.jitter.burst
            if discard() { ended(.flushed, burst: burst, at: .now) }
        case .play(let tone):
            if tonesPlaying.count < Self.tonesMax { tonesPlaying.append((tone, 0)) } else { counts.dropped += 1 }
        case .prepare: if !isOpen { _ = openDevice() }
        }
    }

    private func openDevice() -> Bool {
        let began = Instant.now
        do throws(AudioFault) {
            try sink.open()
        } catch {
            failed(error)
            return false
        }
        isOpen = true
        var slot = PlaybackSlot(kind: .prepared)
        slot.span = (Instant.now - began).nanoseconds
        put(slot)
        return true
    }

    private func startDevice() {
        guard isOpen || openDevice() else { return }
        do throws(AudioFault) {
            try sink.start()
        } catch {
            failed(error)
            return
        }
        underrunsSeen = sink.underruns
        speakerClock.restart()
        samplesWritten = 0
        lastWriteAt = .now
        silentSince = .now
        running.store(true, ordering: .releasing)
    }

    private func play() {
        do throws(AudioFault) {
            guard try sink.waitForRoom() else {
                if Instant.now - lastWriteAt > Self.stallMax { throw AudioFault(.stall, 0) }
                return
            }
            takeCommands()
            render()
            try sink.write(block)
        } catch {
            failed(error)
            return
        }
        lastWriteAt = .now
        if sink.underruns != underrunsSeen {
            counts.underruns += sink.underruns - underrunsSeen
            underrunsSeen = sink.underruns
            speakerClock.restart()
        }
        published.store(total)
        if hasSound {
            silentSince = lastWriteAt
        } else if lastWriteAt - silentSince > sink.delay + Self.hangover {
            stopDevice()
        }
    }

    private func stopDevice() {
        if closeWhenIdle {
            sink.close()
            isOpen = false
        } else {
            sink.stop()
        }
        running.store(false, ordering: .releasing)
    }

    private func render() {
        // What is written now is heard after what the device holds.
        let now = Instant.now
        let deviceDelay = sink.delay
        let heardAt = now + deviceDelay
        speakerClock.observe(
            heardAt.nanoseconds - CaptureStateMachine.duration(samplesWritten).nanoseconds, at: now.nanoseconds)
        speech.speakerPartsPerMillion = -speakerClock.partsPerMillion
        speech.render(into: block, count: playbackBlock, at: now) { event in
            switch event {
            case .began(let burst, let receivedAt, let offset):
                var slot = PlaybackSlot(kind: .began)
                slot.burst = burst
                slot.time = (heardAt + CaptureStateMachine.duration(Int64(offset))).nanoseconds
                slot.span = deviceDelay.nanoseconds
                slot.receivedAt = receivedAt.nanoseconds
                put(slot)
            case .ended(let reason, let burst, let offset):
                ended(reason, burst: burst, at: heardAt + CaptureStateMachine.duration(Int64(offset)))
            }
        }
        mixTones(heardAt)
        samplesWritten += Int64(playbackBlock)
    }

    private func mixTones(_ heardAt: Instant) {
        var index = 0
        while index < tonesPlaying.count {
            let (tone, position) = tonesPlaying[index]
            let isOver = tones[Int(tone.rawValue)].withUnsafeBufferPointer { samples in
                let count = min(playbackBlock, samples.count - position)
                for offset in 0..<count { block[offset] += samples[position + offset] }
                return position + count >= samples.count
            }
            var slot = PlaybackSlot(kind: .toneBegan)
            slot.tone = tone
            slot.time = heardAt.nanoseconds
            if position == 0 { put(slot) }
            tonesPlaying[index].position += playbackBlock
            if isOver {
                tonesPlaying.remove(at: index)
                slot.kind = .toneEnded
                slot.time = (heardAt + CaptureStateMachine.duration(Int64(playbackBlock))).nanoseconds
                put(slot)
            } else {
                index += 1
            }
        }
    }

    private var total: PlaybackStatistics {
        var sum = speech.statistics
        sum.malformed += counts.malformed
        sum.dropped += counts.dropped
        sum.underruns = counts.underruns
        return sum
    }

    private func ended(_ reason: PlaybackEnd, burst: UInt32, at time: Instant) {
        var slot = PlaybackSlot(kind: .ended)
        slot.burst = burst
        slot.end = reason.rawValue
        slot.time = time.nanoseconds
        let counted = total
        slot.counts = counted.since(countsAtBurst)
        countsAtBurst = counted
        put(slot)
    }

    private func failed(_ fault: AudioFault) {
        sink.close()
        isOpen = false
        running.store(false, ordering: .releasing)
        retryAt = .now + Self.retryAfter
        var slot = PlaybackSlot(kind: .failed)
        slot.fault = fault
        put(slot)
        let burst = speech.jitter.burst
        if discard() { ended(.deviceFailed, burst: burst, at: .now) }
    }

    /// Drops all that was to be played; returns whether a burst was among it.
    @discardableResult
    private func discard() -> Bool {
        counts.dropped += tonesPlaying.count
        tonesPlaying.removeAll(keepingCapacity: true)
        let wasBurst = speech.flush(at: .now)
        published.store(total)
        return wasBurst
    }

    private func put(_ slot: PlaybackSlot) {
        if !events.push(slot) { counts.dropped += 1 }
        eventReady.signal()
    }
}
