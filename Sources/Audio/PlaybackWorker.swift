// The playback thread: carries packets to the jitter buffer, its decisions to the decoder, sound and tones to the device.
import MonotonicTime
import Synchronization

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

/// What the owner puts into the playback ring. A packet's payload is the slot's.
enum PlaybackCommand: BitwiseCopyable {
    case packet(sequence: UInt16, timestamp: UInt32, marker: Bool, receivedAt: Int64)
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
    /// Packets and commands that wait for the thread: it takes them every 5 ms, and later only while it opens a device.
    static let commandsMax = 128
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
    private let decoder: OpusDecoder
    private let closeWhenIdle: Bool
    private let tones: [[Float]]
    private var tonesPlaying: [(tone: Tone, position: Int)] = []
    private var jitter: JitterBufferStateMachine
    private let decoded: UnsafeMutablePointer<Float>
    private var decodedPosition = 0
    private var decodedCount = 0
    private let block: UnsafeMutablePointer<Float>
    private var isOpen = false
    private var underrunsSeen = 0
    private var counts = PlaybackStatistics()
    private var countsAtBurst = PlaybackStatistics()
    private var silentSince = Instant.zero
    private var lastWriteAt = Instant.zero
    private var retryAt = Instant.zero

    init(sink: any PlaybackSink, decoder: OpusDecoder, configuration: PlaybackConfiguration) throws(AudioFault) {
        self.sink = sink
        self.decoder = decoder
        closeWhenIdle = configuration.closeWhenIdle
        recordingOrigin = sink.recordingOrigin
        eventReady = try WakeDescriptor()
        wake = try WakeDescriptor()
        jitter = JitterBufferStateMachine(configuration.jitter)
        let volume = min(1, max(0, configuration.toneVolume))
        tones = Tone.allCases.map { $0.samples(volume: volume) }
        tonesPlaying.reserveCapacity(Self.tonesMax)
        decoded = .allocate(capacity: OpusDecoder.samplesMax)
        decoded.initialize(repeating: 0, count: OpusDecoder.samplesMax)
        block = .allocate(capacity: playbackBlock)
        block.initialize(repeating: 0, count: playbackBlock)
    }

    deinit {
        decoded.deallocate()
        block.deallocate()
    }

    // MARK: The owner's side

    func enqueue(_ packet: ReceivedPacket) -> Bool {
        let command = PlaybackCommand.packet(
            sequence: packet.sequence, timestamp: packet.timestamp, marker: packet.marker,
            receivedAt: packet.receivedAt.nanoseconds)
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
        if jitter.flush(at: .now) { ended(.flushed, at: .now) }
        if running.load(ordering: .relaxed) { stopDevice() }
        sink.close()
    }

    private var hasSound: Bool { !jitter.isIdle || !tonesPlaying.isEmpty || decodedPosition < decodedCount }

    private func takeCommands() {
        while commands.pop({ command, payload in take(command, payload) }) != nil {}
    }

    private func take(_ command: PlaybackCommand, _ payload: UnsafeRawBufferPointer) {
        switch command {
        case .packet(let sequence, let timestamp, let marker, let receivedAt):
            guard let samples = OpusDecoder.samples(in: payload) else {
                counts.malformed += 1
                published.store(total)
                return
            }
            _ = jitter.insert(
                sequence: sequence, timestamp: timestamp, marker: marker, samples: samples, payload: payload,
                receivedAt: Instant(nanoseconds: receivedAt))
        case .end(let lastSequence): jitter.end(lastSequence: lastSequence)
        case .flush:
            let burst = jitter.burst
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
        var filled = 0
        while filled < playbackBlock {
            if decodedPosition < decodedCount {
                let part = min(playbackBlock - filled, decodedCount - decodedPosition)
                (block + filled).update(from: decoded + decodedPosition, count: part)
                decodedPosition += part
                filled += part
                continue
            }
            let offset = CaptureStateMachine.duration(Int64(filled))
            let burst = jitter.burst
            switch jitter.next(at: now + offset) {
            case .idle: filled += silence(from: filled, playbackBlock)
            case .wait(let samples): filled += silence(from: filled, samples)
            case .decode(let slot, let isFirst, let accelerate):
                decode(slot, isFirst: isFirst, accelerate: accelerate, heardAt: heardAt + offset, deviceDelay)
            case .conceal(let samples): hold(decoder.conceal(samples, into: decoded), of: samples)
            case .recover(let slot, let samples):
                hold(jitter.withPayload(slot) { decoder.recover(samples, from: $0, into: decoded) }, of: samples)
            case .ended(let reason): ended(reason, burst: burst, at: heardAt + offset)
            }
        }
        mixTones(heardAt)
    }

    private func silence(from start: Int, _ wanted: Int) -> Int {
        let count = min(playbackBlock - start, wanted)
        memset(block + start, 0, count * MemoryLayout<Float>.stride)
        return count
    }

    private func decode(_ slot: Int, isFirst: Bool, accelerate: Bool, heardAt: Instant, _ deviceDelay: Duration) {
        let packet = jitter.slots[slot]
        if isFirst {
            decoder.reset()
            var event = PlaybackSlot(kind: .began)
            event.burst = packet.burst
            event.time = heardAt.nanoseconds
            event.span = deviceDelay.nanoseconds
            event.receivedAt = packet.receivedAt.nanoseconds
            put(event)
        }
        let count = jitter.withPayload(slot) { decoder.decode($0, into: decoded) }
        guard count > 0 else {
            jitter.release(slot, decoded: false)
            hold(decoder.conceal(packet.samples, into: decoded), of: packet.samples)
            return
        }
        let left = accelerate ? TimeCompressor.shorten(decoded, count: count) : count
        jitter.release(slot, decoded: true, removedByAcceleration: count - left)
        hold(left, of: left)
    }

    /// Makes `count` decoded samples the next to be played; silence of `samples` where the decoder could not.
    private func hold(_ count: Int, of samples: Int) {
        if count <= 0 { memset(decoded, 0, samples * MemoryLayout<Float>.stride) }
        decodedCount = count > 0 ? count : samples
        decodedPosition = 0
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
                slot.time = (heardAt + .milliseconds(5)).nanoseconds
                put(slot)
            } else {
                index += 1
            }
        }
    }

    private var total: PlaybackStatistics {
        var sum = jitter.statistics
        sum.malformed += counts.malformed
        sum.dropped += counts.dropped
        sum.underruns = counts.underruns
        sum.targetMilliseconds = Int(jitter.target.milliseconds)
        return sum
    }

    private func ended(_ reason: PlaybackEnd, burst: UInt32 = 0, at time: Instant) {
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
        let burst = jitter.burst
        if discard() { ended(.deviceFailed, burst: burst, at: .now) }
    }

    /// Drops all that was to be played; returns whether a burst was among it.
    @discardableResult
    private func discard() -> Bool {
        decodedCount = 0
        decodedPosition = 0
        counts.dropped += tonesPlaying.count
        tonesPlaying.removeAll(keepingCapacity: true)
        let wasBurst = jitter.flush(at: .now)
        published.store(total)
        return wasBurst
    }

    private func put(_ slot: PlaybackSlot) {
        if !events.push(slot) { counts.dropped += 1 }
        eventReady.signal()
    }
}
