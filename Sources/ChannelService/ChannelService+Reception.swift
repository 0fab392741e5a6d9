// Received bursts on their way to the speaker, and what the sound reports.

import Audio
import FoundationEssentials
import Logging
import MonotonicTime
import PushToTalkCore
import SpokenPrompts
import Vocabulary

extension ChannelService {
    /// A participant's burst begins: they are shown as speaking until it has been heard to its end. While another burst
    /// is heard, it waits. On a channel whose media a program carries, nothing of it is played.
    ///
    /// - Parameter burst: Identifies the burst where several may talk at once: it is heard immediately, mixed with the
    ///   others.
    public func burstBegan(_ participant: PTParticipant, _ burst: TalkBurst? = nil) {
        receive(.began(participant, burst))
    }

    /// A packet of the burst. Outside of a burst it is dropped and counted.
    public func received(_ packet: ReceivedFrame, _ burst: TalkBurst? = nil) { receive(.packet(packet, burst)) }

    /// The burst ends with the packet of this sequence number; nil: with the last one that came.
    public func burstEnded(lastSequence: UInt16?, _ burst: TalkBurst? = nil) {
        receive(.ended(lastSequence: lastSequence, burst))
    }

    func receive(_ event: ReceptionEvent) {
        guard !isClosed else { return }
        if machine.channel?.media == .application, event.isOfLink {
            if case .packet = event { statistics.packetsDropped += 1 }
            return
        }
        keep(event)
        if event == .cleared { for speech in listening.unheard(at: .now) { replays.cutOff(speech) } }
        listening.hearsWhileRecording = machine.channel?.transmissionMode == .fullDuplex
        listening.speakerHolds = audio.packetsHeld
        let before = event.isPacket ? nil : listening.participants
        for action in listening.handle(event, at: .now) {
            switch action {
            case .setParticipant(let participant): setParticipant(participant)
            case .play(let packet, let voice): play(packet, voice)
            case .endPlayback(let last, let voice): audio.endReception(lastSequence: last, voice: voice)
            case .dropPlayback(let voice): audio.dropReception(voice: voice)
            }
        }
        if let before, before != listening.participants { tell(.remoteParticipantsChanged(listening.participants)) }
        if !isHandling { followPrompts() }
        schedule()
    }

    // MARK: Once more

    /// Plays the last message again, or, when one is being replayed, the one before it. It ends by itself, by a message that
    /// comes, and by a begin.
    ///
    /// - Throws: Why not; the person hears the deny tone.
    public func replayLast(channelUUID: UUID) throws(PTChannelError) {
        try replayOrRefuse(channelUUID) { service in
            service.replays.next(again: service.listening.isReplaying, at: .now)
        }
    }

    /// Plays a message from another store, under the same rules.
    ///
    /// - Parameters:
    ///   - participant: Who said it.
    ///   - packets: All of it, in the order of the sequence numbers.
    /// - Throws: Why not; the person hears the deny tone.
    public func replay(
        _ participant: PTParticipant, _ packets: [ReceivedFrame], channelUUID: UUID
    ) throws(PTChannelError) {
        try replayOrRefuse(channelUUID) { service in
            packets.isEmpty ? nil : service.replays.replay(participant, packets, at: .now)
        }
    }

    private func replayOrRefuse(
        _ channelUUID: UUID, _ message: (isolated ChannelService) -> ReceivedBurst?
    ) throws(PTChannelError) {
        let refusal = isClosed ? PTChannelError(.channelNotFound) : machine.refusalToReplay(channelUUID)
        if let error = refusal ?? beginReplay(message) {
            log("nothing is replayed: \(error)")
            signal(.denied)
            throw error
        }
        statistics.replays += 1
        log("a message is replayed", ["kept": "\(replays.count)"])
    }

    private func beginReplay(_ message: (isolated ChannelService) -> ReceivedBurst?) -> PTChannelError? {
        guard listening.canReplay else {
            let name = machine.activeRemoteParticipant.map(\.name) ?? "somebody"
            return PTChannelError(.transmissionInProgress, explanation: "\(name) is speaking; try again afterwards")
        }
        guard let burst = message(self) else {
            return PTChannelError(.transmissionNotFound, explanation: "no message was received on this channel yet")
        }
        receive(.replay(burst))
        return nil
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

    private func play(_ packet: ReceivedFrame, _ voice: Int) {
        switch machine.audioSession {
        case .active, .activating:
            if audio.play(packet, voice: voice) {
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
        case .captureBegan(let firstSampleAt):
            soundProblem(of: .microphone, nil)
            log("capture started", ["first_sample": "\(firstSampleAt.nanoseconds)"])
            handle(.captureBegan)
        case .frame(let frame):
            statistics.framesSent += 1
            if isFirstFrame {
                isFirstFrame = false
                log("first frame out", ["captured": "\(frame.capturedAt.nanoseconds)"])
            }
            keep(frame)
            frameHandler?(frame)
        case .level(let level):
            inputLevel = level
            tellLevel()
        case .wornMicrophone(let report): wornHandler?(report)
        case .soundProblem(let device, let problem): soundProblem(of: device, problem)
        case .captureEnded: handle(.captureEnded)
        case .tonesFinished(let heard):
            if heard { soundProblem(of: .speaker, nil) }
            handle(.tonesFinished)
        case .captureFailed(let reason):
            soundProblem(of: .microphone, reason)
            handle(.captureFailed(reason: reason))
        case .promptEnded(let number): prompts?.handle(.ended(number))
        case .played(let voice): receive(.played(voice: voice))
        case .playbackFailed(let reason):
            // A speaker that stays away fails at every sound; it is told once.
            guard soundProblems[.speaker] != reason else { return }
            soundProblem(of: .speaker, reason)
            handle(.playbackFailed(reason: reason))
        }
    }

    private func soundProblem(of device: AudioDevice.Use, _ reason: String?) {
        guard soundProblems[device] != reason else { return }
        soundProblems[device] = reason
        tell(.soundProblemsChanged)
    }
}
