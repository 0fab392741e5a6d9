// A service beside the relay that waits for its address instead of taking the relay down.
import Logging
import Reactor
import RelayHTTP
import ServiceLifecycle

/// Runs a service that listens, and tries again with growing pauses where that fails: members talk though the operator's page has
/// no port.
struct RetryingService: Service {
    /// The first pause, which doubles each time.
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
            } catch  where Self.isListening(error) {
                logger.warning("\(error); it is tried again", metadata: ["in": "\(pause.components.seconds) s"])
                if pause == Self.pauseMin { onFailure() }
            }
            guard await sleep(pause) else { return }
            pause = min(pause * 2, Self.pauseMax)
        }
    }

    private static func isListening(_ error: any Error) -> Bool {
        if case .listen? = error as? PushEndpointError { return true }
        return error is OperatorEndpointError
    }

    /// False: it is time to end.
    private func sleep(_ time: Duration) async -> Bool {
        let (passed, pass) = AsyncStream.makeStream(of: Void.self)
        loop.execute { [loop] in loop.schedule(after: time) { pass.yield() } }
        for await _ in passed.cancelOnGracefulShutdown() { return true }
        return false
    }
}
