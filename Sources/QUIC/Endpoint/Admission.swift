// Decides which clients may open a connection: limits on all pending handshakes, and on those of one address. Pure.
import MonotonicTime
import Synchronization

/// Counts the connections of a server by the addresses that they began from.
///
/// A false source address costs its sender nothing, so it must take no more than few places that others want: beyond a
/// few handshakes from one address, or a rate of all, a new client must prove its address by a Retry (RFC 9000, section
/// 8.1.2).
struct Admission {
    enum Verdict: Equatable {
        case admitted
        /// It is to be sent a Retry.
        case mustProveAddress
        /// It is not answered.
        case refused
    }

    private struct Count {
        var connections = 0
        var handshakes = 0
    }

    /// Handshakes from one address that has not proven itself; each lasts as long as `handshakeTimeout`.
    static let unprovenHandshakesPerAddress = 16

    private let options: QUICServerOptions
    private var counts: [SocketAddress: Count] = [:]
    private var beginnings: TokenBucket
    /// Connections, those in handshake included.
    private(set) var connections = 0
    /// Handshakes under way.
    private(set) var handshakes = 0

    init(_ options: QUICServerOptions) {
        self.options = options
        let perSecond = max(1, options.handshakesPerSecond)
        beginnings = TokenBucket(depth: perSecond, perSecond: perSecond, at: .zero)
    }

    /// Whether one more may begin from `address`; `isProven`: its packet has a token of this server for that address.
    mutating func judge(_ address: SocketAddress, isProven: Bool, at now: Instant) -> Verdict {
        let count = counts[address.block] ?? Count()
        guard connections < options.maximumConnections, handshakes < options.maximumHandshakes,
            count.connections < options.maximumConnectionsPerAddress
        else { return .refused }
        let isWithinRate = beginnings.take(at: now)
        guard !isProven else { return .admitted }
        switch options.addressValidation {
        case .never: return .admitted
        case .always: return .mustProveAddress
        case .whenHandshakesExceed(let limit):
            let isCalm =
                isWithinRate && handshakes <= limit && count.handshakes < Self.unprovenHandshakesPerAddress
            return isCalm ? .admitted : .mustProveAddress
        }
    }

    /// The same; if one may begin, it has begun.
    mutating func admit(_ address: SocketAddress, isProven: Bool, at now: Instant) -> Verdict {
        let verdict = judge(address, isProven: isProven, at: now)
        if verdict == .admitted { began(address) }
        return verdict
    }

    /// A connection begins from `address`, with its handshake.
    mutating func began(_ address: SocketAddress) {
        connections += 1
        handshakes += 1
        counts[address.block, default: Count()].connections += 1
        counts[address.block, default: Count()].handshakes += 1
    }

    /// The handshake of a connection from `address` is complete.
    mutating func completed(_ address: SocketAddress) {
        handshakes -= 1
        counts[address.block]?.handshakes -= 1
    }

    /// A connection from `address` has ended; `wasComplete`: after its handshake.
    mutating func ended(_ address: SocketAddress, wasComplete: Bool) {
        if !wasComplete { completed(address) }
        connections -= 1
        counts[address.block]?.connections -= 1
        if counts[address.block]?.connections == 0 { counts[address.block] = nil }
    }

    /// Addresses that have connections; for tests.
    var addressCount: Int { counts.count }
}

/// The bounds on connections, and the memory of early data, that several endpoints (workers) of one server share, each on its own
/// thread: to a client they are one.
public final class QUICServerGroup: Sendable {
    let admission: Mutex<Admission>
    let replayGuard = ReplayGuard()

    /// For endpoints with these options.
    public init(_ options: QUICServerOptions) { admission = Mutex(Admission(options)) }
}
