// How a relay is going to end. A reload of the configuration may change it.
import RelayProtocol
import RelayServer
import ServiceLifecycle
import Synchronization

/// What the configuration says of the end.
struct RelayEnding: Sendable, Equatable {
    /// How long it waits for the end of what is said.
    var drainTime: Duration = .seconds(10)
    /// Where the members are to go on; nil: they come back here.
    var successor: RelayPlace?
}

/// The end that is in force.
final class CurrentEnding: Sendable {
    private let ending: Mutex<RelayEnding>

    init(_ ending: RelayEnding) { self.ending = Mutex(ending) }

    func get() -> RelayEnding { ending.withLock { $0 } }

    func set(_ new: RelayEnding) { ending.withLock { $0 = new } }
}

/// The relay in the form of the service group.
struct RelayService: Service {
    let server: RelayServer
    let ending: CurrentEnding

    func run() async {
        await withGracefulShutdownHandler {
            // It was started before, and may have been told to end since.
            await server.untilStopped()
        } onGracefulShutdown: {
            let ending = ending.get()
            Task { await server.drain(for: ending.drainTime, to: ending.successor) }
        }
    }
}
