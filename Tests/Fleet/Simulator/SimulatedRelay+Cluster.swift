// A relay that serves some shares of the channels of its cluster: channels come and go, and their floors wait meanwhile.
import MonotonicTime
import RelayProtocol
import TestSupport

@testable import RelayClient
@testable import RelayServer

extension RelayCore {
    /// A relay of a cluster, as it begins: it has no channel, and members are recorded.
    static func withoutChannels(_ random: SeededGenerator) -> RelayCore {
        var core = RelayCore(channels: [], roster: RelayRoster(memberships: [:]), random: random)
        core.places = ChannelPlaces(shares: Array(repeating: .nowhere, count: ChannelID.shareCount))
        return core
    }
}

extension SimulatedRelay {
    private func names(of ids: [ChannelID]) -> [String] {
        ids.compactMap { core.configuration(of: $0)?.name.text }
    }

    func serve(_ channel: RelayChannelConfiguration, members: [MemberID: RelayMembership], isPaused: Bool) {
        world.note(name, "serves \(channel.name)\(isPaused ? ", whose floor another relay may have" : "")")
        guard core.serve(channel, members: members, isPaused: isPaused) else {
            return world.fail("L", "\(name) does not serve \(channel.name)")
        }
        watch.serves(channel.name.text, isPaused: isPaused)
        changesOfChannels += 1
        arm()
    }

    /// - Returns: The channels that go on.
    func pause(_ ids: [ChannelID]) -> Set<ChannelID> {
        let busy = core.pause(ids, at: clock.now)
        arm()
        for name in names(of: ids.filter { !busy.contains($0) }) {
            world.note(self.name, "grants nobody the floor of \(name)")
            watch.setPaused(name, true)
        }
        return busy
    }

    func resume(_ ids: [ChannelID]) {
        for name in names(of: ids) {
            world.note(self.name, "grants the floor of \(name) again")
            watch.setPaused(name, false)
        }
        handle(.resume(ids))
    }

    func move(_ ids: [ChannelID], to place: RelayPlace) {
        changesOfChannels += 1
        for name in names(of: ids) {
            world.note(self.name, "sends the members of \(name) to \(place)")
            watch.moves(name)
        }
        handle(.move(ids, to: place))
    }

    /// The channel has gone to another relay, with all its members.
    func isGone(_ id: ChannelID) {
        guard let channel = channels.first(where: { $0.id == id }) else { return }
        world.note(name, "\(channel.name) has gone")
        watch.isGone(channel.name.text)
    }
}

extension Device {
    /// Whoever is sent to the relay that serves its channel is there soon, when nothing is in the way.
    func isSentOn(by connection: Connection) {
        guard let process, let link,
            let relay = fleet.relays.first(where: { link.hasBeenSent(to: $0, by: connection) })
        else { return }
        let channel = link.core.invitation.channel
        // The records need NATS, and have a new member in a moment only.
        guard relay.isServing, relay.core.configuration(of: channel) != nil,
            relay.core.roster[channel, MemberID(pin)] != nil
        else { return }
        let now = world.now
        let (generation, changes) = (relay.generation, relay.changesOfChannels)
        world.after(Self.moveLimit) { [self] in
            guard self.process === process, self.link === link, relay.isUntroubled(since: now),
                relay.generation == generation, relay.changesOfChannels == changes, path.troubledUntil < now,
                network.isSettled(at: now), isOpen, !link.isReady
            else { return }
            world.fail("L", "\(name) has no link \(Self.moveLimit) after it was sent to \(relay.name)")
        }
    }
}
