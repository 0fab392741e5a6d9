// The state of a relay: its key, its transport's secrets, and the records of its channels and members.
import Cryptography
import Files
import Glibc
import Logging
import QUIC
import RelayHTTP
import RelayProtocol
import RelayServer
import RelayStore
import Settings

/// Why the state directory is of no use, and what to do.
struct RelayStateError: Error, Equatable, CustomStringConvertible {
    let description: String
    /// Whether the same may succeed later although nobody mends anything.
    var mayPass = false

    static func badName(_ text: String, of whose: String) -> RelayStateError {
        RelayStateError(
            description:
                "'\(text)' cannot be a \(whose)'s name; use 1 to \(DisplayName.byteCountMaximum) bytes of plain text")
    }

    static let channelsOfCluster = RelayStateError(
        description:
            "the channels of a cluster are in its records only: remove [[channel]] and --channel, and use "
            + "'pttrelay channel add'")
}

/// A relay's state directory, readable by the relay only: `identity.pem`, `transport.key`, `push-server.pem`, and the records
/// `relay.sqlite`. While it is open, no other process has it.
struct RelayState {
    /// The relay's key, which invitations name.
    let identity: Identity
    /// The transport's secrets, with which a restarted relay informs its former members that their connections are
    /// gone. Nil where the state is opened only for reading, which must not change them, and of a node of a cluster, which derives them.
    let transportKeys: RelayTransportKeys?
    /// Channels, invitations and members.
    let store: RelayStore
    private let directory: String
    private let lock: DirectoryLock

    private static let identityFile = "/identity.pem"
    private static let transportFile = "/transport.key"
    private static let channelsFile = "/channels.toml"
    private static let pushServerFile = "/push-server.pem"

    /// Where connections are: see `PlacesFile`.
    var placesFile: String { directory + "/connections" }

    /// How long a start, or a command without a relay, waits for another process that has the directory.
    static let lockTimeout = Duration.seconds(1)

    /// The state in `directory`, which is created if it is missing.
    ///
    /// docs/operators.md says what a start needs: the key and the records are required and belong together; everything
    /// else is recreated when it is damaged.
    ///
    /// - Parameter isClusterNode: Whether its records come from a cluster, and its key from another node of that.
    /// - Throws: `FileError` with the cause `.inUse` while another process has it, and other errors that say what to
    ///   do.
    static func open(_ directory: String, isClusterNode: Bool = false, logger: Logger) throws -> RelayState {
        try AtomicFile.makeDirectory(directory, mode: 0o700)
        let lock = try DirectoryLock(directory, timeout: lockTimeout)
        AtomicFile.removeLeftovers(in: directory)
        let known = try loadIdentity(directory)
        for notice in known?.notices ?? [] { logger.notice("\(notice)") }
        guard known != nil || !isClusterNode else {
            throw RelayStateError(
                description:
                    "there is no relay's key in \(directory): copy identity.pem from another node of the cluster; the first "
                    + "node gets one by a start without [cluster]")
        }
        let store = try records(directory, of: isClusterNode ? nil : known?.identity)
        // Last: who has a key has records, too.
        let identity = try known?.identity ?? makeIdentity(directory, beside: store, logger)
        // Those of a node are derived from the relay's key when it serves.
        let keys = isClusterNode ? nil : transportKeys(directory + transportFile, logger)
        let state = RelayState(
            identity: identity, transportKeys: keys, store: store, directory: directory, lock: lock)
        try state.takeOver(logger)
        return state
    }

    /// The state of an earlier start in `directory`. Nothing in it is recreated.
    static func existing(_ directory: String, logger: Logger) throws -> RelayState {
        let identity = try existingIdentity(directory)
        let lock = try DirectoryLock(directory, timeout: lockTimeout)
        let state = RelayState(
            identity: identity, transportKeys: nil, store: try records(directory, of: identity), directory: directory,
            lock: lock)
        try state.takeOver(logger)
        return state
    }

    /// The records in `directory`, checked to be readable. They are created for a relay without a key, and for one of
    /// an earlier version, which had no records.
    private static func records(_ directory: String, of identity: Identity?) throws(RelayStoreError) -> RelayStore {
        let isNew = identity == nil || AtomicFile.exists(directory + channelsFile)
        let store = try RelayStore.open(path: directory + "/" + RelayStore.fileName, mayMake: isNew)
        try store.check()
        return store
    }

    /// A new relay's key.
    private static func makeIdentity(_ directory: String, beside store: RelayStore, _ logger: Logger) throws -> Identity
    {
        guard try store.channels().isEmpty else {
            throw RelayStateError(
                description:
                    "\(directory + identityFile) is missing, though this relay has had a key: every link names it, "
                    + "and no member would accept another one. Put a copy of the file there; if there is none, 'pttrelay "
                    + "begin-anew identity' makes another key, and every member needs a new link")
        }
        let (identity, notices) = try Identity.loadOrCreate(at: directory + identityFile, commonName: "pttrelay")
        for notice in notices { logger.notice("\(notice)") }
        return identity
    }

