// What a client writes to its log.
import Logging
import MonotonicTime
import RelayProtocol
import Vocabulary

extension RelayClient {
    /// A relay that serves the link names a successor when it drains; one that is asked to, where another relay serves the channel.
    func note(successor place: RelayPlace, isDraining: Bool) {
        let what = isDraining ? "the relay is draining and names a successor" : "another relay serves the channel"
        logger.info("\(what)", metadata: ["relay": "\(place)"])
    }

    func note(_ event: PushLinkEvent, at now: Instant) {
        switch event {
        case .registered(let token): logger.info("push token registered", metadata: ["token": "\(token)"])
        case .refused(let token, let cause, let phrase):
            logger.warning(
                "the relay refused a push token",
                metadata: ["token": "\(token)", "cause": "\(cause)", "phrase": "\(phrase)"])
        case .push(let push):
            logger.info(
                "push",
                metadata: [
                    "token": "\(push.token)", "bytes": "\(push.payload.count)", "priority": "\(push.priority)",
                    "t": "\(now.nanoseconds)",
                ])
        }
    }

    func note(_ event: RelayLinkEvent, at now: Instant) {
        let time = Logger.MetadataValue.string("\(now.nanoseconds)")
        switch event {
        case .state(.ready(let name)): logger.info("channel joined", metadata: ["channel": "\(name)"])
        case .state(.unavailable(let error, let retryAfter)):
            let retry = retryAfter.map { "\(Int($0.milliseconds)) ms" } ?? "never"
            logger.warning("cannot reach the relay", metadata: ["error": "\(error)", "retry": "\(retry)"])
        case .state(.connecting): logger.debug("connecting", metadata: ["relay": "\(core.relay)"])
        case .state(.stopped): logger.info("channel left")
        case .floorGranted(let burst, _):
            logger.info("floor granted", metadata: ["burst": "\(burst.number)", "t": time])
        case .firstPacketSent(let burst, _):
            logger.info("first packet sent", metadata: ["burst": "\(burst.number)", "t": time])
        case .transmissionEnded(let burst, let end, let report):
            logger.info(
                "burst ended",
                metadata: [
                    "burst": "\(burst.number)", "end": "\(end)", "sent": "\(report.sent)", "erased": "\(report.erased)",
                    "dropped": "\(report.dropped)", "t": time,
                ])
        case .burstBegan(let member): logger.info("talker begins", metadata: ["talker": "\(member.name)", "t": time])
        case .burstEnded(let member, let end, let report):
            logger.info(
                "talker ended",
                metadata: [
                    "talker": "\(member.name)", "end": "\(end)", "received": "\(report.received)",
                    "lost": "\(report.lost)", "skipped": "\(report.skipped)", "t": time,
                ])
        case .floorQueued(let burst, let position):
            logger.info(
                "waiting for the floor", metadata: ["burst": "\(burst.number)", "position": "\(position)", "t": time])
        case .members, .memberJoined, .memberLeft, .floorQueueOffered, .floorOutlook, .talkersAllowed, .floorTaken,
            .floorReleased, .floorIdle, .frame, .listenerLoss:
            break
        }
    }
}
