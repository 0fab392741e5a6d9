// The operator's commands against a relay that runs, and clients on loopback sockets that enrol with its invitations.
import Cryptography
import Files
import Glibc
import Logging
import Reactor
import RelayClient
import RelayProtocol
import RelayServer
import RelayStore
import Synchronization
import Testing
import WebSocketClient

@testable import pttrelay

/// A state directory of its own, removed at the end.
final class StateFolder: Sendable {
    let path: String
    init() throws {
        var template = Array("/tmp/pttrelay-members-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw RelayStateError(description: "mkdtemp") }
        path = String(decoding: template.dropLast().map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
    }
    deinit {
        for name in names { unlink(path + "/" + name) }
        rmdir(path)
    }

    /// What is in it; a program that was killed may leave files under names that only it knew.
    var names: [String] {
        guard let directory = opendir(path) else { return [] }
        defer { closedir(directory) }
        var names: [String] = []
        while let entry = readdir(directory) {
            names.append(
                withUnsafePointer(to: &entry.pointee.d_name) {
                    $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
                })
        }
        return names
    }
}

func quiet(_ label: String) -> Logger { Logger(label: label) { _ in SwiftLogNoOpLogHandler() } }

/// A relay as `pttrelay run` puts it together, with the channel "Team".
enum RunningRelay {
    /// - Parameter meanwhile: Called when the relay listens, and nothing else does.
    static func start(
        _ folder: StateFolder, limits: RelayLimits = RelayLimits(), clock: @escaping @Sendable () -> Int64,
        meanwhile: (ChannelID, UInt16) async throws -> Void = { _, _ in }
    ) async throws -> Parts {
        let state = try RelayState.open(folder.path, logger: quiet("state"))
        let served = try state.servedChannels(named: ["Team"])
        let channels = try state.configurations(served, Floors())
        var configuration = RelayServerConfiguration(
            listenAddress: "127.0.0.1", listenPort: 0, identity: state.identity, channels: channels,
            transportKeys: try #require(state.transportKeys))
        configuration.limits = limits
        configuration.roster = try state.roster()
        let registrar = try Registrar(
            state: state, channelsMaximum: limits.channels, logger: quiet("members"), clock: clock)
        configuration.enrol = { registrar.enrol($0, $1) }
        let server = try RelayServer(configuration: configuration, logger: quiet("relay"))
        await registrar.connect(server)
        let port = try await server.start()
        try await meanwhile(channels[0].id, port)
        try await registrar.started(
            host: "127.0.0.1", port: port, channels: channels.map(\.id),
            declared: Set(served.filter(\.isDeclared).map(\.id)))
        let administration = try await AdministrationServer(
            directory: folder.path, registrar: registrar, logger: quiet("commands"))
        return Parts(
            folder: folder, records: state.store, server: server, registrar: registrar,
            administration: administration)
    }

    struct Parts {
        let folder: StateFolder
        let records: RelayStore
        let server: RelayServer
        let registrar: Registrar
        let administration: AdministrationServer

        func ask(_ request: AdministrationRequest) async throws -> AdministrationResponse {
            // Asking blocks, as the commands do: on a thread of its own.
            let loop = try EventLoop(name: "command")
            defer { loop.stop() }
            let path = folder.path
            let answer: AdministrationResponse? = try await loop.run { [loop] () throws -> AdministrationResponse? in
                try loop.waiting { try AdministrationClient.ask(request, in: path) }
            }
            return try #require(answer)
        }

        func invite(_ terms: AdministrationRequest.Terms?) async throws -> InvitationLink {
            let answer = try await ask(.invite(channel: "Team", terms: terms, key: nil))
            guard case .invitation(let invitation) = answer else {
                throw RelayStateError(description: "\(answer)")
            }
            return try InvitationLink(invitation.link)
        }

        func members() async throws -> [AdministrationResponse.MemberLine] {
            guard case .members(let lines, _) = try await ask(.members(channel: "Team", after: nil)) else { return [] }
            return lines
        }

        /// Another relay on a copy of the records: this process still has these.
        func restarted(clock: @escaping @Sendable () -> Int64) async throws -> Parts {
            await stop()
            let copy = try StateFolder()
            for name in ["identity.pem", "transport.key", "relay.sqlite", "relay.sqlite-wal"] {
                guard let source = fopen(folder.path + "/" + name, "r") else { continue }
                var bytes = [UInt8](repeating: 0, count: 4 << 20)
                let count = fread(&bytes, 1, bytes.count, source)
                fclose(source)
                let target = fopen(copy.path + "/" + name, "w")
                fwrite(bytes, 1, count, target)
                fclose(target)
            }
            return try await RunningRelay.start(copy, clock: clock)
        }

        func stop() async {
            await administration.stop()
            await registrar.disconnect()
            await server.stop()
        }
    }
}

/// A device: a key, and a client of it.
final class Device: Sendable {
    let client: RelayClient
    let loop: EventLoop
    let id: MemberID
    private let states = Mutex<[RelayLinkState]>([])

    init(_ name: String, _ link: InvitationLink, identity: Identity? = nil, overTLS: Bool = false) async throws {
        let identity = try identity ?? Identity(generating: name)
        id = MemberID(identity.pin)
        loop = try EventLoop(name: name)
        client = RelayClient(
            invitation: link, identity: identity, displayName: DisplayName(name)!, resumption: ResumptionMemory(),
            network: RelayNetwork(transport: overTLS ? .tls : .automatic),
            openWebSocket: overTLS ? WebSocketConnection.opener : nil, loop: loop, logger: quiet(name))
        await client.setEventHandler { [weak self] event in
            if case .state(let state) = event { self?.states.withLock { $0.append(state) } }
        }
        await client.join()
    }

    deinit { loop.stop() }

    /// Waits for a state that `match` takes.
    func until<T: Sendable>(_ what: String, _ match: @Sendable (RelayLinkState) -> T?) async throws -> T {
        let deadline = ContinuousClock.now + .seconds(20)
        while ContinuousClock.now < deadline {
            if let found = states.withLock({ $0.compactMap(match).last }) { return found }
            try await Task.sleep(for: .milliseconds(5))
        }
        throw RelayStateError(description: "\(what) did not come; there were \(states.withLock { $0 })")
    }

    /// How often it was let in.
    var readyCount: Int { states.withLock { $0.count { if case .ready = $0 { true } else { false } } } }

    func isReady() async throws { _ = try await until("ready") { if case .ready = $0 { true } else { nil } } }

    /// Why it was refused for good.
    func refusal() async throws -> String {
        try await until("a refusal") {
            if case .unavailable(.invitationRefused(let why), nil) = $0 { why } else { nil }
        }
    }
}

@Suite struct MembersEndToEndTests {
    @Test func `devices enrol with invitations as far as these allow, and are removed while the relay runs`()
        async throws
    {
        let folder = try StateFolder()
        let time = Mutex<Int64>(1_000_000)
        var relay = try await RunningRelay.start(folder) { time.withLock { $0 } }
        let once = try await relay.invite(.init(lifetime: nil, uses: 1, priority: 9, isListenOnly: false))
        let listening = try await relay.invite(.init(lifetime: 600, uses: nil, priority: 0, isListenOnly: true))

        // One device by one link; a second one with the same link is refused, and so is one with a wrong secret.
        let key = try Identity(generating: "ada")
        let ada = try await Device("Ada", once, identity: key)
        try await ada.isReady()
        #expect(try await Device("Eve", once).refusal().contains("used up"))
        var foreign = once
        foreign.token = InvitationToken()
        #expect(try await Device("Eve", foreign).refusal().contains("does not open it"))
        let bob = try await Device("Bob", listening)
        try await bob.isReady()
        time.withLock { $0 += 600 }
        #expect(try await Device("Eve", listening).refusal().contains("expired"))
        let members = try await relay.members()
        #expect(Set(members.map(\.name)) == ["Ada", "Bob"])
        #expect(members.allSatisfy { $0.isConnected == true })
        #expect(members.first { $0.name == "Ada" }?.priority == 9)
        #expect(members.first { $0.name == "Bob" }?.isListenOnly == true)

        // Removed: out at once, and not in again, by the old link or by another.
        let answer = try await relay.ask(.revoke(channel: "Team", member: "Ada", keepsInvitation: false))
        guard case .removed(let line, let removal) = answer else { return #expect(Bool(false), "\(answer)") }
        #expect(line.id == ada.id.description && !removal.wasRevoked && removal.hasWithdrawnInvitation)
        #expect(try await ada.refusal().contains("removed"))
        let standing = try await relay.invite(nil)
        for link in [once, standing] {
            #expect(try await Device("Ada", link, identity: key).refusal().contains("removed"))
        }
        #expect(await relay.server.connectedMembers(of: once.channel) == [bob.id: DisplayName("Bob")!])

        // Let in again by its key alone.
        _ = try await relay.ask(.readmit(channel: "Team", member: ada.id.description, MemberChange(priority: 3)))
        let again = try await Device("Ada", once, identity: key)
        try await again.isReady()

        // All of that is there for a relay that begins with the same records, and nobody needs a link.
        relay = try await relay.restarted(clock: { time.withLock { $0 } })
        let after = try await relay.members()
        #expect(Set(after.map(\.name)) == ["Ada", "Bob"] && after.first { $0.name == "Ada" }?.priority == 3)
        var stale = try await relay.invite(nil)
        stale.token = InvitationToken()
        let third = try await Device("Ada", stale, identity: key)
        try await third.isReady()
        await relay.stop()
    }

    @Test func `an end-to-end channel is added and served at once, and its key is never asked for`() async throws {
        let relay = try await RunningRelay.start(try StateFolder()) { 1_000 }
        let first = try await relay.ask(.invite(channel: "Secret", terms: nil, key: .first))
        guard case .invitation(let invitation) = first else { return #expect(Bool(false), "\(first)") }
        #expect(invitation.isEndToEnd && invitation.number != nil)
        var link = try InvitationLink(invitation.link)
        #expect(link.mediaKey == nil)
        link.mediaKey = MediaKey(epoch: 0, baseKey: [UInt8](repeating: 7, count: 32))
        let device = try await Device("Ada", link)
        try await device.isReady()
        // Another link without the key of the first, or a standing one, would let in who hears nothing.
        for key in [AdministrationRequest.MediaKeyOrigin.first, nil] {
            guard case .failed(let why) = try await relay.ask(.invite(channel: "Secret", terms: nil, key: key)) else {
                return #expect(Bool(false))
            }
            #expect(why.contains("--like") && why.contains("--new-key"))
        }
        guard case .failed = try await relay.ask(.invite(channel: "Team", terms: nil, key: .first)) else {
            return #expect(Bool(false), "its key is the relay's")
        }
        let answer = try await relay.ask(.revoke(channel: "Secret", member: "Ada", keepsInvitation: false))
        guard case .removed(let line, let removal) = answer else { return #expect(Bool(false), "\(answer)") }
        #expect(removal.isEndToEnd)
        #expect(
            RevokeCommand.sentences(line, removal, channel: "Secret").joined().contains(
                "pttrelay invite Secret --end-to-end --new-key"))
        #expect(try await device.refusal().contains("removed"))
        await relay.stop()
    }

    @Test func `what is no request, is too long or says nothing harms nobody; one relay has a state directory`()
        async throws
    {
        let relay = try await RunningRelay.start(try StateFolder()) { 1_000 }
        for bytes in [Array("{}\n".utf8), Array("\n".utf8), [UInt8](repeating: 0xFF, count: 5_000) + [0x0A]] {
            #expect(try await talk(bytes, relay.folder.path).contains("failed"))
        }
        #expect(try await talk([UInt8](repeating: 0x61, count: 40_000), relay.folder.path).isEmpty)
        for name in ["Nope", "", String(repeating: "x", count: 4_000)] {
            guard case .failed = try await relay.ask(.members(channel: .named(name), after: nil)) else {
                return #expect(Bool(false), "\(name.prefix(9))")
            }
        }
        #expect(throws: FileError("use", relay.folder.path, .inUse(process: getpid()))) {
            try RelayState.open(relay.folder.path, logger: quiet("second"))
        }
        var status = stat()
        #expect(stat(relay.folder.path + "/control", &status) == 0 && status.st_mode & 0o777 == 0o600)
        await relay.stop()
        #expect(try AdministrationClient.ask(.channels(), in: relay.folder.path) == nil)
    }

    /// Writes bytes to the socket as they are, and reads to the end.
    private func talk(_ bytes: [UInt8], _ directory: String) async throws -> String {
        let loop = try EventLoop(name: "raw")
        defer { loop.stop() }
        return try await loop.run {
            let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
            defer { close(descriptor) }
            var address = sockaddr_un()
            address.sun_family = sa_family_t(AF_UNIX)
            withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: (directory + "/control").utf8) }
            let size = socklen_t(MemoryLayout<sockaddr_un>.size)
            let result = withUnsafePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(descriptor, $0, size) }
            }
            guard result == 0 else { throw RelayStateError(description: "connect") }
            var rest = bytes
            while !rest.isEmpty {
                let count = send(descriptor, rest, rest.count, Int32(MSG_NOSIGNAL))
                guard count > 0 else { break }
                rest.removeFirst(count)
            }
            var text: [UInt8] = []
            var buffer = [UInt8](repeating: 0, count: 4_096)
            while true {
                let count = recv(descriptor, &buffer, buffer.count, 0)
                guard count > 0 else { break }
                text += buffer.prefix(count)
            }
            return String(decoding: text, as: UTF8.self)
        }
    }
}
