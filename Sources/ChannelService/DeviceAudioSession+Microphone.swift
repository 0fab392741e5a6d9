// The microphone of the audio session: transmissions in, their frames and level out.

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
        do throws(AudioError) {
            microphoneFailure = nil
            captureBurst = try openMicrophone().start(start)
            abortPending = false
        } catch {
            handler?(.captureFailed(reason: "\(error)"))
        }
    }

    func stopCapture(_ stop: ChannelManagerStateMachine.CaptureStop) {
        guard let microphone else { return }
        switch stop {
        case .afterTail:
            microphone.stop(tail: configuration.tail)
        case .immediately:
            deliverFrames(of: microphone)
            abortPending = true
            loop.schedule(at: .now) { [weak self] in self?.abortIfPending() }
        case .discarding:
            captureBurst = nil
            cutBurst = nil
            microphone.abort()
        }
    }

    /// Delivers the recorded frames of the transmission that is cut, and no other pending output: a report of its begin
    /// or end would be mistaken for one of the next transmission.
    func deliverFrames(of microphone: CaptureEngine) {
        cutBurst = captureBurst
        captureBurst = nil
        microphone.drain { output in
            if case .frame(let frame) = output, frame.burst == cutBurst {
                handler?(.frame(frame))
            } else {
                received(output)
            }
        }
    }

    func abortIfPending() {
        guard abortPending else { return }
        abortPending = false
        microphone?.abort()
    }

    func openMicrophone() throws(AudioError) -> CaptureEngine {
        if let microphone { return microphone }
        var capture = configuration.capture
        capture.echoOf = played
        let engine = try CaptureEngine(
            device: configuration.microphone, configuration: capture, after: closing.end(of: configuration.microphone),
            logger: logger)
        microphoneWatch = try watch(engine.descriptor, of: engine.device) { [weak self, weak engine] in
            engine?.drain { self?.received($0) }
        }
        if let expectedLoss { engine.setExpectedLoss(percent: expectedLoss) }
        microphone = engine
        return engine
    }

    func received(_ output: CaptureOutput) {
        switch output {
        case .prepared, .lost, .resumed: break
        case .hears(let burst, _, _):
            guard burst == captureBurst else { return }
            tellToGoAhead(burst)
        case .began(let burst, let firstSampleAt, _):
            guard burst == captureBurst else { return }
            handler?(.captureBegan(firstSampleAt: firstSampleAt))
        case .frame(let frame):
            if frame.burst == captureBurst {
                if let level = levelMeter.add(frame) { handler?(.level(level)) }
                handler?(.frame(frame))
            } else if frame.burst == cutBurst {
                framesCut += 1
            }
        case .failed(let error):
            microphoneFailure = "\(error)"
            if captureBurst == nil { handler?(.microphoneMissing(reason: "\(error)")) }
        case .ended(let burst, let reason):
            guard burst == captureBurst else { return }
            captureBurst = nil
            if reason == .stopped {
                handler?(.captureEnded)
            } else {
                handler?(.captureFailed(reason: microphoneFailure ?? "the microphone stopped (\(reason))"))
            }
        }
    }

    func setExpectedLoss(percent: Int) {
        expectedLoss = percent
        microphone?.setExpectedLoss(percent: percent)
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
        if burst == captureBurst { microphone?.goAhead(from: instant) }
    }
}
