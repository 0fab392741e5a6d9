// What the endpoints of one port have in common, each of which has a thread of its own.
import MonotonicTime
import Synchronization

/// The bounds on connections, and the memory of early data, that several endpoints (workers) of one server share: to a client they
/// are one.
public final class QUICServerGroup: Sendable {
    private let admission: Mutex<Admission>
    let replayGuard = ReplayGuard()

    /// For endpoints with these options.
    public init(_ options: QUICServerOptions) { admission = Mutex(Admission(options)) }

    /// See `Admission.judge`. Until `began`, others may be admitted by it too: one for each endpoint.
    func judge(_ address: SocketAddress, isProven: Bool, at now: Instant) -> Admission.Verdict {
        admission.withLock { $0.judge(address, isProven: isProven, at: now) }
    }

    /// See `Admission.began`.
    func began(_ address: SocketAddress) { admission.withLock { $0.began(address) } }

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