    private static func loadIdentity(_ directory: String) throws -> (identity: Identity, notices: [IdentityNotice])? {
        do throws(IdentityError) {
            return try Identity.load(from: directory + identityFile)
        } catch {
            guard case .corrupt = error else { throw error }
            throw RelayStateError(
                description:
                    "\(error); if there is none, 'pttrelay begin-anew identity' makes another key, and every member "
                    + "needs a new link")
        }
    }

    /// The relay's key; nil: it has none yet.
    static func identity(in directory: String) throws -> Identity? { try loadIdentity(directory)?.identity }

    /// The relay's key that an earlier start made.
    static func existingIdentity(_ directory: String) throws -> Identity {
        if let identity = try identity(in: directory) { return identity }
        throw RelayStateError(
            description: "there is no relay in \(directory); start it with 'pttrelay run', "
                + "or name its directory with --state")
    }

    /// The parts of the state that an operator can replace when they are lost.
    enum Part: String, CaseIterable {
        /// The key, which every link names.
        case identity
        /// Channels, invitations and members.
        case records
    }

    /// Replaces a part of the state. The old file is kept under another name.
    ///
    /// - Returns: That name; nil: there was no file.
    static func beginAnew(_ part: Part, in directory: String) throws -> String? {
        guard AtomicFile.exists(directory + identityFile) || AtomicFile.exists(directory + "/" + RelayStore.fileName)
        else {
            throw RelayStateError(
                description: "there is no relay in \(directory); name its directory with --state")
        }
        let lock = try DirectoryLock(directory, timeout: lockTimeout)
        defer { withExtendedLifetime(lock) {} }
        switch part {
        case .identity:
            let path = directory + identityFile
            let aside = AtomicFile.exists(path) ? try AtomicFile.setAside(path, as: "old") : nil
            _ = try Identity.loadOrCreate(at: path, commonName: "pttrelay")
            return aside
        case .records:
            let path = directory + "/" + RelayStore.fileName
            let aside = try RelayStore.setAside(path: path, as: "old")
            _ = try RelayStore.open(path: path)
            return aside
        }
    }

    /// Takes the channels of an earlier version over, whose file is then kept under another name. What a crash interrupts is
    /// taken up at the next start.
    private func takeOver(_ logger: Logger) throws {
        let path = directory + Self.channelsFile
        guard AtomicFile.exists(path) else { return }
        let (known, host, port) = try SettingsFile.read(path: path, Self.read)
        let names = Set(try store.channels().map(\.name))
        for channel in known where !names.contains(channel.name) {
            try store.addChannel(
                channel.name, id: channel.id, token: channel.token, isServed: true, now: Int64(time(nil)))
        }
        if let host, let port, try store.lastStart() == nil { try store.setLastStart(host: host, port: port) }
        guard rename(path, path + ".taken-over") == 0 else { throw FileError("rename", path) }
        logger.notice(
            "the channels of channels.toml are in \(RelayStore.fileName) now", metadata: ["channels": "\(known.count)"])
    }

    // MARK: The certificate of its own

    /// The certificate of the endpoints for pushes and for the web, if none is configured. It is created once, for the names that this machine
    /// has then, and recreated when it is damaged.
    func serverIdentity(_ names: [Identity.ServerName], logger: Logger) throws -> Identity {
        let commonName = try host() ?? "pttrelay"
        do throws(IdentityError) {
            let (identity, notices) = try Identity.loadOrCreate(
                at: directory + Self.pushServerFile, commonName: commonName, serverNames: names, replacesDamaged: true)
            for notice in notices {
                if case .replaced = notice {
                    logger.warning(
                        "\(notice); clients that push trust the old certificate: give them the new one ('pttrelay push-server-certificate')"
                    )
                } else {
                    logger.notice("\(notice)")
                }
            }
            return identity
        } catch {
            guard case .file = error else { throw error }
            logger.warning("the relay's own TLS certificate is valid only until the next start: \(error)")
            return try Identity(generating: commonName, serverNames: names)
        }
    }

    /// The certificate of the HTTP endpoint that an earlier start made.
    static func existingPushServerIdentity(_ directory: String) throws -> Identity {
        guard let (identity, _) = try Identity.load(from: directory + pushServerFile) else {
            throw RelayStateError(
                description: "the relay has made no certificate for pushes; add [push] to its configuration, "
                    + "without 'certificate', and start it")
        }
        return identity
    }

