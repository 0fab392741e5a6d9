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
    /// How many each address has, and who of them had proven nothing when it came, the oldest first. A flood must not make each
    /// newcomer dearer than the last.
    private var counts: [String: Int] = [:]
    private var newcomers = Line()
    private var newcomersOfAddress: [String: Line] = [:]

    init(_ limits: Limits) { self.limits = limits }

    /// Connections that are there.
    var count: Int { connections.count }

    /// Somebody has connected; nil: through a proxy, whose connections are those of many.
    mutating func accept(from address: String?, at now: Instant) -> Verdict {
        var victim: ID?
        if let address, counts[address, default: 0] >= limits.connectionsPerAddress {
            victim = unproven(of: address) ?? silent(at: now) { $0.address == address }
            guard victim != nil else { return .refuse }
        } else if connections.count >= limits.connections {
            victim = unproven() ?? silent(at: now) { _ in true }
            guard victim != nil else { return .refuse }
        }
        if let victim { closed(victim) }
        defer { next += 1 }
        connections[next] = Connection(address: address, acceptedAt: now, readAt: now)
        newcomers.append(next)
        if let address {
            counts[address, default: 0] += 1
            newcomersOfAddress[address, default: Line()].append(next)
        }
        return .admit(next, dropping: victim)
    }

    /// It has shown that it is somebody: a client with a certificate, or one that has taken an answer.
    mutating func proved(_ id: ID) { connections[id]?.isProven = true }

    /// Bytes of it have come.
    mutating func read(_ id: ID, at now: Instant) { connections[id]?.readAt = now }

    /// It is closed.
    mutating func closed(_ id: ID) {
        guard let connection = connections.removeValue(forKey: id) else { return }
        newcomers.removeOne(keeping: connections)
        guard let address = connection.address else { return }
        counts[address, default: 1] -= 1
        newcomersOfAddress[address]?.removeOne(keeping: connections)
        if counts[address] == 0 {
            counts[address] = nil
            newcomersOfAddress[address] = nil
        }
    }

    private mutating func unproven() -> ID? { newcomers.first(keeping: connections) }

    private mutating func unproven(of address: String) -> ID? {
        newcomersOfAddress[address]?.first(keeping: connections)
    }

    private func silent(at now: Instant, _ isMeant: (Connection) -> Bool) -> ID? {
        connections.filter { isMeant($0.value) && now - $0.value.readAt >= limits.silence }
            .min { ($0.value.readAt, $0.key) < ($1.value.readAt, $1.key) }?.key
    }

    /// Connections in the order in which they came. Those that are closed or proven are taken out later, many at a time.
    private struct Line {
        private var ids: [ID] = []
        private var head = 0
        private var gone = 0

        mutating func append(_ id: ID) { ids.append(id) }

        /// The oldest one that is there and has proven nothing.
        mutating func first(keeping known: [ID: Connection]) -> ID? {
            while head < ids.count {
                if let connection = known[ids[head]], !connection.isProven { return ids[head] }
                head += 1
            }
            (ids, head, gone) = ([], 0, 0)
            return nil
        }

        /// One of them has gone.
        mutating func removeOne(keeping known: [ID: Connection]) {
            gone += 1
            guard gone > 64, gone > ids.count / 2 else { return }
            ids = ids[head...].filter { known[$0].map { !$0.isProven } ?? false }
            (head, gone) = (0, 0)
        }
    }
}
