// The playback thread: carries commands to the sound, and the sound to the device; opens, runs, stops and closes the device.
import MonotonicTime

/// What the thread runs. While it plays it allocates nothing and takes no lock, as long as the device is not lost.
final class PlaybackWorker: @unchecked Sendable {
    /// Silence played after the last sound before the device stops, beyond what the device holds: the next burst or
    /// tone often follows soon.
    private static let hangover = Duration.milliseconds(60)
    /// How long a failed device is left alone, whatever arrives for it. Otherwise it would fail again with every
    /// packet.
    private static let retryAfter = Duration.seconds(1)

    let rings: PlaybackRings
    let recordingOrigin: Instant?

    // The thread's own from here on.
    private let sink: any PlaybackSink
    private let sound: PlaybackSound
    private let closeWhenIdle: Bool
    private let keepsRunning: Bool
    private let played: PlayedSound?
    /// Whether what is written next is heard right after what was written before.
    private var isContinued = false
    private let block: UnsafeMutablePointer<Float>
    private var recovery = DeviceRecovery()
    private var isOpen = false
    private var underrunsSeen = 0
    private var stall = StallClock()
    private var silentSince = Instant.zero
    private var lastWriteAt = Instant.zero
    private var retryAt = Instant.zero

    init(sink: any PlaybackSink, speech: [SpeechRenderer], configuration: PlaybackConfiguration) throws(AudioFault) {
        self.sink = sink
        rings = try PlaybackRings()
        sound = PlaybackSound(rings, speech: speech, toneVolume: configuration.toneVolume)
        closeWhenIdle = configuration.closeWhenIdle
        keepsRunning = configuration.keepsRunning
        played = configuration.played
        recordingOrigin = sink.recordingOrigin
        block = .allocate(capacity: playbackBlock)
        block.initialize(repeating: 0, count: playbackBlock)
    }

    deinit { block.deallocate() }

    func run() {
        while !rings.isShutDown {
            takeCommands()
            if let next = recovery.nextDeadline {
                waitForDevice(until: next)
            } else if rings.isRunning {
                play()
            } else if sound.isIdle, !(keepsRunning && isOpen) {
                if rings.wait(until: sink.restsUntil) { sink.endRest() }
            } else {
                _ = recovery.handle(.began(isOpen: isOpen), at: .now)
                startDevice()
            }
        }
        sound.discard(.flushed)
        if rings.isRunning { stopDevice() }
        sink.close()
    }

    private func takeCommands() {
        rings.takeCommands { command, payload in
            sound.isRefusing = isLeftAlone
            switch command {
            case .packet(let voice, let packet): sound.insert(packet, payload: payload, voice: Int(voice))
            case .end(let voice, let lastSequence): sound.end(voice: Int(voice), lastSequence: lastSequence)
            case .flush: sound.discard(.flushed)
            case .flushVoice(let voice): sound.discard(voice: Int(voice), .flushed)
            case .play(let tone): sound.play(tone)
            case .prompt(let samples, let count, let number): sound.play(prompt: samples, count: count, number: number)
            case .stopPrompt: sound.stopPrompt()
            case .prepare: prepare()
            }
        }
    }

    // MARK: The device's life

    /// Whether the device failed a moment ago, and is not tried yet.
    private var isLeftAlone: Bool { !rings.isRunning && recovery.nextDeadline == nil && .now < retryAt }

    private func prepare() {
        guard !isOpen, recovery.nextDeadline == nil else { return }
        do throws(AudioFault) { try openDevice() } catch {
            sink.close()
            // One that another program holds now may be free when it is wanted.
            if !error.isBusy { retryAt = .now + Self.retryAfter }
            rings.put(.failed(error))
        }
    }

    private func openDevice() throws(AudioFault) {
        guard !isOpen else { return }
        let began = Instant.now
        try sink.open()
        isOpen = true
        rings.put(.prepared(took: .now - began))
    }

    private func startDevice() {
        do throws(AudioFault) {
            try openDevice()
            try sink.start()
        } catch {
            failed(error)
            return
        }
        underrunsSeen = sink.underruns
        isContinued = false
        sound.deviceStarts()
        lastWriteAt = .now
        stall.moved(at: lastWriteAt)
        silentSince = lastWriteAt
        rings.isRunning = true
    }

    private func play() {
        do throws(AudioFault) {
            let isWanted = try sink.waitForRoom()
            countUnderruns()
            guard isWanted else {
                if stall.movedNothing(at: .now) { throw AudioFault(.stall, 0) }
                return
            }
            takeCommands()
            // What is written now is heard after what the device holds.
            let delay = sink.delay
            let now = Instant.now
            sound.render(into: block, delay: delay, shortfall: sink.shortfall, at: now)
            try sink.write(block)
            played?.add(block, heardAt: now + delay, isContinued: isContinued)
            isContinued = true
        } catch {
            failed(error)
            return
        }
        lastWriteAt = .now
        stall.moved(at: lastWriteAt)
        if case .isBack(let gap) = recovery.handle(.flowed, at: lastWriteAt) {
            sound.ranEmpty(1)
            rings.put(.resumed(gap: gap))
        }
        countUnderruns()
        sound.publish()
        if !sound.isIdle {
            silentSince = lastWriteAt
        } else if !keepsRunning, lastWriteAt - silentSince > sink.delay + Self.hangover {
            stopDevice()
        }
    }

    /// Called as soon as the device runs again: from then on its clock has another offset.
    private func countUnderruns() {
        guard sink.underruns != underrunsSeen else { return }
        isContinued = false
        sound.ranEmpty(sink.underruns - underrunsSeen)
        underrunsSeen = sink.underruns
        sound.publish()
    }

    private func stopDevice() {
        if closeWhenIdle || recovery.isLost { closeDevice() } else { sink.stop() }
        rings.isRunning = false
        _ = recovery.handle(.ended, at: .now)
    }

    private func closeDevice() {
        sink.close()
        isOpen = false
    }

    // MARK: A device that fails

    private func failed(_ fault: AudioFault) {
        closeDevice()
        if case .wait(let isFirst) = recovery.handle(.failed(fault), at: .now) {
            if isFirst { rings.put(.lost(fault)) }
            return
        }
        rings.isRunning = false
        _ = recovery.handle(.ended, at: .now)
        retryAt = .now + Self.retryAfter
        rings.put(.failed(fault))
        sound.discard(.deviceFailed)
    }

    /// Waits for a device that is lost; what is to be heard waits, too. Nothing left of it: the device is not needed any more.
    private func waitForDevice(until next: Instant) {
        guard !sound.isIdle else { return stopDevice() }
        guard .now >= next || rings.wait(until: next) else { return }
        if recovery.handle(.due, at: .now) == .open { startDevice() }
    }
}
