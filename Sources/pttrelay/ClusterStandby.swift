// A node of a cluster until it serves: it stands by, answers commands, and ends when it is told to.
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

/// Stands by.
struct ClusterStandby {
    let settings: ClusterSettings
    let state: RelayState
    let registrar: Registrar
    let administration: AdministrationServer
    /// The program's loop.
    let loop: EventLoop
    let logger: Logger

    /// Returns when this node is to serve, which it then does until the program ends.
    func untilServing() async throws -> (node: ClusterNode, service: ClusterNode.Service) {
        let logger = logger
        let node = try ClusterNode(
            settings.configuration, store: state.store, relay: try ClusterIdentity(state.identity),
            version: Version.text, timers: settings.timers, sharesTimers: settings.sharesTimers,
            logger: Logger(label: "pttrelay.cluster")
        ) { end in
            // At once, whatever is under way: another node serves, or is about to. Members find it.
            ServiceConsole.complain("pttrelay: \(Self.words(end))")
            ServiceEnd.now(EXIT_FAILURE)
        }
        await registrar.standBy(node)
        FailedStarts.ofService.succeeded()
        let (signals, watchdog) = try await loop.run { [loop, administration] in
            let signals = try SignalWatch([SIGHUP, SIGTERM, SIGINT], on: loop) { signal in
                if signal == SIGHUP {
                    return logger.notice("a node that stands by reads its configuration when it starts: restart it")
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
        ServiceConsole.say("standing by")
        let service = await node.serve()
        withExtendedLifetime(watchdog) {}
        try await loop.run { signals.cancel() }
        return (node, service)
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
        case .lease(let end): return words(end)
        }
    }

    private static func words(_ end: ClusterStateMachine.End) -> String {
        switch end {
        case .deposed(let lease):
            let holder = lease.map { "'\($0.node)' at \($0.place)" } ?? "another node"
            return "\(holder) of the cluster serves now; this relay ends, and stands by when it is started again"
        case .leaseLost:
            return
                "NATS has not answered for so long that another node may serve; this relay ends, and stands by when it is "
                + "started again"
        case .records(let why): return "this relay cannot serve its cluster: \(why)"
        }
    }
}
