// The milestones of a talk burst in the log, with the monotonic time they were reached at.

import Logging
import MonotonicTime
import PushToTalkCore

extension ChannelService {
    func log(_ message: Logger.Message, _ metadata: Logger.Metadata = [:], level: Logger.Level = .info) {
        var metadata = metadata
        metadata["t"] = "\(Instant.now.nanoseconds)"
        logger.log(level: level, message, metadata: metadata)
    }

    func note(_ callback: DelegateCallback) {
        switch callback {
        case .didJoinChannel(let uuid, let reason):
            log("joined", ["channel": "\(uuid)", "reason": "\(reason)"])
        case .didLeaveChannel(let uuid, let reason):
            log("left", ["channel": "\(uuid)", "reason": "\(reason)"])
        case .didBeginTransmitting(_, let source):
            statistics.transmissions += 1
            log("transmission began", ["source": "\(source)"])
        case .didEndTransmitting(_, let source):
            log("transmission ended", ["source": "\(source)"])
        case .failedToBeginTransmitting(_, let error):
            statistics.beginsRefused += 1
            log("transmission refused: \(error)")
        case .failedToJoinChannel(let uuid, let error):
            log("not joined: \(error)", ["channel": "\(uuid)"])
        case .failedToLeaveChannel(let uuid, let error):
            log("not left: \(error)", ["channel": "\(uuid)"])
        case .failedToStopTransmitting(_, let error):
            // Usual: the release after the talk-time limit or a refusal.
            log("nothing to stop: \(error)", level: .debug)
        case .didActivateAudioSession: log("audio session active", level: .debug)
        case .didDeactivateAudioSession: log("audio session inactive", level: .debug)
        case .receivedEphemeralPushToken(let token): log("push token \(token)", level: .debug)
        case .incomingPush(_, let delivery): log("push", ["push": "\(delivery.push.identifier)"])
        case .incomingServiceUpdatePush(_, let delivery, let isHighPriority, let remaining):
            log(
                "service-update push",
                ["push": "\(delivery.push.identifier)", "high": "\(isHighPriority)", "budget": "\(remaining)"])
        }
    }

    func note(_ notice: ChannelManagerStateMachine.Notice) {
        switch notice {
        case .transmissionEnding(.stopped): break
        case .transmissionEnding(let cause): log("transmission is ended: \(cause)", level: .notice)
        case .transmissionAudioFinished(let erased):
            log("transmission's audio is done", ["erased": "\(erased)"], level: .debug)
        case .lastTransmissionNotCarried(let error):
            log("the last transmission was not carried: \(error)", level: .notice)
        case .waitingForFloor(let position):
            log("waiting for the floor", ["position": "\(position.map(String.init) ?? "-")"])
        case .waitingEnded(let cause): log("no longer waiting for the floor: \(cause)")
        case .talkTimeWarning(let remaining): log("talk-time limit in \(remaining)")
        case .activeRemoteParticipantChanged(let participant):
            log(participant == nil ? "nobody is speaking" : "a participant is speaking", level: .debug)
        case .serviceStatusChanged(let status): log("service \(status)")
        case .transmissionModeChanged(let mode): log("mode \(mode)")
        case .audioSessionFailed(let reason): log("sound failed: \(reason)", level: .error)
        case .audioSessionInterrupted(let reason): log("audio interrupted: \(reason)")
        case .audioSessionInterruptionEnded: log("audio interruption ended")
        case .callsChanged(let calls): log("calls: \(calls.map(\.description))", level: .debug)
        case .programWanted: log("the channel's program is to be started")
        case .pushSettled(let push, .delivered):
            log("push delivered", ["push": "\(push.identifier)"], level: .debug)
        case .pushSettled(let push, .refused(let error)):
            log("push not carried out: \(error)", ["push": "\(push.identifier)"], level: .notice)
        case .pushSettled(let push, .dropped(let reason)):
            log("push dropped: \(reason)", ["push": "\(push.identifier)"], level: .notice)
        case .channelDescriptorChanged, .pushTokenChanged, .accessoryButtonEventsEnabledChanged: break
        }
    }
}
