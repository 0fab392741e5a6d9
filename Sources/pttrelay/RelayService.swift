// The relay as one of the program's services, and its current shutdown settings, which a reload of the configuration
// may change.
import RelayCluster
import RelayProtocol
import RelayServer
import ServiceLifecycle
import Synchronization

/// The current shutdown settings.
final class CurrentShutdownSettings: Sendable {
    private let ending: Mutex<ShutdownSettings>

    init(_ ending: ShutdownSettings) { self.ending = Mutex(ending) }

    func get() -> ShutdownSettings { ending.withLock { $0 } }

    func set(_ new: ShutdownSettings) { ending.withLock { $0 = new } }
}

/// The relay in the form of the service group.
struct RelayService: Service {
    let server: RelayServer
    let ending: CurrentShutdownSettings
    /// The node of a cluster that the relay is; nil: it is alone.
    var node: ClusterNode?

    func run() async {
        await withGracefulShutdownHandler {
            // It was started before, and may have been told to end since.
            await server.untilStopped()
        } onGracefulShutdown: {
            let ending = ending.get()
            Task {
                // The next node serves before members are sent there.
                let next = await node?.release().flatMap { RelayPlace($0) }
                await server.drain(for: ending.drainTime, to: next ?? ending.successor)
            }
        }
    }
}
