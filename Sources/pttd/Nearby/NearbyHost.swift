// The relay of one channel nearby that this machine hosts.
import Logging
import Nearby
import Reactor
import RelayProtocol
import RelayServer

/// What happens to a hosted channel.
enum NearbyHostChange: Sendable {
    /// A member has come or gone.
    case members
    /// A newcomer waits to be admitted.
    case asks(MemberID, DisplayName)
    /// It waits no more.
    case settled(MemberID)
}

/// A hosted channel that is served: a relay of its own, which ends with it.
struct NearbyHost: Sendable {
    let channel: HostedChannel
    let server: RelayServer
    /// The UDP port at which members reach it.
    var port: UInt16 { channel.port }

    /// Serves a channel on all addresses of this machine, at the port of the last run if that is free.
    ///
    /// - Parameters:
    ///   - member: This machine.
    ///   - places: The file that records which members are connected. Those of an earlier run are informed that the
    ///     host is back.
    ///   - changed: Gets its events on the relay's loop.
    /// - Throws: `RelayServerError`.
    static func start(
        _ channel: HostedChannel, as member: MemberID, places: PlacesFile, logger: Logger,
        changed: @escaping @Sendable (NearbyHostChange) -> Void
    ) async throws(RelayServerError) -> NearbyHost {
        var failure = RelayServerError.notRunning
        // A kernel without IPv6 has no "::", and the port of the last run may be somebody else's now.
        let attempts =
            [("::", channel.port), ("::", 0), ("0.0.0.0", channel.port), ("0.0.0.0", 0)] as [(String, UInt16)]
        for (address, port) in attempts {
            do throws(RelayServerError) {
                var configuration = RelayServerConfiguration(
                    listenAddress: address, listenPort: port, identity: channel.identity,
                    channels: [channel.configuration(of: member)], transportKeys: channel.transportKeys)
                configuration.formerPlaces = places.read()
                configuration.keepPlaces = { places.keep($0) }
                let server = try RelayServer(configuration: configuration, logger: logger)
                let bound = try await server.start()
                await server.setMilestoneHandler { milestone, _ in
                    switch milestone {
                    case .memberJoined, .memberLeft: changed(.members)
                    case .joinPending(_, let member, let name): changed(.asks(member, name))
                    case .joinSettled(_, let member, _): changed(.settled(member))
                    default: break
                    }
                }
                var served = channel
                served.port = bound
                return NearbyHost(channel: served, server: server)
            } catch {
                failure = error
            }
        }
        throw failure
    }

    /// The number of members.
    func memberCount() async -> Int { await server.memberCount(of: channel.id) }

    /// Sends the members away when nobody talks any more: to that place, or to where they find the next host.
    func stop(movingTo place: RelayPlace? = nil) async {
        let time = place == nil ? SuccessionStateMachine.leavingTime : SuccessionStateMachine.movingTime
        await server.drain(for: time, to: place)
        await server.stop()
    }

    /// Ends the channel for everybody.
    func delete() async {
        await server.end(channel.id, "its creator has deleted it")
        await server.stop()
    }
}
