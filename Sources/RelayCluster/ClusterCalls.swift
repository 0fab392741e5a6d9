// Requests of a cluster's relays to each other, by way of NATS.
import Glibc
import Logging
import MonotonicTime
import NATS
import Reactor

/// Asks other relays, and answers what they ask.
public actor ClusterCalls {
    private nonisolated let loop: EventLoop
    /// Wait for answers: of those that one waits for in vain, others keep the rest going.
    private let callLoops: [EventLoop]
    private var turn = 0
    /// The loop that this actor lives on: its node's.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private let connection: NATSConnection
    private let configuration: ClusterConfiguration
    private let own: ClusterMember
    private let logger: Logger
    private var seal: ClusterCallSeal
    private var subscription: NATSSubscription?
    private var waiting = 0
    private var answering = 0

    /// How long an answer may take.
    private static let wait: Duration = .seconds(3)
    /// Requests that wait for their turn or their answer; further ones fail.
    private static let waitingMaximum = 128
    private static let retry: Duration = .seconds(1)
    private static let loopCount = 4

    init(
        _ connection: NATSConnection, _ configuration: ClusterConfiguration, _ own: ClusterMember,
        relay: ClusterIdentity, on loop: EventLoop, logger: Logger
    ) throws {
        self.connection = connection
        self.configuration = configuration
        self.loop = loop
        self.logger = logger
        seal = ClusterCallSeal(identity: relay, incarnation: own.incarnation)
        callLoops = try (0..<Self.loopCount).map { try EventLoop(name: "cluster-call\($0)", mayWait: true) }
        self.own = own
    }

    deinit { for loop in callLoops { loop.stop() } }

    private func nextLoop() -> EventLoop {
        turn = (turn + 1) % callLoops.count
        return callLoops[turn]
    }

    // MARK: Asking

    /// Has the relay of that incarnation do something.
    ///
    /// - Parameters:
    ///   - wait: How long it may take.
    ///   - lane: A loop that waits for this answer, and may wait; nil: one of those that all share.
    /// - Throws: `ClusterError.notAnswered`.
    func ask(
        _ request: [UInt8], of incarnation: String, wait: Duration = wait, on lane: EventLoop? = nil
    ) async throws -> [UInt8] {
        guard waiting < Self.waitingMaximum,
            let (message, number) = seal.seal(request, to: incarnation, at: Int64(time(nil)))
        else {
            throw ClusterError.notAnswered("too much is asked at once")
        }
        waiting += 1
        defer { waiting -= 1 }
        let (connection, subject, asked) = (connection, configuration.callSubject(incarnation), Instant.now)
        let result: Result<[UInt8], any Error> = await withCheckedContinuation { continuation in
            (lane ?? nextLoop()).execute {
                continuation.resume(
                    returning: Result {
                        // Those before may have waited in vain for long.
                        guard .now - asked < wait else { throw ClusterError.notAnswered("others wait as well") }
                        return try connection.request(message, to: subject, wait: wait)
                    })
            }
        }
        switch result {
        case .success(let bytes):
            guard let answer = seal.open(bytes, to: number, of: incarnation) else {
                throw ClusterError.notAnswered("the answer is not of a relay with this key")
            }
            return answer
        case .failure(let error): throw (error as? ClusterError) ?? ClusterError.notAnswered("\(error)")
        }
    }

    // MARK: Answering

    /// Gets a request and the incarnation of the relay whose it is.
    typealias Handler = @Sendable (_ request: [UInt8], _ caller: String) async -> [UInt8]

    /// From now on `handler` answers what others ask this relay.
    func answer(_ handler: @escaping Handler) {
        let (connection, subject) = (connection, configuration.callSubject(own.incarnation))
        nextLoop().execute { [weak self, loop] in
            let result = Result {
                try connection.answer(subject, waitingMaximum: Self.waitingMaximum) { [weak self] request in
                    loop.execute { [weak self] in self?.assumeIsolated { $0.take(request, handler) } }
                }
            }
            loop.execute { [weak self] in self?.assumeIsolated { $0.subscribed(result, handler) } }
        }
    }

    private func subscribed(
        _ result: Result<NATSSubscription, any Error>, _ handler: @escaping Handler
    ) {
        switch result {
        case .success(let subscription): self.subscription = subscription
        case .failure(let error):
            logger.warning("\(error)", metadata: ["about": "the requests of other relays"])
            _ = loop.schedule(after: Self.retry) { [weak self] in self?.assumeIsolated { $0.answer(handler) } }
        }
    }

    private func take(_ request: NATSRequest, _ handler: @escaping Handler) {
        // What is not a relay's request has no answer.
        guard answering < Self.waitingMaximum, let call = seal.open(request.bytes) else { return }
        answering += 1
        Task {
            let answer = await handler(call.body, call.caller)
            answering -= 1
            if let sealed = seal.seal(answer, to: call) { request.reply(sealed) }
        }
    }
}
