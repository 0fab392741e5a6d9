// The services of a relay's program: the relay itself, what listens beside it, and the order in which they stop.
import Logging
import Reactor
import RelayCluster
import RelayHTTP
import RelayProtocol
import RelayServer
import RelayWeb
import ServiceLifecycle
import Synchronization

/// The services of a relay. A service group stops them in reverse order. The relay stops first: it drains while health,
/// metrics and the operator's commands are still served. The push endpoint follows, and the API, the page and the
/// commands are last.
struct RelayServices {
    /// Takes commands; see `AdministrationService`.
    let administration: any Service
    /// The operator's page.
    let page: (any Service)?
    /// The API.
    let api: (any Service)?
    /// Takes pushes: turned away by a relay that goes down.
    let pushes: (any Service)?
    /// Takes links over TLS: it goes after the relay, which closes them.
    let web: (any Service)?
    /// Reads the configuration again.
    let reload: any Service
    /// See `RelayService`.
    let relay: any Service

    /// In the order that they are started.
    var all: [ServiceGroupConfiguration.ServiceConfiguration] {
        [administration, page, api, pushes, web, reload].compactMap(\.self).map { .init(service: $0) }
            + [.init(service: relay, successTerminationBehavior: .gracefullyShutdownGroup)]
    }
}

/// The socket for commands, and who carries them out, in the form of the service group.
struct AdministrationService: Service {
    let administration: AdministrationServer
    let registrar: Registrar

    func run() async {
        // Cancelled or told to end: either way it does.
        try? await gracefulShutdown()
        await administration.stop()
        await registrar.disconnect()
    }
}

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

/// Runs a listening service, and retries with a growing back-off if it cannot listen: members can talk although the
/// operator's page has no port.
struct RetryingService: Service {
    /// The first pause. It doubles each time.
    static let pauseMin = Duration.seconds(1)
    /// The longest pause.
    static let pauseMax = Duration.seconds(30)

    /// What listens; it may be run again after it has failed.
    let service: any Service
    /// What measures the pauses.
    let loop: EventLoop
    let logger: Logger
    /// Told at the first failure.
    let onFailure: @Sendable () -> Void

    func run() async throws {
        var pause = Self.pauseMin
        while true {
            do {
                return try await service.run()
            } catch let error as ListenFailure {
                logger.warning("\(error); retrying", metadata: ["in": "\(pause.components.seconds) s"])
                if pause == Self.pauseMin { onFailure() }
            }
            guard await sleep(pause) else { return }
            pause = min(pause * 2, Self.pauseMax)
        }
    }

    /// False: it is time to end.
    private func sleep(_ time: Duration) async -> Bool {
        let (passed, pass) = AsyncStream.makeStream(of: Void.self)
        loop.execute { [loop] in loop.schedule(after: time) { pass.yield() } }
        for await _ in passed.cancelOnGracefulShutdown() { return true }
        return false
    }
}
