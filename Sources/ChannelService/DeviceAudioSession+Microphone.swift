// The microphones of the audio session: transmissions in, their frames and level out.

import Audio
import Logging
import MonotonicTime
import PushToTalkCore
import Reactor
import Vocabulary

extension DeviceAudioSession {
    func startCapture(_ start: CaptureStart) {
        goAheadBurst = nil
        goAheadSounded = false
        levelMeter = LevelMeter()
        choice.end(at: .now)
        transmission = Transmission(start: start)
        choose(start)
    }

    /// Begins with the microphone of `main`, or with what stands in for it.
    func begin(_ start: CaptureStart) {
        let microphone = microphone(choice.begin(at: .now))
        // The one that was cut in this turn goes on only if it is wanted again.
        if abortPending, current !== microphone { current.abort() }
        abortPending = false
        run(microphone, start)
        if choice.isOnTrial { tryMain() }
        if isStandIn(current) {
            tellOfFallback()
        } else if !choice.isDoubted {
            // Another program may want it.
            if let fallback, fallback !== configured { fallback.engine?.unprepare() }
        }
    }

    func stopCapture(_ stop: ChannelManagerStateMachine.CaptureStop) {
        transmission?.isStopping = true
        choice.end(at: .now)
        for microphone in microphones where microphone !== current { microphone.abort() }
        guard awaited == nil else {
            awaited = nil
            if stop == .afterTail { handler?(.captureEnded) }
            return
        }
        guard let engine = current.engine else { return }
        switch stop {
        case .afterTail: engine.stop(tail: configuration.tail)
        case .immediately:
            deliverFrames(of: engine)
            abortPending = true
            loop.schedule(at: .now) { [weak self] in self?.abortIfPending() }
        case .discarding:
            current.burst = nil
            current.cutBurst = nil
            engine.abort()
        }
    }

    /// Delivers the recorded frames of the transmission that is cut, and no other pending output: a report of its begin
    /// or end would be mistaken for one of the next transmission.
    private func deliverFrames(of engine: CaptureEngine) {
        let microphone = current
        microphone.cutBurst = microphone.burst
        microphone.burst = nil
        engine.drain { output in
            if case .frame(let frame) = output, frame.burst == microphone.cutBurst {
                deliver(frame, of: microphone)
            } else {
                received(output, from: microphone)
            }
        }
    }

    func abortIfPending() {
        guard abortPending else { return }
        abortPending = false
        current.engine?.abort()
    }

    var microphones: [SessionMicrophone] { [configured, configuredFallback, worn].compactMap(\.self) }

    private func microphone(_ choice: MicrophoneChoice.Microphone) -> SessionMicrophone {
        choice == .fallback ? fallback ?? main : main
    }

    private func role(of microphone: SessionMicrophone) -> MicrophoneChoice.Microphone {
        microphone === main ? .main : .fallback
    }

    /// Whether it is used in place of the microphone that the transmission is meant for.
    private func isStandIn(_ microphone: SessionMicrophone) -> Bool {
        missingReason != nil || role(of: microphone) == .fallback
    }

    /// What is known of the microphone that the transmission is meant for.
    var choice: MicrophoneChoice {
        get { main === worn ? wornChoice : configuredChoice }
        set { if main === worn { wornChoice = newValue } else { configuredChoice = newValue } }
    }

    /// Makes the engine of a microphone that has none.
    func open(_ microphone: SessionMicrophone) throws(AudioError) -> CaptureEngine {
        if let engine = microphone.engine { return engine }
        var capture = configuration.capture
        // It is handed from one speaker to one microphone.
        capture.echoOf = microphone === configured ? played : nil
        if microphone === worn {
            capture.settling = wornSound.settling
            if capture.microphoneStart == .automatic { capture.microphoneStart = .whenHeard }
        }
        let engine = try CaptureEngine(
            device: microphone.device, configuration: capture, after: closing.end(of: microphone.device), logger: logger
        )
        microphone.watch = try watch(engine.descriptor, of: engine.device) { [weak self, weak engine] in
            engine?.drain { self?.received($0, from: microphone) }
        }
        if let expectedLoss { engine.setExpectedLoss(percent: expectedLoss) }
        microphone.engine = engine
        return engine
    }

