// Received bursts on their way to the speaker, and what the sound reports.

import Audio
import Logging
import MonotonicTime
import PushToTalkCore

extension ChannelService {
    /// A participant's burst begins: they are shown as speaking until it has been heard to its end. While another one is
    /// heard, it waits for its turn. Nothing of it is played on a channel whose media are a program's.
    public func burstBegan(_ participant: PTParticipant) { receive(.began(participant)) }

    /// A packet of the burst. Outside of a burst it is dropped and counted.
    public func received(_ packet: ReceivedPacket) { receive(.packet(packet)) }

    /// The burst ends with the packet of this sequence number; nil: with the last one that came.
    public func burstEnded(lastSequence: UInt16?) { receive(.ended(lastSequence: lastSequence)) }

    func receive(_ event: ReceptionStateMachine.Event) {
        guard !isClosed else { return }
        if machine.channel?.media == .application, event.isOfLink {
            if case .packet = event { statistics.packetsDropped += 1 }
            return
        }
        for action in reception.handle(event, at: .now) {
            switch action {
            case .setParticipant(let participant): setParticipant(participant)
            case .play(let packet): play(packet)
            case .endPlayback(let lastSequence): audio.endReception(lastSequence: lastSequence)
            case .dropPlayback: audio.dropReception()
            }
        }
        schedule()
    }

    private func setParticipant(_ participant: PTParticipant?) {
        guard let channel = machine.channel else {
            receive(.cleared)
            return
        }
        request(.setActiveRemoteParticipant(participant, channelUUID: channel.uuid)) { [weak self] error in
            guard let self, let error, participant != nil else { return }
            self.assumeIsolated {
                $0.logger.info("a burst is not played now: \(error)")
                $0.receive(error.code == .transmissionInProgress ? .refused : .cleared)
            }
        }
    }

    private func play(_ packet: ReceivedPacket) {
        switch machine.audioSession {
        case .active, .activating:
            if audio.play(packet) {
                statistics.packetsPlayed += 1
                return
            }
        case .inactive, .deactivating: break
        }
        statistics.packetsDropped += 1
    }

    // MARK: Sound

    func connectAudio() {
        guard audio.handler == nil else { return }
        audio.handler = { [weak self] event in
            self?.assumeIsolated { $0.heard(event) }
        }
    }

    private func heard(_ event: AudioSessionEvent) {
        switch event {
        case .activated: handle(.audioSessionActivated)
        case .deactivated: handle(.audioSessionDeactivated)
        case .failed(let reason):
            audioProblem = reason
            handle(.audioSessionFailed(reason: reason))
        case .captureBegan(let firstSampleAt):
            audioProblem = nil
            log("capture started", ["first_sample": "\(firstSampleAt.nanoseconds)"])
            handle(.captureBegan)
        case .frame(let frame):
            statistics.framesSent += 1
            if isFirstFrame {
                isFirstFrame = false
                log("first frame out", ["captured": "\(frame.captureTime.nanoseconds)"])
            }
            frameHandler?(frame)
        case .captureEnded: handle(.captureEnded)
        case .tonesFinished(let heard):
            if heard { audioProblem = nil }
            handle(.tonesFinished)
        case .captureFailed(let reason):
            audioProblem = reason
            handle(.captureFailed(reason: reason))
        case .played:
            audioProblem = nil
            receive(.played)
        case .playbackFailed(let reason):
            // A speaker that stays away fails at every sound; it is told once.
            guard audioProblem != reason else { return }
            audioProblem = reason
            handle(.playbackFailed(reason: reason))
        }
    }
}

extension ReceptionStateMachine.Event {
    /// Whether it comes from the relay's link.
    fileprivate var isOfLink: Bool {
        switch self {
        case .began, .packet, .ended: true
        case .played, .refused, .transmissionEnded, .cleared, .deadlineReached: false
        }
    }
}
