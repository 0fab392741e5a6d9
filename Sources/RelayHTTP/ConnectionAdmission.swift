// Which connections are accepted, and which ones are closed to make space. Pure.
import MonotonicTime

/// Keeps the connections of a port. When there are too many, of an address or of all, a newcomer takes the place of the oldest one that
/// has proven nothing; after these, of the one that has been silent longest. So silent connections keep nobody waiting.
package struct ConnectionAdmission {
    /// How many there may be.
    package struct Limits {
        /// Of all addresses.
        var connections: Int
        /// Of one address; of one /64 network of IPv6.
        var connectionsPerAddress: Int
        /// How long a proven connection has to be silent before it yields.
        var silence: Duration

        /// Limits of a port.
        package init(connections: Int, connectionsPerAddress: Int, silence: Duration) {
            self.connections = connections
            self.connectionsPerAddress = connectionsPerAddress
            self.silence = silence
        }
    }

    /// Names a connection, once.
    package typealias ID = UInt64

    /// What becomes of a newcomer.
    enum Verdict: Equatable {
        /// It is let in, and the other one, if any, is closed.
        case admit(ID, dropping: ID?)
        /// It is closed.
        case refuse
    }

    private struct Connection {
        let address: String?
        let acceptedAt: Instant
        var isProven = false
        var readAt: Instant
    }

    private let limits: Limits
    private var connections: [ID: Connection] = [:]
    private var next: ID = 0

    init(_ limits: Limits) { self.limits = limits }

    /// Connections that are there.
    var count: Int { connections.count }

    /// Somebody has connected; nil: through a proxy, whose connections are those of many.
    mutating func accept(from address: String?, at now: Instant) -> Verdict {
        let ofAddress = address.map { address in connections.count { $0.value.address == address } } ?? 0
        var victim: ID?
        if ofAddress >= limits.connectionsPerAddress {
            victim = yielding(at: now) { $0.address == address }
            guard victim != nil else { return .refuse }
        } else if connections.count >= limits.connections {
            victim = yielding(at: now) { _ in true }
            guard victim != nil else { return .refuse }
        }
        if let victim { connections[victim] = nil }
        defer { next += 1 }
        connections[next] = Connection(address: address, acceptedAt: now, readAt: now)
        return .admit(next, dropping: victim)
    }

    /// It has shown that it is somebody: a client with a certificate, or one that has taken an answer.
    mutating func proved(_ id: ID) { connections[id]?.isProven = true }

    /// Bytes of it have come.
    mutating func read(_ id: ID, at now: Instant) { connections[id]?.readAt = now }

    /// It is closed.
    mutating func closed(_ id: ID) { connections[id] = nil }

    private func yielding(at now: Instant, _ isMeant: (Connection) -> Bool) -> ID? {
        let meant = connections.filter { isMeant($0.value) }
        let unproven = meant.filter { !$0.value.isProven }
        if let oldest = unproven.min(by: { ($0.value.acceptedAt, $0.key) < ($1.value.acceptedAt, $1.key) }) {
            return oldest.key
        }
        return meant.filter { now - $0.value.readAt >= limits.silence }
            .min { ($0.value.readAt, $0.key) < ($1.value.readAt, $1.key) }?.key
    }
}
