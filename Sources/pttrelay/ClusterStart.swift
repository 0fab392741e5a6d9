// A relay of a cluster until it has the records: it answers commands, and ends when it is told to.
import Cryptography
import Files
import Glibc
import Logging
import Logs
import Reactor
import RelayCluster
import Settings
import Terminal
import Version

/// Waits for the records of the cluster.
struct ClusterStart {
    let settings: ClusterSettings
    let state: RelayState
    let registrar: Registrar
    let administration: AdministrationServer
    /// The program's loop.
    let loop: EventLoop
    let logger: Logger

    /// Returns when all records are here.
    func untilServing() async throws -> (node: ClusterNode, shares: ClusterShares) {
        let logger = logger
        let node = try ClusterNode(
            settings.configuration, store: state.store, relay: try ClusterIdentity(state.identity),
            version: Version.text, timers: settings.timers, logger: Logger(label: "pttrelay.cluster")
        ) { end in
            // At once, whatever is under way: other relays serve, or are about to. Members find them.
            ServiceConsole.complain("pttrelay: \(Self.words(end))")
            ServiceEnd.now(EXIT_FAILURE)
        }
        await registrar.setWaitsForRecords(true)
        FailedStarts.ofService.succeeded()
        let (signals, watchdog) = try await loop.run { [loop, administration] in
            let signals = try SignalWatch([SIGHUP, SIGTERM, SIGINT], on: loop) { signal in
                if signal == SIGHUP {
                    return logger.notice(
                        "a relay that waits for the records of its cluster reads its configuration when it starts: restart it"
                    )
                }
                Task {
                    await administration.stop()
                    ServiceEnd.now(EXIT_SUCCESS)
                }
            }
            return (
                signals, ServiceWatchdog.request.flatMap { ServiceWatchdog(watching: [loop] + node.loops, for: $0) }
            )
        }
        ServiceConsole.say("waiting for the records of the cluster")
        let shares = await node.serve()
        withExtendedLifetime(watchdog) {}
        try await loop.run { signals.cancel() }
        return (node, shares)
    }

    private static func words(_ end: ClusterNode.End) -> String {
        let again = "this relay ends, and begins anew when it is started again"
        switch end {
        case .shares(.removed): return "the other relays of the cluster have taken over what this one served; \(again)"
        case .shares(.leaseLost):
            return "NATS has not answered for so long that other relays may serve what this one does; \(again)"
        case .shares(.forked):
            return "the NATS servers have lost a part of the table of shares, so relays disagree about it; \(again)"
        case .shares(.tooMany): return "the cluster has \(ShareTable.nodesMaximum) relays, and takes no more"
        case .fenced: return "another relay of the cluster writes the records now; \(again)"
        case .records(let why): return "this relay cannot write the records of its cluster: \(why)"
        }
    }
}
