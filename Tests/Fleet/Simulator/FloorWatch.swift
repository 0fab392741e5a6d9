// I4 from outside: who has the floor, by what the relay tells.
import RelayProtocol

@testable import RelayServer

/// Follows one relay's words. It keeps its own account and asks none of the rules.
struct FloorWatch {
    private unowned let world: World
    private var sources: [String: [MemberID: SSRC]] = [:]
    /// By the name of the channel, those who were granted the floor and whose bursts have not ended.
    private var talking: [String: Set<SSRC>] = [:]
    /// Sequence numbers that were forwarded of the burst that each source talks in.
    private var forwarded: [SSRC: Set<UInt16>] = [:]
    /// How often the floor was taken from somebody.
    private(set) var floorsTaken = 0

    init(_ world: World) { self.world = world }

    /// - Parameter talkersMaximum: How many may talk at once on the channel of that name.
    mutating func noted(_ milestone: RelayMilestone, talkersMaximum: (String) -> Int) {
        switch milestone {
        case .memberJoined(let channel, let member, _, let ssrc, _): sources[channel.text, default: [:]][member] = ssrc
        case .floorGranted(let channel, let member, _):
            guard let ssrc = sources[channel.text]?[member] else {
                return world.fail("I4", "the floor of \(channel) is granted to somebody who has not joined")
            }
            if talking[channel.text, default: []].insert(ssrc).inserted { forwarded[ssrc] = [] }
            let count = talking[channel.text]?.count ?? 0
            let most = talkersMaximum(channel.text)
            if count > most { world.fail("I4", "\(count) have the floor of \(channel), where \(most) may") }
        case .burstEnded(let channel, let burst):
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
}
