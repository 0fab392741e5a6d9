// I4 from outside: who has the floor, by what the relay tells.
import RelayProtocol

@testable import RelayServer

/// Follows one relay's words. It keeps its own account and asks none of the rules.
struct FloorWatch {
    /// Who is on two channels, as far as the relay knows, may ask on both.
    private struct Asker: Hashable {
        let channel: String
        let member: MemberID
    }

    private let world: World
    private var sources: [String: [MemberID: SSRC]] = [:]
    /// By the name of the channel, those who were granted the floor and whose bursts have not ended.
    private var talking: [String: Set<SSRC>] = [:]
    /// Sequence numbers that were forwarded of the burst that each source talks in.
    private var forwarded: [SSRC: Set<UInt16>] = [:]
    /// Those who asked for the floor because of an emergency, with the last such request, until it is over.
    private var emergencies: [Asker: FloorRequestID] = [:]
    /// Nobody but an emergency is granted the floor any more.
    var isDraining = false
    /// The channels of a cluster that the relay serves, where all relays do.
    private var served: Set<String> = []
    /// Channels of a cluster whose floors another relay may have: here nobody is granted them.
    private(set) var paused: Set<String> = []
    /// Channels that are going to another relay: nobody but an emergency is granted their floors any more.
    private var moving: Set<String> = []
    /// How often the floor was taken from somebody.
    private(set) var floorsTaken = 0

    init(_ world: World) { self.world = world }

    /// A member asks for the floor.
    mutating func asked(_ request: ClientMessage.FloorRequest, by member: MemberID, on channel: String) {
        let isEmergency = request.priority == FloorRules.emergency
        emergencies[Asker(channel: channel, member: member)] = isEmergency ? request.requestID : nil
    }

    /// - Parameter talkersMaximum: How many may talk at once on the channel of that name.
    mutating func noted(_ milestone: RelayMilestone, talkersMaximum: (String) -> Int) {
        switch milestone {
        case .memberJoined(let channel, let member, _, let ssrc, _):
            sources[channel.text, default: [:]][member] = ssrc
            emergencies[Asker(channel: channel.text, member: member)] = nil
        case .memberLeft(let channel, let member): emergencies[Asker(channel: channel.text, member: member)] = nil
        case .floorDenied(let channel, let member, let requestID, let cause):
            let asker = Asker(channel: channel.text, member: member)
            guard emergencies[asker] == requestID else { return }
            emergencies[asker] = nil
            // Another emergency may have it; whether on this channel is not looked at.
            guard emergencies.isEmpty, cause != .receiveOnly, cause != .other else { return }
            world.fail("I4", "an emergency is denied the floor of \(channel): \(cause)")
        case .floorGranted(let channel, let member, let requestID):
            guard let ssrc = sources[channel.text]?[member] else {
                return world.fail("I4", "the floor of \(channel) is granted to somebody who has not joined")
            }
            if talking[channel.text, default: []].insert(ssrc).inserted {
                forwarded[ssrc] = []
                if isDraining, emergencies[Asker(channel: channel.text, member: member)] != requestID {
                    return world.fail("I4", "a relay that drains grants the floor of \(channel)")
                }
                if let why = reason(against: requestID, by: member, on: channel.text) {
                    return world.fail("I4", "the floor of \(channel) is granted, \(why)")
                }
            }
            let count = talking[channel.text]?.count ?? 0
            let most = talkersMaximum(channel.text)
            if count > most { world.fail("I4", "\(count) have the floor of \(channel), where \(most) may") }
        case .burstEnded(let channel, let burst):
            if let member = sources[channel.text]?.first(where: { $0.value == burst.ssrc })?.key {
                emergencies[Asker(channel: channel.text, member: member)] = nil
            }
            if talking[channel.text]?.remove(burst.ssrc) == nil {
                world.fail("I4", "a burst ends on \(channel) that was not granted")
            }
        case .floorRevoked: floorsTaken += 1
        default: break
        }
    }

    /// A packet goes to the listeners: its sender must have the floor, and it goes once.
    mutating func forwarded(channel: String, from ssrc: SSRC, sequence: UInt16) {
        guard talking[channel]?.contains(ssrc) == true else {
            return world.fail("I4", "a packet of source \(ssrc.rawValue) is forwarded on \(channel) without the floor")
        }
        if forwarded[ssrc, default: []].insert(sequence).inserted { return }
        world.fail("I5", "packet \(sequence) of source \(ssrc.rawValue) is forwarded twice")
    }

    /// Whether nobody has any floor.
    var isIdle: Bool { talking.values.allSatisfy(\.isEmpty) }

    // MARK: Clusters

    /// Whether the relay has the channel, and somebody has its floor or could get it.
    func mayGrant(_ channel: String) -> Bool {
        served.contains(channel) && !paused.contains(channel) || hasTalker(on: channel)
    }

    /// Whether somebody has the floor of that channel.
    func hasTalker(on channel: String) -> Bool { talking[channel]?.isEmpty == false }

    private func reason(against request: FloorRequestID, by member: MemberID, on channel: String) -> String? {
        if paused.contains(channel) { return "which another relay may have" }
        guard moving.contains(channel), emergencies[Asker(channel: channel, member: member)] != request else {
            return nil
        }
        return "which is going to another relay"
    }

    /// The channel is served from now on.
    mutating func serves(_ channel: String, isPaused: Bool) {
        served.insert(channel)
        setPaused(channel, isPaused)
    }

    mutating func setPaused(_ channel: String, _ isPaused: Bool) {
        if isPaused { paused.insert(channel) } else { paused.remove(channel) }
    }

    /// Those who talk on the channel are still heard here.
    mutating func moves(_ channel: String) { moving.insert(channel) }

    /// Nothing is left of the channel.
    mutating func isGone(_ channel: String) {
        if hasTalker(on: channel) { world.fail("I4", "\(channel) has gone to another relay, and somebody talks") }
        served.remove(channel)
        paused.remove(channel)
        moving.remove(channel)
        sources[channel] = nil
        emergencies = emergencies.filter { $0.key.channel != channel }
    }
}
