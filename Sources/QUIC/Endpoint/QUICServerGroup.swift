// State that the endpoints of one port share, each of which has its own thread.
import MonotonicTime
import Synchronization

/// The bounds on connections, and the memory of early data, that several endpoints (workers) of one server share: to a client they
/// are one.
public final class QUICServerGroup: Sendable {
    private let admission: Mutex<Admission>
    let replayGuard = ReplayGuard()

    /// For endpoints with these options.
    public init(_ options: QUICServerOptions) { admission = Mutex(Admission(options)) }

    /// Whether one more may begin (`Admission.judge`); if so, it has begun.
    func admit(_ address: SocketAddress, isProven: Bool, at now: Instant) -> Admission.Verdict {
        admission.withLock { admission in
            let verdict = admission.judge(address, isProven: isProven, at: now)
            if verdict == .admitted { admission.began(address) }
            return verdict
        }
    }

    /// See `Admission.completed`.
    func completed(_ address: SocketAddress) { admission.withLock { $0.completed(address) } }

    /// See `Admission.ended`.
    func ended(_ address: SocketAddress, wasComplete: Bool) {
        admission.withLock { $0.ended(address, wasComplete: wasComplete) }
    }

    /// Connections of all endpoints, those in handshake included.
    var connections: Int { admission.withLock { $0.connections } }
    /// Handshakes under way.
    var handshakes: Int { admission.withLock { $0.handshakes } }
    /// Addresses that have connections; for tests.
    var addressCount: Int { admission.withLock { $0.addressCount } }
}
