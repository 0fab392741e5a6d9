// What a fleet does with its cluster, whichever kind that is.
import MonotonicTime
import RelayProtocol
import RelayServer

/// A cluster of relays.
protocol FleetCluster: AnyObject {
    /// The parts of its relays in it, by the numbers of these.
    var members: [any FleetClusterMember] { get }
    /// The relay that members of the first channel are to be on; nil: none serves it.
    var serving: SimulatedRelay? { get }
    /// What is not as it is to be when all is well; nil: nothing.
    var unrest: String? { get }

    /// No server of NATS can write for that time: they look for a leader.
    func loseLeader(for time: Duration)
    /// Looks at what must hold after every step.
    func check()
}

extension FleetCluster {
    func start() { for member in members { member.start() } }

    /// The one that an action is about: one of them, or whichever serves.
    func member(_ number: Int) -> any FleetClusterMember {
        if number < members.count { return members[number] }
        return serving?.node ?? members[0]
    }

    func relay(at place: String) -> SimulatedRelay? { members.first { "\($0.relay.place)" == place }?.relay }
}

/// A relay's part in a cluster: what its program does around the rules.
protocol FleetClusterMember: AnyObject {
    var relay: SimulatedRelay { get }
    /// Whether it takes connections, as long as its process runs.
    var isListening: Bool { get }

    /// The process begins.
    func start()
    /// The process has ended.
    func stop()
    /// Its operator ends it in good order, and starts it again after a time.
    func handOver(for time: Duration)
    /// It reaches no server of NATS; or it reaches those, but not the table of shares.
    func cutOff(for time: Duration, fromTableOnly: Bool)
    /// It was frozen: its timers are due before anything else.
    func wakes()
    /// A channel has gone to another relay, with all its members.
    func moved(_ channel: ChannelID)
    /// Somebody is to become a member of a channel.
    func enrol(_ connection: ConnectionID, _ enrolment: RelayEnrolment)
}

extension FleetClusterMember {
    func wakes() {}
    func moved(_ channel: ChannelID) {}
    func enrol(_ connection: ConnectionID, _ enrolment: RelayEnrolment) {}
}
