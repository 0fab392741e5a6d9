// What a relay keeps: its key, its transport's secrets, and the records of its channels and members.
import Cryptography
import Glibc
import Logging
import RelayHTTP
import RelayProtocol
import RelayServer
import RelayStore
import Settings

/// Why the state directory is of no use, and what to do.
struct RelayStateError: Error, Equatable, CustomStringConvertible {
    let description: String

    static func badChannelName(_ text: String) -> RelayStateError {
        RelayStateError(
            description:
                "'\(text)' cannot be a channel's name; use 1 to \(DisplayName.byteCountMaximum) bytes of plain text")
    }

    /// Another process has the state directory.
    static func inUse(_ directory: String) -> RelayStateError {
        RelayStateError(
            description: "another pttrelay has \(directory); stop it, or choose another directory with --state")
    }
}

/// A relay's state directory, readable by the relay only: `identity.pem`, `transport.key`, `push-server.pem`, and the records
/// `relay.sqlite`. While it is open, no other process has it.
struct RelayState {
    /// The relay's key, which invitations name.
    let identity: Identity
    /// The transport's secrets, by which a restarted relay tells its former members that their connections are gone.
    /// Nil where the state is not opened for a relay: who only looks at it changes nothing of them.
    let transportKeys: RelayTransportKeys?
    /// Channels, invitations and members.
    let store: RelayStore
    private let directory: String
    private let lock: Lock

    private static let identityFile = "/identity.pem"
    private static let transportFile = "/transport.key"
    private static let channelsFile = "/channels.toml"
    private static let pushServerFile = "/push-server.pem"
    private static let operatorTokenFile = "/operator.token"

    /// The state in `directory`, which is made when it is not there.
    ///
    /// - Throws: `RelayStateError.inUse` while another process has it, and other errors that say what to do.
    static func open(_ directory: String, logger: Logger) throws -> RelayState {
        try makeDirectory(directory)
        let lock = try Lock(directory)
        let (identity, notices) = try Identity.loadOrCreate(at: directory + identityFile, commonName: "pttrelay")
        for notice in notices { logger.notice("\(notice)") }
        let keys = try transportKeys(directory + transportFile)
        return try RelayState(
            identity: identity, keys: keys, store: try records(directory, settingDamageAside: true, logger),
            directory: directory, lock: lock, logger: logger)
    }

    /// The state that an earlier start left in `directory`. Records that are damaged are refused, and left as they are.
    static func existing(_ directory: String, logger: Logger) throws -> RelayState {
        let identity = try existingIdentity(directory)
        let lock = try Lock(directory)
        return try RelayState(
            identity: identity, keys: nil, store: try records(directory, settingDamageAside: false, logger),
            directory: directory, lock: lock, logger: logger)
    }

    /// The records in `directory`, all of which can be read.
    private static func records(
        _ directory: String, settingDamageAside: Bool, _ logger: Logger
    ) throws(RelayStoreError) -> RelayStore {
        let (store, notice) = try RelayStore.open(
            path: directory + "/" + RelayStore.fileName, settingDamageAside: settingDamageAside)
        if let notice { logger.error("\(notice)") }
        try store.check()
        return store
    }

    /// The relay's key that an earlier start made.
    static func existingIdentity(_ directory: String) throws -> Identity {
        if let (identity, _) = try Identity.load(from: directory + identityFile) { return identity }
        throw RelayStateError(
            description: "there is no relay in \(directory); start it with 'pttrelay run', "
                + "or name its directory with --state")
    }

    private init(
        identity: Identity, keys: RelayTransportKeys?, store: RelayStore, directory: String, lock: Lock, logger: Logger
    ) throws {
        self.identity = identity
        self.directory = directory
        self.lock = lock
        self.store = store
        transportKeys = keys
        try takeOver(logger)
    }

    /// Takes the channels of an earlier version over, whose file is then kept under another name. What a crash interrupts is
    /// taken up at the next start.
    private func takeOver(_ logger: Logger) throws {
        let path = directory + Self.channelsFile
        guard access(path, F_OK) == 0 else { return }
        let (known, host, port) = try SettingsFile.read(path: path, Self.read)
        let names = Set(try store.channels().map(\.name))
        for channel in known where !names.contains(channel.name) {
            try store.addChannel(
                channel.name, id: channel.id, token: channel.token, isServed: true, now: Int64(time(nil)))
        }
        if let host, let port, try store.lastStart() == nil { try store.setLastStart(host: host, port: port) }
        guard rename(path, path + ".taken-over") == 0 else { throw Self.failure("rename", path) }
        logger.notice(
            "the channels of channels.toml are in \(RelayStore.fileName) now", metadata: ["channels": "\(known.count)"])
    }

    // MARK: Channels

    /// The channels to serve: those of the names, made if they are new, or without names those that were served last; and those that
    /// commands have added. What the operator has left out since is served only when it is named again.
    func channels(named names: [String]) throws -> [RelayChannelConfiguration] {
        var known = try store.channels()
        var result: [ChannelRecord] = []
        for text in names {
            guard let name = DisplayName(text) else { throw RelayStateError.badChannelName(text) }
            guard !result.contains(where: { $0.name == name }) else { continue }
            if let channel = known.first(where: { $0.name == name }) {
                result.append(channel)
            } else {
                result.append(try store.addChannel(name, now: Int64(time(nil))))
            }
        }
        known.removeAll { channel in result.contains { $0.id == channel.id } }
        result += known.filter { names.isEmpty && $0.isServed || $0.isAdded }
        guard !result.isEmpty else {
            throw RelayStateError(
                description: "there is no channel to serve; name one: pttrelay run --channel Team")
        }
        return try result.map { $0.configuration(token: try store.standingToken(of: $0.id)) }
    }