    // MARK: Operator

    /// What a token of the relay's own is for.
    enum TokenUse: String {
        /// The operator's page and the metrics.
        case page = "operator"
        case api

        fileprivate var file: String { "/\(rawValue).token" }
    }

    /// The token for that use. It is created once, and recreated when it is damaged.
    func token(for use: TokenUse, _ logger: Logger) -> OperatorToken {
        let user = use == .page ? "the operator's page" : "the API"
        return Self.kept(
            directory + use.file, logger, read: Self.token, bytes: { Array(($0.text + "\n").utf8) },
            make: OperatorToken.init,
            consequence: "\(user) wants another token: 'pttrelay \(use.rawValue)-token' prints it")
    }

    /// The token that an earlier start made; nil: none.
    static func existingToken(for use: TokenUse, in directory: String) throws -> OperatorToken? {
        let path = directory + use.file
        guard let bytes = try RegularFile.readIfPresent(path, byteCountMax: smallFileMax, followsLinks: false) else {
            return nil
        }
        guard let token = token(bytes) else {
            throw RelayStateError(description: "\(path) is damaged; restart the relay, which makes another one")
        }
        return token
    }

    private static func token(_ bytes: [UInt8]) -> OperatorToken? {
        OperatorToken(String(decoding: bytes, as: UTF8.self))
    }

    // MARK: Files

    /// A file that the relay makes itself is smaller.
    private static let smallFileMax = 4_096

    /// A value from a file that can be recreated: the stored value, or a new one if there is no file or it is damaged.
    /// A damaged file is set aside. No problem with such a file keeps the relay from running.
    private static func kept<Value>(
        _ path: String, _ logger: Logger, read: ([UInt8]) -> Value?, bytes: (Value) -> [UInt8], make: () -> Value,
        consequence: String
    ) -> Value {
        do throws(FileError) {
            let found: [UInt8]?
            do throws(FileError) {
                found = try RegularFile.readIfPresent(path, byteCountMax: smallFileMax, followsLinks: false)
            } catch {
                guard error.isDamage else { throw error }
                found = []
            }
            if let found {
                if let value = read(found) { return value }
                let aside = try AtomicFile.setAside(path)
                logger.warning("\(path) was damaged, and is kept as \(aside); \(consequence)")
            }
            let value = make()
            do throws(FileError) {
                try AtomicFile.write(bytes(value), to: path, isSecret: true)
            } catch {
                logger.warning("\(error); until then, every start repeats this: \(consequence)")
            }
            return value
        } catch {
            logger.warning("\(error); \(consequence)")
            return make()
        }
    }

    private static func read(_ root: SettingsTable) -> ([RelayChannelConfiguration], String?, UInt16?) {
        let start = root.table("last-start")
        let host = start?.optional("host", .string)
        let port = start?.optional("port", .integer(in: 1...65_535)).flatMap { UInt16(exactly: $0) }
        let channels = root.tables("channel", countMax: 4_096).compactMap { table -> RelayChannelConfiguration? in
            let name = DisplayName(table.required("name", .string))
            let id = ChannelID(table.required("id", .string(lengthMax: 36)))
            let token = Base64URL.decode(table.required("token", .string)).flatMap { InvitationToken($0) }
            guard let name, let id, let token else {
                table.problem(
                    nil, "is not a channel as pttrelay writes it",
                    "restore the file, or remove it to make new invitations")
                return nil
            }
            return RelayChannelConfiguration(id: id, name: name, token: token)
        }
        return (channels, host, port)
    }

    private static func transportKeys(_ path: String, _ logger: Logger) -> RelayTransportKeys {
        let keys = kept(
            path, logger, read: { RelayTransportKeys(bytes: $0) }, bytes: \.bytes, make: RelayTransportKeys.generate,
            consequence: "the members' 0-RTT tickets are void, so their next connection takes longer")
        guard age(of: path) > ticketKeyLifetime else { return keys }
        let fresh = keys.withFreshTicketKey()
        do throws(FileError) {
            try AtomicFile.write(fresh.bytes, to: path, isSecret: true)
            return fresh
        } catch {
            logger.warning("the key of the tickets is not renewed: \(error)")
            return keys
        }
    }

    /// An attacker with the ticket key could forge tickets of any member, so a start replaces a key that is older than
    /// this, in seconds. (GnuTLS derives the keys in use from it, which rotate; a ticket is valid for 6 hours.)
    private static let ticketKeyLifetime = Int(RelayTransportKeys.ticketPeriod)

    /// Seconds since the file was written; 0 when the clock says that it is in the future (a machine without a battery).
    private static func age(of path: String) -> Int {
        FileFacts(of: path).map { max(0, time(nil) - $0.modifiedAt) } ?? 0
    }
}
