// What is done to a cluster by command: it is made of a relay's records, and looked at. Calls block.
import Cryptography
import NATS
import RelayStore

/// The commands of an operator.
public struct ClusterAdministration: Sendable {
    private let configuration: ClusterConfiguration
    private let connection: NATSConnection

    private static let wait: Duration = .seconds(5)

    /// Connects to the servers.
    ///
    /// - Throws: `NATSError`.
    public init(_ configuration: ClusterConfiguration) throws(NATSError) {
        self.configuration = configuration
        connection = try NATSConnection(configuration.nats)
    }

    /// Whether the cluster was made of the records of that relay: an import whose end it was not told of may have succeeded.
    ///
    /// - Throws: `NATSError`, `ClusterError.otherRelay`, and `.hasRecords` when it was made of others.
    public func hasRecords(of store: RelayStore, as relay: ClusterIdentity) throws -> Bool {
        guard
            let description = try Self.description(configuration, connection, of: relay.pin, wait: Self.wait)
        else { return false }
        guard try store.logPlace()?.cluster == description.cluster else {
            throw ClusterError.hasRecords(configuration.name)
        }
        return true
    }

    /// Makes the cluster of the records of a relay that does not run. What was interrupted can be done again.
    ///
    /// - Returns: The messages that it took; 0: it was made before.
    /// - Throws: `NATSError`, `ClusterError.otherRelay`, `.hasRecords`, `RelayStoreError`.
    public func importRecords(
        of store: RelayStore, as relay: ClusterIdentity, messageMaximum: Int? = nil
    ) throws -> Int {
        for stream in [configuration.log, configuration.shares, configuration.state] {
            try connection.add(stream, wait: Self.wait)
        }
        guard try !hasRecords(of: store, as: relay) else { return 0 }
        let beginning = ClusterRecord.Beginning(
            cluster: SecureRandom.bytes(ClusterRecord.Beginning.clusterByteCount), pin: relay.pin,
            changes: try store.everything())
        let cluster = Hexadecimal.encode(beginning.cluster)
        let log = ClusterLog(connection, configuration.log, of: relay) { _ in }
        let size = messageMaximum ?? log.messageMaximum
        guard let messages = ClusterRecord.beginning(beginning).messages(epoch: 0, byteCountMaximum: size) else {
            throw ClusterError.tooMuch
        }
        // Behind an attempt that was interrupted: its parts are skipped.
        let first = try connection.state(of: configuration.log.name, wait: Self.wait).last + 1
        var last = first - 1
        for message in messages {
            last = try connection.publish(
                relay.seal(message, at: last + 1, of: cluster), to: configuration.log.subject,
                of: configuration.log.name, after: .ofStream(last), wait: Self.wait)
        }
        let description = ClusterDescription(
            cluster: cluster, pin: relay.pin.description, first: first, allServe: true)
        // Before it is told of: the answer may be lost.
        try store.begin(LogPlace(cluster: cluster, epoch: 0, position: last))
        do throws(NATSError) {
            _ = try connection.publish(
                description.message, to: configuration.descriptionSubject, of: configuration.state.name, after: .none,
                wait: Self.wait)
        } catch {
            guard error.kind == .otherLast else { throw error }
            // By another relay, or by this one in an attempt whose answer was lost.
            _ = try hasRecords(of: store, as: relay)
        }
        return messages.count
    }

    /// What a cluster is about.
    public struct Status: Equatable, Sendable {
        /// Which node serves which share; nil: none has begun yet.
        public var shares: ShareTable?
        /// What the nodes have said of themselves.
        public var nodes: [ClusterNodeReport]
        /// The last position of the log, and how many messages it has.
        public var position: UInt64, messages: UInt64
        /// The log's bytes, and the most that it takes.
        public var logBytes: Int, logBytesMaximum: Int
        /// On how many servers it is kept.
        public var replicas: Int

        /// The node that writes the records; nil: none does.
        public var writer: ShareTable.Node? {
            shares.flatMap { table in table.nodes.first { $0.incarnation == table.writer?.incarnation } }
        }
    }

    /// How the cluster is.
    ///
    /// - Parameter pin: The fingerprint of the key of the relay that asks; nil: it has none yet.
    /// - Throws: `NATSError`, `ClusterError.otherRelay`, `.noRecords`, `.oneServes`.
    public func status(of pin: PublicKeyPin?) throws -> Status {
        _ = try Self.usableDescription(configuration, connection, of: pin, wait: Self.wait)
        let table = try ShareTableStream(connection, configuration.shares).read().table
        let log = try connection.state(of: configuration.log.name, wait: Self.wait)
        let nodes = try Self.reports(configuration, connection) { Self.wait }
        return Status(
            shares: table, nodes: nodes, position: log.last, messages: log.messages, logBytes: log.bytes,
            logBytesMaximum: log.bytesMaximum, replicas: log.replicas)
    }

    /// What the nodes have said of themselves.
    ///
    /// - Parameter wait: How long the next answer may take.
    static func reports(
        _ configuration: ClusterConfiguration, _ connection: NATSConnection, wait: () throws -> Duration
    ) throws -> [ClusterNodeReport] {
        let state = configuration.state.name
        let subjects = try connection.subjects(configuration.nodeSubject(">"), of: state, wait: try wait())
        return try subjects.sorted().prefix(reportsMaximum).compactMap { subject in
            try connection.last(of: subject, in: state, wait: try wait()).flatMap {
                ClusterNodeReport(message: $0.bytes)
            }
        }
    }

    private static let reportsMaximum = 100

    /// What the cluster is.
    ///
    /// - Parameter pin: The fingerprint of the key that it has to have; nil: any.
    /// - Throws: `NATSError`, `ClusterError.otherRelay`, `.noRecords`, `.oneServes`.
    static func usableDescription(
        _ configuration: ClusterConfiguration, _ connection: NATSConnection, of pin: PublicKeyPin?, wait: Duration
    ) throws -> ClusterDescription {
        guard let description = try description(configuration, connection, of: pin, wait: wait) else {
            throw ClusterError.noRecords(configuration.name)
        }
        guard description.allServe == true else { throw ClusterError.oneServes(configuration.name) }
        return description
    }

    /// The same; nil: it has no records.
    static func description(
        _ configuration: ClusterConfiguration, _ connection: NATSConnection, of pin: PublicKeyPin?, wait: Duration
    ) throws -> ClusterDescription? {
        let message: NATSMessage?
        do throws(NATSError) {
            message = try connection.last(
                of: configuration.descriptionSubject, in: configuration.state.name, wait: wait)
        } catch {
            guard error.kind == .noStream else { throw error }
            return nil
        }
        guard let message else { return nil }
        guard let description = ClusterDescription(message: message.bytes) else {
            throw ClusterError.unreadable(position: 0)
        }
        // Two relays with one name for their clusters: all else that is wrong then follows from it.
        if let pin, description.pin != pin.description { throw ClusterError.otherRelay(configuration.name) }
        return description
    }
}