    /// The members of every channel.
    func roster() throws -> RelayRoster {
        var memberships: [ChannelID: [MemberID: RelayMembership]] = [:]
        for channel in try store.channels() {
            var of: [MemberID: RelayMembership] = [:]
            var last: MemberID?
            repeat {
                let page = try store.members(of: channel.id, after: last, limit: 1_000)
                for member in page { of[member.id] = member.membership }
                last = page.last?.id
            } while last != nil
            memberships[channel.id] = of
        }
        return RelayRoster(memberships: memberships)
    }

    /// The name in invitations of the last start; nil before the first.
    func host() throws -> String? { try store.lastStart()?.host }

    /// The link of a channel's standing invitation; nil when its media key is its members' own.
    func standingInvitation(_ channel: RelayChannelConfiguration, host: String, port: UInt16) throws -> InvitationLink?
    {
        guard let token = try store.standingToken(of: channel.id) else { return nil }
        return try InvitationLink(
            host: host, port: port, channelName: channel.name, channel: channel.id, token: token, pin: identity.pin)
    }

    // MARK: Pushes

    /// The certificate of the HTTP endpoint, for who configures none: made once, for the names by which this machine is
    /// known then.
    func pushServerIdentity(_ names: [Identity.ServerName], logger: Logger) throws -> Identity {
        let (identity, notices) = try Identity.loadOrCreate(
            at: directory + Self.pushServerFile, commonName: try host() ?? "pttrelay", serverNames: names)
        for notice in notices { logger.notice("\(notice)") }
        return identity
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

    /// What opens the operator's page: made once.
    func operatorToken() throws -> OperatorToken {
        if let token = try Self.existingOperatorToken(directory) { return token }
        let token = OperatorToken()
        try Self.write(Array((token.text + "\n").utf8), to: directory + Self.operatorTokenFile)
        return token
    }

    /// The token that an earlier start made; nil: none.
    static func existingOperatorToken(_ directory: String) throws -> OperatorToken? {
        let path = directory + operatorTokenFile
        guard access(path, F_OK) == 0 else { return nil }
        guard let token = OperatorToken(String(decoding: try SettingsFile.contents(of: path), as: UTF8.self)) else {
            throw RelayStateError(description: "\(path) is damaged; remove it, and the relay makes another")
        }
        return token
    }

    // MARK: Files

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

    private static func transportKeys(_ path: String) throws -> RelayTransportKeys {
        if access(path, F_OK) == 0 {
            guard let keys = RelayTransportKeys(bytes: try SettingsFile.contents(of: path)) else {
                throw RelayStateError(description: "\(path) is damaged; remove it, and the relay makes another")
            }
            guard age(of: path) > ticketKeyLifetime else { return keys }
            let fresh = keys.withFreshTicketKey()
            try write(fresh.bytes, to: path)
            return fresh
        }
        let keys = RelayTransportKeys.generate()
        try write(keys.bytes, to: path)
        return keys
    }

    /// Who got hold of the key of the tickets could make some of any member; so a start makes another one when it is older
    /// than this, in seconds. (From it GnuTLS derives those in use, which change as time goes on; a ticket is good for 6 hours.)
    private static let ticketKeyLifetime = 7 * 86_400

    /// Seconds since the file was written; 0 when the clock says that it is in the future (a machine without a battery).
    private static func age(of path: String) -> Int {
        var status = stat()
        guard stat(path, &status) == 0 else { return 0 }
        return max(0, time(nil) - status.st_mtim.tv_sec)
    }

    /// Writes a file whole or not at all, readable by its owner only.
    private static func write(_ bytes: [UInt8], to path: String) throws {
        let temporary = path + ".new"
        let descriptor = Glibc.open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw failure("create", temporary) }
        defer { close(descriptor) }
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw failure("write", temporary) }
            rest = rest.dropFirst(count)
        }
        guard fsync(descriptor) == 0 else { throw failure("write", temporary) }
        guard rename(temporary, path) == 0 else { throw failure("create", path) }
    }

    private static func makeDirectory(_ path: String) throws {
        var parent = path.hasPrefix("/") ? "/" : ""
        for part in path.split(separator: "/") {
            parent += (parent.isEmpty || parent.hasSuffix("/") ? "" : "/") + part
            guard mkdir(parent, 0o700) != 0, errno != EEXIST else { continue }
            // A parent that cannot be made may be there nevertheless (a read-only root); the last one decides.
            let code = errno
            if access(parent, F_OK) != 0 { throw failure("make", parent, code) }
        }
    }

    private static func failure(_ verb: String, _ path: String, _ code: Int32 = errno) -> RelayStateError {
        RelayStateError(
            description: "cannot \(verb) \(path): \(String(cString: strerror(code))); "
                + "choose a directory that this user may write with --state")
    }

    /// Holds the directory for this process: flock(2) on the directory itself, so that no file is left which another user could
    /// not open. The kernel ends it with the process.
    private final class Lock: Sendable {
        private let descriptor: Int32

        init(_ directory: String) throws {
            descriptor = Glibc.open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
            guard descriptor >= 0 else { throw RelayState.failure("open", directory) }
            guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
                close(descriptor)
                throw RelayStateError.inUse(directory)
            }
        }

        deinit { close(descriptor) }
    }
}