    /// The microphone records for the transmission from now on.
    private func run(_ microphone: SessionMicrophone, _ start: CaptureStart) {
        current = microphone
        microphone.failure = nil
        microphone.offset = nil
        do throws(AudioError) {
            microphone.burst = try open(microphone).start(start)
        } catch {
            microphone.failure = "\(error)"
            failed(microphone, "\(error)")
        }
    }

    /// The doubted microphone runs beside the one that is used.
    private func tryMain() {
        do throws(AudioError) {
            main.failure = nil
            main.offset = nil
            main.burst = try open(main).start(.atOnce)
        } catch {
            _ = choice.isUseless(.main)
        }
    }

    // MARK: What they report

    private func received(_ output: CaptureOutput, from microphone: SessionMicrophone) {
        switch output {
        case .prepared: break
        case .resumed: if microphone === main { choice.heardAgain(at: .now) }
        case .lost(let error):
            // It may come back, but what is said meanwhile is not to be missed.
            if microphone.burst != nil { _ = replace(microphone, "\(error)") }
        case .fellSilent(let burst):
            guard burst == microphone.burst else { return }
            if microphone === worn { handler?(.wornMicrophone(.silent)) }
            isSilent(microphone)
        case .heardAgain(let burst):
            guard burst == microphone.burst else { return }
            if microphone === main { choice.heardAgain(at: .now) }
            if microphone === current, !choice.isDoubted { handler?(.soundProblem(of: .microphone, nil)) }
        case .hears(let burst, let after, let really, let settledAfter):
            guard burst == microphone.burst else { return }
            if microphone === worn {
                handler?(.wornMicrophone(really ? .hears(after: after, settledAfter: settledAfter) : .silent))
            }
            guard microphone === current else { return }
            if !really, replace(microphone, silence(of: microphone)) { return }
            tellToGoAhead(burst)
        case .began(let burst, let firstSampleAt, _):
            guard burst == microphone.burst, microphone === current else { return }
            began(at: firstSampleAt)
        case .frame(let frame):
            if frame.burst == microphone.burst {
                guard microphone === current else { return }
                if let level = levelMeter.add(frame) { handler?(.level(level)) }
                deliver(frame, of: microphone)
            } else if frame.burst == microphone.cutBurst {
                framesCut += 1
            }
        case .failed(let error):
            microphone.failure = "\(error)"
            if microphone === main, microphone.burst == nil { handler?(.soundProblem(of: .microphone, "\(error)")) }
        case .ended(let burst, let reason):
            // Its link goes down with it.
            if microphone === worn, reason != .restarted { microphone.engine?.unprepare() }
            guard burst == microphone.burst else { return }
            microphone.burst = nil
            if reason == .stopped {
                if microphone === current { handler?(.captureEnded) }
            } else {
                if microphone === worn { handler?(.wornMicrophone(.silent)) }
                failed(microphone, microphone.failure ?? "the microphone stopped (\(reason))")
            }
        }
    }

    private func began(at firstSampleAt: Instant) {
        guard transmission?.firstSampleAt == nil else { return }
        transmission?.firstSampleAt = firstSampleAt
        handler?(.captureBegan(firstSampleAt: firstSampleAt))
        // The report says that the sound is well, which it is not.
        if isStandIn(current) { handler?(.soundProblem(of: .microphone, doubt)) }
    }

    /// A frame has its place in the transmission, whichever microphone it comes from.
    private func deliver(_ frame: OutgoingFrame, of microphone: SessionMicrophone) {
        if transmission?.isStopping == false { began(at: frame.capturedAt) }
        let next = transmission?.nextPosition
        let offset = microphone.offset ?? place(of: frame) - Int64(frame.position)
        microphone.offset = offset
        var placed = frame
        placed.position = UInt32(clamping: Int64(frame.position) + offset)
        placed.isFirst = next == nil
        transmission?.nextPosition = Int64(placed.position) + Int64(frame.samples)
        handler?(.frame(placed))
    }

    /// Where a microphone's first frame is: by its time, in whole frames, and behind what was sent before.
    private func place(of frame: OutgoingFrame) -> Int64 {
        guard let next = transmission?.nextPosition, let first = transmission?.firstSampleAt else { return 0 }
        let samples = max(1, Int64(frame.samples))
        let passed = (frame.capturedAt - first).nanoseconds * 48 / 1_000_000
        return max(next, (passed + samples / 2) / samples * samples)
    }

