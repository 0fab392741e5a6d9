// The lease of a cluster of which one relay serves: carries out what its state machine says.
import Logging
import MonotonicTime
import NATS
import QUIC
import Reactor
import RelayProtocol

/// Reads and writes the lease, and watches the port of its holder.
actor ClusterLeaseKeeper {
    private nonisolated let loop: EventLoop
    /// Asks NATS.
    private let leaseLoop: EventLoop
    /// The loop that this actor lives on: its node's.
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private let connection: NATSConnection
    private let lease: NATSStream
    private let logger: Logger
    private let carryOut: @Sendable (ClusterStateMachine.Action) -> Void
    private var machine: ClusterStateMachine
    private var timer: EventLoop.Timer?
    private var portWatch: PortWatch?
    /// Whose port is to be watched.
    private var watchedEpoch: UInt64?
    private var problems: ClusterProblems

    /// How long an answer of NATS may take.
    private static let wait: Duration = .seconds(1)

    /// - Parameter carryOut: Called on `loop` for what the node itself has to do.
    init(
        _ connection: NATSConnection, _ configuration: ClusterConfiguration, _ own: ClusterMember,
        timers: ClusterStateMachine.Timers, on loop: EventLoop, asking leaseLoop: EventLoop, logger: Logger,
        carryOut: @escaping @Sendable (ClusterStateMachine.Action) -> Void
    ) {
        self.connection = connection
        lease = configuration.lease
        self.loop = loop
        self.leaseLoop = leaseLoop
        self.logger = logger
        self.carryOut = carryOut
        problems = ClusterProblems(logger: logger)
        machine = ClusterStateMachine(own, timers: timers)
    }

    func take(_ event: ClusterStateMachine.Event) {
        for action in machine.handle(event, at: .now) {
            switch action {
            case .read: read()
            case .write(let lease, let revision): write(lease, over: revision)
            case .watch(let place, let epoch): watch(place, of: epoch)
            case .standBy, .serve:
                unwatch()
                carryOut(action)
            case .catchUp, .released, .end: carryOut(action)
            }
        }
        timer?.cancel()
        timer = machine.nextDeadline.map { deadline in
            loop.schedule(at: deadline) { [weak self] in self?.assumeIsolated { $0.take(.deadline) } }
        }
    }

    private func read() {
        inBackground { [connection, lease] in
            try connection.last(of: lease.subject, in: lease.name, wait: Self.wait)
        } then: { keeper, result in
            switch result {
            case .success(let message):
                keeper.note(nil)
                // What cannot be read counts as a holder that this version does not know: it expires.
                let lease = message.map { message in
                    ClusterLease(message: message.bytes)
                        ?? ClusterLease(
                            epoch: 0, node: "?", identifier: "", incarnation: "", place: "", state: .serving,
                            milliseconds: 120_000)
                }
                keeper.take(.read(lease, revision: message?.sequence ?? 0))
            case .failure(let error):
                keeper.note(error)
                keeper.take(.readFailed)
            }
        }
    }

    private func write(_ new: ClusterLease, over revision: UInt64) {
        inBackground { [connection, lease] in
            try connection.publish(
                new.message, to: lease.subject, of: lease.name, after: .last(revision), wait: Self.wait)
        } then: { keeper, result in
            switch result {
            case .success(let revision):
                keeper.note(nil)
                keeper.take(.written(revision: revision))
            case .failure(let error as NATSError) where error.kind == .otherLast: keeper.take(.refused)
            case .failure(let error):
                keeper.note(error)
                keeper.take(.writeFailed)
            }
        }
    }

    // MARK: The holder's port

    private func watch(_ text: String, of epoch: UInt64) {
        watchedEpoch = epoch
        Task {
            let place = RelayPlace(text)
            let address: SocketAddress? =
                if let place { try? await SocketAddress.resolve(place.host, port: place.port).first } else { nil }
            guard watchedEpoch == epoch else { return }
            guard let address else {
                return logger.warning(
                    "the place of the node that serves has no address; its end is noticed only when its lease ends",
                    metadata: ["place": "\(text)"])
            }
            portWatch?.cancel()
            portWatch = PortWatch(address, on: loop) { [weak self] in
                self?.assumeIsolated { $0.take(.portClosed(epoch: epoch)) }
            }
        }
    }

    private func unwatch() {
        portWatch?.cancel()
        (portWatch, watchedEpoch) = (nil, nil)
    }

    // MARK: Threads

    private func inBackground<T: Sendable>(
        _ body: @escaping @Sendable () throws -> T,
        then: @escaping @Sendable (isolated ClusterLeaseKeeper, Result<T, any Error>) -> Void
    ) {
        leaseLoop.execute { [weak self, loop] in
            let result = Result { try body() }
            loop.execute { [weak self] in self?.assumeIsolated { then($0, result) } }
        }
    }

    private func note(_ error: (any Error)?) { problems.note(error, about: "the lease") }
}
