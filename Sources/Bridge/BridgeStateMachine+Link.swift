// Events of the relay's link, and what the channel manager learns from them.
import ChannelService
import MonotonicTime
import PushToTalkCore
import RelayClient
import Vocabulary

extension BridgeStateMachine {
    mutating func heard(_ event: RelayLinkEvent, at now: Instant) {
        switch event {
        case .state(let state): linkChanged(to: state, at: now)
        case .transmissionEnded(let ended, let end, _) where ended == burst: burstEnded(end)
        // The floor is taken before the first packet comes: the sound device opens meanwhile.
        case .floorTaken(let member):
            isFloorTaken = true
            hear(member)
        case .burstBegan(let member): hear(member)
        case .floorReleased(let member): silence { $0.member == member && !$0.isHearing }
        case .floorIdle:
            isFloorTaken = false
            silence { !$0.isHearing }
        case .frame(let frame):
            let said =
                frame.talker.map { talker in speakers.firstIndex { $0.member == talker } } ?? speakers.indices.first
            guard let index = said else { break }
            speakers[index].isHearing = true
            actions.append(.play(frame, of: speakers[index].burst))
        case .burstEnded(let member, _, _): silence { $0.member == member }
        case .talkersAllowed(let number): talkersAllowed = max(1, number)
        case .floorQueueOffered(let isOffered): (hasFloorQueue, outlook) = (isOffered, nil)
        case .floorOutlook(let normal, let emergency): outlook = (normal, emergency)
        case .floorQueued(let queued, let position) where queued == burst:
            emergencyRetry = nil
            // A burst that goes on over another relay may wait there, whatever it had at the earlier one.
            hasFloor = false
            actions.append(.floorQueued(position: position))
        case .floorGranted(let granted, _):
            emergencyRetry = nil
            guard isWaiting, granted == burst else { break }
            hasFloor = true
            actions.append(.floorGranted)
        case .listenerLoss(let percent): expectLoss(percent)
        case .transmissionEnded, .floorQueued, .members, .memberJoined, .memberLeft, .firstPacketSent: break
        }
    }

    private mutating func linkChanged(to state: RelayLinkState, at now: Instant) {
        isLinkComing = state.mayBeReadySoon
        unansweredAt = nil
        let status: PTServiceStatus
        switch state {
        case .ready:
            // What listeners missed over the connection before says nothing of this one.
            expectLoss(0)
            lastFailure = nil
            (status, linkDetail) = (.ready, "")
        case .connecting:
            let last = lastFailure.map { "; the last try: \($0)" } ?? ""
            if lastFailure == nil { unansweredAt = now + Self.unansweredAfter }
            (status, linkDetail) = (.connecting, "connecting to the relay\(last)")
        case .unavailable(let error, _):
            lastFailure = "\(error)"
            (status, linkDetail) = (.unavailable, "\(error)")
            if case .channelEnded = error { actions.append(.channelEnded("\(error)")) }
        case .stopped: (status, linkDetail) = (.unavailable, "the channel has been left")
        }
        defer {
            if status != .ready {
                isFloorTaken = false
                silence { _ in true }
            }
        }
        // A burst may outlive the connection that it began on: the link tells its end, or goes on with it.
        guard burst == nil || status == .ready else {
            heldStatus = status
            return
        }
        heldStatus = nil
        linkStatus = status
        tellStatus()
    }

    /// The first attempt lasts: until it fails, nothing else says why there is no link.
    mutating func reportUnanswered(at now: Instant) {
        guard let due = unansweredAt, due <= now else { return }
        unansweredAt = nil
        let seconds = Self.unansweredAfter.components.seconds
        linkDetail = "connecting to the relay; \(RelayLinkError.unreachable("nothing for \(seconds) s"))"
        actions.append(.relayUnanswered(linkDetail))
    }

    private mutating func expectLoss(_ percent: Int) {
        guard percent != expectedLoss else { return }
        expectedLoss = percent
        actions.append(.setExpectedLoss(percent: percent))
    }

    mutating func tellStatus() {
        if seededFault("the-link-is-back-and-nobody-is-told") { return }
        actions.append(.setServiceStatus(serviceStatus))
    }

    private mutating func burstEnded(_ end: TransmissionEnd) {
        if seededFault("a-denied-burst-goes-on"), case .denied = end { return }
        if seededFault("a-revoked-burst-goes-on"), case .revoked = end { return }
        burst = nil
        defer {
            if let status = heldStatus, !seededFault("a-status-that-waited-is-forgotten") {
                linkStatus = status
                tellStatus()
            }
            heldStatus = nil
        }
        switch end {
        case .completed, .aborted: break
        case .revoked(let reason):
            actions.append(.transmissionRevoked(PTChannelError(.transmissionNotAllowed, explanation: "\(reason)")))
        case .denied(.taken):
            let talker = speakers.first.map { "\($0.member.name) is" } ?? "somebody else is"
            actions.append(
                .transmissionRefused(PTChannelError(.transmissionInProgress, explanation: "\(talker) speaking")))
        case .denied(.listenOnly): refuse("this device may only listen on the channel")
        case .denied(.queueFull): refuse("the queue for the floor is full")
        case .denied(.tooSoon(let time)): refuse("the last transmission was too long; wait \(time) and press again")
        case .denied(.refused(let words)): refuse(words)
        case .notAnswered: refuse("the relay did not answer in time; press again")
        case .linkUnavailable: refuse(serviceDetail.isEmpty ? "the connection to the relay was lost" : serviceDetail)
        case .tooManyBursts: refuse("earlier bursts are still being sent; press again")
        }
    }

    private mutating func refuse(_ words: String) {
        actions.append(.transmissionRefused(PTChannelError(.transmissionNotAllowed, explanation: words)))
    }

    private mutating func hear(_ member: RelayMember) {
        guard !speakers.contains(where: { $0.member == member }) else { return }
        // Where one talks at a time, whoever talked has ended, whether that was told or not.
        while speakers.count >= talkersAllowed { silence(speakers.startIndex) }
        var burst: TalkBurst?
        if talkersAllowed > 1 {
            talkBursts &+= 1
            burst = TalkBurst(number: talkBursts)
        }
        speakers.append(Speaker(member: member, burst: burst))
        actions.append(.beginReception(PTParticipant(name: member.name, image: nil), burst))
    }

    private mutating func silence(where isOver: (Speaker) -> Bool) {
        while let index = speakers.firstIndex(where: isOver) { silence(index) }
    }

    private mutating func silence(_ index: Int) {
        actions.append(.endReception(speakers.remove(at: index).burst))
    }
}