    // MARK: Microphones that are of no use

    private func silence(of microphone: SessionMicrophone) -> String {
        "\(AudioError.deviceSilent(microphone.device.description))"
    }

    /// It gives no sound: the other one takes over, or the person is warned and may go on for a moment.
    private func isSilent(_ microphone: SessionMicrophone) {
        guard !replace(microphone, silence(of: microphone)), microphone === current else { return }
        guard transmission?.isStopping == false else { return }
        handler?(.soundProblem(of: .microphone, silence(of: microphone)))
        play(.talkTimeWarning)
    }

    /// It has come to its end without having been stopped.
    private func failed(_ microphone: SessionMicrophone, _ reason: String) {
        let isUsed = microphone === current
        guard !replace(microphone, reason), isUsed else { return }
        for other in microphones { other.abort() }
        handler?(.captureFailed(reason: reason))
    }

    /// It has gone with its device, whatever its driver gives.
    func lost(_ microphone: SessionMicrophone, _ reason: String) {
        guard transmission?.isStopping == false else { return }
        microphone.abort()
        failed(microphone, reason)
    }

    /// Lets the other microphone go on, if there is one that can. Returns whether it does.
    private func replace(_ microphone: SessionMicrophone, _ reason: String) -> Bool {
        guard let transmission, !transmission.isStopping else { return false }
        if microphone === main { doubtReason = reason }
        guard let next = choice.isUseless(role(of: microphone)) else { return false }
        // A silent one goes on beside the other, and shows whether it works again.
        if microphone.burst == nil || role(of: microphone) == .fallback { microphone.abort() }
        goAheadBurst = nil
        let hasBegun = transmission.firstSampleAt != nil
        let other = self.microphone(next)
        if next == .main, other.burst != nil {
            // It has been running on trial: what it gives from now on is sent.
            current = other
            return true
        }
        run(other, hasBegun ? .atOnce : transmission.start)
        guard self.transmission?.isStopping == false, other.failure == nil else { return true }
        tellOfFallback()
        handler?(.soundProblem(of: .microphone, doubt))
        return true
    }

    private func tellOfFallback() { play(.fallbackMicrophone) }

    private var doubt: String? { (missingReason ?? doubtReason).map { "\($0); \(current.device) is used" } }

    func setExpectedLoss(percent: Int) {
        expectedLoss = percent
        for microphone in microphones { microphone.engine?.setExpectedLoss(percent: percent) }
    }

    // MARK: Go ahead

    /// The microphone hears: the tone says so, and the transmission begins with it.
    func tellToGoAhead(_ burst: UInt32) {
        goAheadBurst = burst
        guard configuration.playsTones, !speakerBlocked else { return goAhead(from: .now) }
        play(.microphoneOn)
        // Without a speaker nobody hears a tone, and nobody is to wait for one.
        if speakerBlocked { goAhead(from: .now) } else { goAheadSounded = true }
    }

    /// The go-ahead tone is at the speaker at `instant`.
    func goAhead(from instant: Instant) {
        guard let burst = goAheadBurst else { return }
        goAheadBurst = nil
        if burst == current.burst { current.engine?.goAhead(from: instant) }
    }
}

/// A microphone of the audio session. Confined to the session's loop.
final class SessionMicrophone {
    let device: AudioDevice
    var engine: CaptureEngine?
    var watch: EventLoop.Watch?
    /// The engine's number of the burst that runs for a transmission; what comes of others is void.
    var burst: UInt32?
    /// The burst that was cut last: its encoder may still give a frame or two, which are counted and dropped.
    var cutBurst: UInt32?
    var failure: String?
    /// Where the burst begins in the transmission, in samples of 48 kHz; nil until a frame of it is sent.
    var offset: Int64?

    init(_ device: AudioDevice) { self.device = device }

    /// Ends its burst at once, if there is one. What it has recorded is void.
    func abort() {
        guard burst != nil || cutBurst != nil else { return }
        burst = nil
        cutBurst = nil
        engine?.abort()
    }
}
