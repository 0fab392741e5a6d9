// What a relay keeps: its key, its transport's secrets, and its channels with their invitation tokens.
import Cryptography
import Glibc
import Logging
import RelayProtocol
import RelayServer
import Settings

/// Why the state directory is of no use, and what to do.
struct RelayStateError: Error, CustomStringConvertible {
    let description: String
}

/// A relay's state directory: `identity.pem`, `transport.key`, `channels.toml` and `push-server.pem`, readable by the relay only.
struct RelayState {
    /// The relay's key, which invitations name.
    let identity: Identity
    /// The transport's secrets, by which a restarted relay tells its former members that their connections are gone.
    let transportKeys: RelayTransportKeys
    /// The name in invitations and the port, of the last start.
    var host: String?
    var port: UInt16?
    /// Every channel that was ever served, so that its invitation stays what it is.
    private(set) var known: [RelayChannelConfiguration]
    private let directory: String

    private static let identityFile = "/identity.pem"
    private static let transportFile = "/transport.key"
    private static let channelsFile = "/channels.toml"
    private static let pushServerFile = "/push-server.pem"

    /// The state in `directory`, which is made when it is not there.
    static func open(_ directory: String, logger: Logger) throws -> RelayState {
        try makeDirectory(directory)
        let (identity, notices) = try Identity.loadOrCreate(at: directory + identityFile, commonName: "pttrelay")
        for notice in notices { logger.notice("\(notice)") }
        return try RelayState(identity: identity, directory: directory, renewsKeys: true)
    }

    /// The state that an earlier start left in `directory`.
    static func existing(_ directory: String) throws -> RelayState {
        guard let (identity, _) = try Identity.load(from: directory + identityFile) else {
            throw RelayStateError(
                description: "there is no relay in \(directory); start it with 'pttrelay run', "
                    + "or name its directory with --state")
        }
        return try RelayState(identity: identity, directory: directory, renewsKeys: false)
    }

    private init(identity: Identity, directory: String, renewsKeys: Bool) throws {
        self.identity = identity
        self.directory = directory
        transportKeys = try Self.transportKeys(directory + Self.transportFile, renewed: renewsKeys)
        known = []
        let path = directory + Self.channelsFile
        guard access(path, F_OK) == 0 else { return }
        (known, host, port) = try SettingsFile.read(path: path, Self.read)
    }

    // MARK: Channels

    /// The channels of those names, made if they are new; without names, every known one.
    mutating func channels(named names: [String]) throws -> [RelayChannelConfiguration] {
        guard !names.isEmpty else {
            guard !known.isEmpty else {
                throw RelayStateError(
                    description: "there is no channel to serve; name one: pttrelay run --channel Team")
            }
            return known
        }
        var result: [RelayChannelConfiguration] = []
        for text in names {
            guard let name = DisplayName(text) else {
                throw RelayStateError(
                    description:
                        "'\(text)' cannot be a channel's name; use 1 to \(DisplayName.byteCountMaximum) bytes of plain text"
                )
            }
            guard !result.contains(where: { $0.name == name }) else { continue }
            if let channel = known.first(where: { $0.name == name }) {
                result.append(channel)
            } else {
                let channel = RelayChannelConfiguration(id: ChannelID(), name: name, token: InvitationToken())
                known.append(channel)
                result.append(channel)
            }
        }
        return result
    }

    /// The link of a known channel; host and port of the last start unless given.
    func invitation(_ name: String, host: String?, port: UInt16?) throws -> InvitationLink {
        guard let channel = known.first(where: { $0.name.text == name }) else {
            let names = known.map { "'\($0.name)'" }.joined(separator: ", ")
            throw RelayStateError(
                description: "the relay has no channel '\(name)'"
                    + (names.isEmpty ? "; start it with --channel" : "; it has \(names)"))
        }
        guard let host = host ?? self.host else {
            throw RelayStateError(
                description: "the relay was not started yet, so its address is not known; name it with --host")
        }
        return try InvitationLink(
            host: host, port: port ?? self.port ?? RelayServerConfiguration.defaultPort, channelName: channel.name,
            channel: channel.id, token: channel.token, pin: identity.pin)
    }

    // MARK: Pushes

    /// The certificate of the HTTP endpoint, for who configures none: made once, for the names by which this machine is
    /// known then.
    func pushServerIdentity(_ names: [Identity.ServerName], logger: Logger) throws -> Identity {
        let (identity, notices) = try Identity.loadOrCreate(
            at: directory + Self.pushServerFile, commonName: host ?? "pttrelay", serverNames: names)
        for notice in notices { logger.notice("\(notice)") }
        return identity
    }

    /// The certificate of the HTTP endpoint that an earlier start made.
    func existingPushServerIdentity() throws -> Identity {
        guard let (identity, _) = try Identity.load(from: directory + Self.pushServerFile) else {
            throw RelayStateError(
                description: "the relay has made no certificate for pushes; add [push] to its configuration, "
                    + "without 'certificate', and start it")
        }
        return identity
    }

    // MARK: Files

    /// Writes the channels, and how members reach them.
    func save() throws {
        var text = "# The channels of this relay and the secrets of their invitations. Made by pttrelay.\n"
        if let host, let port { text += "\n[last-start]\nhost = \(Self.quoted(host))\nport = \(port)\n" }
        for channel in known {
            text += "\n[[channel]]\nname = \(Self.quoted(channel.name.text))\nid = \"\(channel.id)\"\n"
            text += "token = \"\(Base64URL.encode(channel.token.bytes))\"\n"
        }
        try Self.write(Array(text.utf8), to: directory + Self.channelsFile)
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

    /// - Parameter renewed: Whether they may be made or renewed: only by the relay, whose file it is, and which seals with them.
    private static func transportKeys(_ path: String, renewed: Bool) throws -> RelayTransportKeys {
        if access(path, F_OK) == 0 {
            guard let keys = RelayTransportKeys(bytes: try SettingsFile.contents(of: path)) else {
                throw RelayStateError(description: "\(path) is damaged; remove it, and the relay makes another")
            }
            guard renewed, age(of: path) > ticketKeyLifetime else { return keys }
            let fresh = keys.withFreshTicketKey()
            try write(fresh.bytes, to: path)
            return fresh
        }
        let keys = RelayTransportKeys.generate()
        guard renewed else { return keys }
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

    /// A text in TOML's quotes; names have no control characters.
    private static func quoted(_ text: String) -> String {
        "\"" + text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"") + "\""
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
}
