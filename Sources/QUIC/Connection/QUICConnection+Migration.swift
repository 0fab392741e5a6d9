// A client's migration to another network: a new local socket for the same connection and its streams.
import CGnuTLS
import CLinux
import CNgtcp2

extension QUICConnection {
    /// How a client moves.
    public enum MigrationKind: Sendable, Equatable {
        /// The old path stays in use until the new one is validated, and when that fails.
        case afterValidation
        /// The old path is gone, or the kernel does not use it any more: everything goes over the new one from now on.
        /// When nobody answers there, the connection stays there nevertheless; move again, or close it.
        case atOnce
    }

    /// A move under way.
    struct Migration {
        let target: UDPSocket
        /// Where the peer is asked.
        let remote: SocketAddress
        let kind: MigrationKind
        var hasFailed = false
    }

    /// Moves a client's connection to a new local socket, for example on another network, and validates that path (RFC
    /// 9000, section 9). The delegate's `didEndMigration` reports the outcome. A migration that another one replaces
    /// reports nothing.
    ///
    /// - Parameters:
    ///   - local: The address to bind; port 0 lets the kernel choose.
    ///   - remote: Another address of the same peer, of either family; nil stays with the present one. RFC 9000,
    ///     section 9.6, knows only the address that the server prefers, so both ends must be known to agree on more:
    ///     pttd's protocol does.
    ///   - kind: What becomes of the old path meanwhile.
    /// - Throws: `QUICError.invalidState` when the handshake is not confirmed, the server is out of spare connection
    ///   ids, this is a server, or a move `afterValidation` is under way and another one is asked for; `.socket`;
    ///   `.closed`.
    public func migrate(
        to local: SocketAddress, peerAt remote: SocketAddress? = nil, _ kind: MigrationKind = .afterValidation
    ) throws(QUICError) {
        checkLoop()
        guard let conn, isOpen else { throw QUICError.closed }
        guard !isServer else { throw QUICError.invalidState("only a client can move a connection") }
        if migration != nil, kind == .afterValidation { throw QUICError.invalidState("a move is under way") }
        let new = try endpoint.openSocket(local, like: socket)
        let previous = migration
        let remote = remote ?? (previous?.kind == .atOnce ? previous?.remote : nil) ?? remoteAddress
        let end = StoredEnd(remote, family: new.family)
        guard end.length > 0 else {
            endpoint.closeUnusedSockets()
            throw QUICError.invalidSetting("\(remote) cannot be reached from a socket for IPv4 only")
        }
        // The library tells of the move that it gives up for this one.
        migration = nil
        let status = withExtendedLifetime(end) {
            new.withPath(to: end.end) { path in
                switch kind {
                case .afterValidation: ngtcp2_conn_initiate_migration(conn, path, endpoint.timestamp())
                case .atOnce: ngtcp2_conn_initiate_immediate_migration(conn, path, endpoint.timestamp())
                }
            }
        }
        guard status == 0 else {
            migration = previous
            endpoint.closeUnusedSockets()
            throw QUICError.invalidState("cannot move now: \(String(cString: ngtcp2_strerror(status)))")
        }
        // The old socket may be stuck on a network that is gone; nothing may wait for it.
        if kind == .atOnce {
            if let previous, previous.kind == .atOnce { socket = previous.target }
            endpoint.sender.abandon(socket)
        }
        migration = Migration(target: new, remote: remote, kind: kind)
        endpoint.closeUnusedSockets()
        endpoint.markDirty(self)
    }

    /// The move is done, or nobody answered.
    func endMigration(succeeded: Bool) {
        guard let migration else { return }
        if !succeeded, migration.kind == .atOnce { socket = migration.target }
        self.migration = nil
        endpoint.closeUnusedSockets()
        post(.migrated(succeeded))
    }
}
