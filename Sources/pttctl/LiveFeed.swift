// The events of commands that run until they are stopped: changes of the daemon, the clock, and Ctrl-C.
import MonotonicTime
import PTTBus
import Terminal

/// An event that a running command handles.
enum LiveEvent: Sendable {
    /// The daemon's, and when it arrived.
    case event(DaemonClient.Event, Instant)
    /// Time to draw again.
    case tick
    /// The user wants it to end.
    case interrupted
    /// `--seconds` have passed, or nobody reads the output any more.
    case timeUp
}

/// The news of one command.
struct LiveFeed {
    /// News that may wait for a slow terminal; of more the oldest are dropped.
    static let waitingMax = 4_096
    /// The longest `--seconds`.
    static let secondsMax = 86_400.0

    let news: AsyncStream<LiveEvent>
    private let feed: AsyncStream<LiveEvent>.Continuation
    private let clock: Task<Void, Never>

    /// Begins to collect; the daemon is watched when this returns.
    ///
    /// - Parameters:
    ///   - seconds: When the time is up; nil: never.
    ///   - tick: How often to draw.
    static func start(
        _ daemon: DaemonClient, seconds: Double?, tick: Duration = .milliseconds(250)
    ) async throws -> LiveFeed {
        let (news, feed) = AsyncStream.makeStream(of: LiveEvent.self, bufferingPolicy: .bufferingNewest(waitingMax))
        try await daemon.watch { feed.yield(.event($0, .now)) }
        Interruption.watch { feed.yield(.interrupted) }
        let end = seconds.map { Instant.now + .seconds($0) }
        let clock = Task {
            while !Task.isCancelled {
                let pause = end.map { max(.zero, min(tick, $0 - .now)) } ?? tick
                try? await Task.sleep(for: pause)
                if let end, Instant.now >= end {
                    feed.yield(.timeUp)
                    return
                }
                feed.yield(Console.isRead ? .tick : .timeUp)
            }
        }
        return LiveFeed(news: news, feed: feed, clock: clock)
    }

    /// Ends the clock and the news; Ctrl-C ends the program again.
    func stop() {
        Interruption.unwatch()
        clock.cancel()
        feed.finish()
    }
}
