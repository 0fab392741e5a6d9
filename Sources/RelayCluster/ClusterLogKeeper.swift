// Keeps the log of a cluster short: the node that serves writes all records as they are, and removes what is before. Calls block.
import Cryptography
import NATS
import RelayStore

/// When the log of a cluster is too long.
///
/// A node that begins reads the whole log, a message in about 0.4 ms. And when the log is full no record can be changed.
public struct ClusterLogLimits: Equatable, Sendable {
    /// Messages.
    public var messages: UInt64 = 100_000
    /// Bytes, as a share of the most that it takes.
    public var share = 0.5
    /// How often the node that serves looks.
    public var interval: Duration = .seconds(60)
    /// It is shortened where that makes it smaller by this factor at least.
    static let gain = 2

    /// The usual ones.
    public init() {}

    func areExceeded(messages: UInt64, bytes: Int, bytesMaximum: Int) -> Bool {
        messages > self.messages || Double(bytes) > Double(bytesMaximum) * share
    }
}

/// Shortens the log, for the node that serves.
struct ClusterLogKeeper {
    let connection: NATSConnection
    let configuration: ClusterConfiguration
    let store: RelayStore
    let relay: ClusterIdentity
    let log: ClusterLog
    let limits: ClusterLogLimits

    private static let wait: Duration = .seconds(2)

    /// What has come of a look.
    enum Outcome: Equatable {
        /// It is short enough.
        case isShort
        /// It is long, but so are the records. They were not written, since the log would not be shorter by much.
        case isAllNeeded(bytes: Int)
        /// It has been shortened.
        case shortened(from: Int, to: Int)
    }

    /// Looks, and shortens the log where it is too long.
    ///
    /// - Parameter needed: The bytes at which it was all needed.
    /// - Throws: `NATSError`, `ClusterError`, `RelayStoreError`. The log is longer by what was written then, and as good as before.
    func look(needed: Int = 0) throws -> Outcome {
        let name = configuration.log.name
        let state = try connection.state(of: name, wait: Self.wait)
        guard
            let message = try connection.last(
                of: configuration.descriptionSubject, in: configuration.state.name, wait: Self.wait),
            let description = ClusterDescription(message: message.bytes)
        else { throw ClusterError.noRecords(configuration.name) }
        if state.first < description.first {
            // The node that has written the beginning ended before it removed the rest.
            return try removeWhatIsBefore(description.first, of: description.cluster, state)
        }
        guard state.permitsPurge,
            limits.areExceeded(
                messages: state.messages, bytes: state.bytes, bytesMaximum: state.bytesMaximum),
            state.bytes > needed + needed / 4
        else { return .isShort }
        guard let first = try writeBeginning(unlessLongerThan: state.bytes / ClusterLogLimits.gain) else {
            return .isAllNeeded(bytes: state.bytes)
        }
        // What is in the log may be told of, by a node that serves no longer, too. It is refused if a later one was told of meanwhile.
        _ = try connection.publish(
            ClusterDescription(
                cluster: description.cluster, pin: description.pin, first: first, allServe: description.allServe
            ).message,
            to: configuration.descriptionSubject, of: configuration.state.name, after: .ofSubject(message.sequence),
            wait: Self.wait)
        return try removeWhatIsBefore(first, of: description.cluster, state)
    }

    private func removeWhatIsBefore(
        _ first: UInt64, of cluster: String, _ before: NATSConnection.StreamState
    ) throws -> Outcome {
        // Nothing is lost only if a node has written a beginning there.
        guard let message = try connection.message(first, of: configuration.log.name, wait: Self.wait),
            let plain = relay.open(message.bytes, at: first, of: cluster), ClusterRecord.isStartOfBeginning(plain)
        else { throw ClusterError.forged(position: first) }
        try connection.purge(configuration.log.name, before: first, wait: Self.wait)
        let after = try connection.state(of: configuration.log.name, wait: Self.wait)
        return .shortened(from: before.bytes, to: after.bytes)
    }

    /// - Returns: The position of the beginning; nil: it would have more bytes than `bytesMaximum`.
    private func writeBeginning(unlessLongerThan bytesMaximum: Int) throws -> UInt64? {
        try store.repeatEverything { [relay, log] changes, place in
            guard changes.reduce(0, { $0 + $1.count }) <= bytesMaximum else { return nil }
            guard let cluster = Hexadecimal.decode(place.cluster) else {
                throw ClusterError.unreadable(position: place.position)
            }
            return try log.append(.init(cluster: cluster, pin: relay.pin, changes: changes), behind: place)
        }?.lowerBound
    }
}
