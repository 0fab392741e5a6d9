// Retries a service whose address is in use, instead of stopping the relay.
import Logging
import Reactor
import RelayHTTP
import ServiceLifecycle

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
