// The relay's log: milestones as they occur, and other clients' faults with a rate limit.
import Logging
import MonotonicTime
import QUIC
import RelayProtocol

/// The relay's log lines.
final class RelayLog {
    /// At most one line of a kind of fault in this time; the next one says how many there were.
    private static let faultInterval: Duration = .seconds(10)

    /// What clients do wrong, in the words of the log.
    enum Fault: String {
        case dropped = "media dropped"
        case violation = "connection closed: protocol violation"
        case refusal = "join refused"
        case slowPeer = "connection closed: it does not read control messages"
        case unknownMessage = "control message of an unknown kind ignored"
        case noSealer = "a connection gets no media: its key cannot be used"
        case exhausted = "connection closed: its packet counter is used up"
        case pushTokenRefused = "push token refused"
    }

    private struct Kind: Hashable { let fault: Fault, reason: MediaDrop? }

    private let logger: Logger
    private var faults: [Kind: (lines: TokenBucket, suppressed: Int)] = [:]

    init(logger: Logger) { self.logger = logger }

    /// Tells of a fault, unless its kind was told of just now.
    func fault(
        _ fault: Fault, _ id: ConnectionID? = nil, _ reason: MediaDrop? = nil,
        more: @autoclosure () -> Logger.Metadata = [:], at now: Instant = .now
    ) {
        let kind = Kind(fault: fault, reason: reason)
        var state = faults[kind] ?? (TokenBucket(depth: 1, every: Self.faultInterval, at: now), 0)
        let isTold = state.lines.take(at: now)
        faults[kind] = (state.lines, isTold ? 0 : state.suppressed + 1)
        guard isTold else { return }
        var metadata = more()
        if let id { metadata["connection"] = "\(id)" }
        if let reason { metadata["reason"] = "\(reason)" }
        if state.suppressed > 0 { metadata["more"] = "\(state.suppressed)" }
        logger.warning("\(fault.rawValue)", metadata: metadata)
    }

    func cannotSteer(_ error: QUICError) {
        logger.warning(
            "new connections stay with the worker threads that they go to now", metadata: ["why": "\(error)"])
    }

    func moved(_ id: ConnectionID, to address: SocketAddress) {
        logger.info("member moved", metadata: ["connection": "\(id)", "address": "\(address)"])
    }

    func closed(_ id: ConnectionID, _ reason: QUICCloseReason) {
        logger.debug("connection closed", metadata: ["connection": "\(id)", "reason": "\(reason)"])
    }

    func milestone(_ milestone: RelayMilestone, at now: Instant) {
        switch milestone {
        case .memberJoined(let channel, let member, let name, let ssrc, let replaced):
            info(
                "member joined", channel, now,
                ["member": "\(member)", "name": "\(name)", "ssrc": "\(ssrc)", "replaced": "\(replaced)"])
        case .memberEnrolled(let channel, let member, let name):
            info("member enrolled", channel, now, ["member": "\(member)", "name": "\(name)"])
        case .memberRevoked(let channel, let member, let connections):
            info("member removed", channel, now, ["member": "\(member)", "connections": "\(connections)"])
        case .memberLeft(let channel, let member): info("member left", channel, now, ["member": "\(member)"])
        case .joinPending(let channel, let member, let name):
            info("newcomer waiting to be admitted", channel, now, ["member": "\(member)", "name": "\(name)"])
        case .joinSettled(let channel, let member, let fate):
            info("newcomer no longer waiting", channel, now, ["member": "\(member)", "fate": "\(fate)"])
        case .wrongCode(let channel, let member): info("wrong code", channel, now, ["member": "\(member)"])
        case .joinRefused(let id, let cause, let phrase):
            fault(.refusal, id, more: ["cause": "\(cause)", "phrase": "\(phrase)"], at: now)
        case .floorGranted(let channel, let member, let requestID):
            info("floor granted", channel, now, ["member": "\(member)", "request": "\(requestID)"])
        case .floorDenied(let channel, let member, let requestID, let cause):
            info("floor denied", channel, now, ["member": "\(member)", "request": "\(requestID)", "cause": "\(cause)"])
        case .floorQueued(let channel, let member, let requestID, let position):
            info(
                "floor queued", channel, now,
                ["member": "\(member)", "request": "\(requestID)", "position": "\(position)"])
        case .floorRevoked(let channel, let member, let requestID, let cause):
            info(
                "floor revoked", channel, now, ["member": "\(member)", "request": "\(requestID)", "cause": "\(cause)"])
        case .firstPacket(let channel, let ssrc, let sequence):
            info("first packet", channel, now, ["ssrc": "\(ssrc)", "sequence": "\(sequence)"])
        case .burstEnded(let channel, let burst):
            info(
                "floor released", channel, now,
                [
                    "ssrc": "\(burst.ssrc)", "reason": "\(burst.reason.words)", "packets": "\(burst.packets)",
                    "bytes": "\(burst.bytes)", "lost": "\(burst.lost)", "listeners": "\(burst.listeners)",
                    "ms": "\(Int(burst.duration.milliseconds))",
                ])
        case .floorRulesChanged(let channel, let rules):
            info(
                "floor rules changed", channel, now,
                [
                    "mode": "\(rules.mode.rawValue)", "queue": "\(rules.hasQueue)",
                    "preemption-step": "\(rules.preemptionStep.map { "\($0)" } ?? "none")",
                ])
        case .listenerSilent(let channel, let member):
            info("media stopped: the listener does not report", channel, now, ["member": "\(member)"])
        case .mediaKeyRenewed(let channel, let epoch):
            info("media key renewed", channel, now, ["epoch": "\(epoch)"])
        case .pushClientJoined(let channel, let member):
            info("client joined for pushes", channel, now, ["member": "\(member)"])
        case .pushTokenRegistered(let member, let token, let topic):
            logger.info(
                "push token registered",
                metadata: ["member": "\(member)", "token": "\(token)", "topic": "\(topic)"])
        case .pushTokenRefused(let member, let token, let cause):
            fault(.pushTokenRefused, more: ["member": "\(member)", "token": "\(token)", "cause": "\(cause)"], at: now)
        case .pushTokenDead(let member, let token):
            logger.info("push token dead", metadata: ["member": "\(member)", "token": "\(token)"])
        case .push(let token, let id, let fate):
            logger.info(
                "push",
                metadata: ["token": "\(token)", "push": "\(id)", "fate": "\(fate)", "t": "\(now.nanoseconds)"])
        case .violation(let id, let what):
            fault(.violation, id, more: ["what": "\(what)"], at: now)
        }
    }

    private func info(_ text: Logger.Message, _ channel: DisplayName, _ now: Instant, _ metadata: Logger.Metadata) {
        logger.info(
            text,
            metadata: metadata.merging(["channel": "\(channel)", "t": "\(now.nanoseconds)"]) { own, _ in own })
    }
}

extension FloorControlStateMachine.EndReason {
    /// The reason as the log has it.
    var words: String {
        switch self {
        case .released: "released"
        case .revoked(.talkTimeLimit): "the talk-time limit"
        case .revoked(.noMedia): "no sound arrived"
        case .revoked(.heldUp): "the relay stalled"
        case .revoked(.preempted): "another member took the floor"
        case .revoked(.noPermission): "the member may not talk any more"
        case .left: "the talker is gone"
        case .restarted: "the talker sent a new request"
        }
    }
}
