// What an operator does to a relay: checks its configuration, reloads it, asks for its token.
import Cryptography
import Glibc
import Logging
import Logs
import RelayHTTP
import RelayProtocol
import RelayServer
import Settings
import Synchronization
import TestSupport
import Testing

@testable import pttrelay

@Suite struct OperationTests {
    private func read(_ text: String) throws(SettingsError) -> RelaySettings {
        try SettingsFile.read(text: text, file: "pttrelay.toml", RelaySettings.read)
    }

    // MARK: Configuration

    @Test func `the operator's page is off unless it is asked for, and is for this machine then`() throws {
        #expect(try read("").operatorListen == nil)
        let standard = try #require(try read("[operator]").operatorListen)
        #expect(standard == ListenAddress(address: "127.0.0.1", port: 9_464))
        #expect(standard.isLoopback)
        let other = try #require(try read("[operator]\nlisten = \"[::]:80\"").operatorListen)
        #expect(!other.isLoopback && other.text == "[::]:80")
    }

    @Test func `the number of threads is this machine's, or as it is said`() throws {
        #expect(1...16 ~= (try read("").workers))
        #expect(try read("[relay]\nworkers = 3").workers == 3)
        #expect(throws: SettingsError.self) { _ = try read("[relay]\nworkers = 0") }
        #expect(throws: SettingsError.self) { _ = try read("[relay]\nworkers = 17") }
        #expect(0...3 ~= (try read("").helpers))
        #expect(try read("[relay]\nworkers = 16").helpers == RelaySettings.standardHelpers)
        #expect(try read("[relay]\nhelpers = 0").helpers == 0)
        #expect(throws: SettingsError.self) { _ = try read("[relay]\nhelpers = 17") }
    }

    @Test func `how long an end may take is said in seconds`() throws {
        #expect(try read("").ending == ShutdownSettings(drainTime: .seconds(10), successor: nil))
        #expect(try read("[relay]\ndrain-time = \"0s\"").ending.drainTime == .zero)
        #expect(throws: SettingsError.self) { _ = try read("[relay]\ndrain-time = \"2min\"") }
    }

    @Test(arguments: [
        ("relay2.example:4433", "relay2.example"), ("192.0.2.7:1", "192.0.2.7"), ("[2001:db8::1]:65535", "2001:db8::1"),
    ])
    func `a successor is written as in a link`(written: String, host: String) throws {
        let successor = try #require(try read("[relay]\nsuccessor = \"\(written)\"").ending.successor)
        #expect(successor.host == host && successor.description == written)
        for wrong in [host, "\(host):", "\(written)/x", "ptt://\(written)", "\(host):0", "\(host):65536"] {
            #expect(throws: SettingsError.self, "\(wrong)") { _ = try read("[relay]\nsuccessor = \"\(wrong)\"") }
        }
    }

    @Test func `the host is one that a link can have`() throws {
        for host in ["relay.example", "192.0.2.7", "2001:db8::1", "fe80::1%eth0", "a_b-c~d"] {
            #expect(try read("[relay]\nhost = \"\(host)\"").host == host)
            #expect(InvitationLink.isHost(host))
        }
        for host in [
            "relay.example:4433", "[2001:db8::1]", "ptt://relay.example", "relay example", "relay/x", "réseau.example",
            "a@b", String(repeating: "a", count: 254), "1::2::3", "",
        ] {
            let error = #expect(throws: SettingsError.self, "\(host)") { _ = try read("[relay]\nhost = \"\(host)\"") }
            #expect(error?.problems.map(\.description).joined().contains("host") == true)
        }
    }

    @Test func `the log is text unless it is asked for as JSON`() throws {
        #expect(try read("").logFormat == .text)
        #expect(try read("[relay]\nlog-format = \"json\"").logFormat == .json)
        #expect(throws: SettingsError.self) { _ = try read("[relay]\nlog-format = \"xml\"") }
    }

    @Test func `a channel that is there twice is a mistake`() throws {
        let error = #expect(throws: SettingsError.self) {
            _ = try read("[[channel]]\nname = \"A\"\n[[channel]]\nname = \"A\"\nqueue = true")
        }
        #expect(error?.problems.map(\.description).joined().contains("earlier channel") == true)
    }

    @Test func `check says what a configuration comes to`() throws {
        let settings = try read(
            """
            [relay]
            listen = "192.0.2.1:4433"
            host = "relay.example"
            successor = "relay2.example:4433"
            workers = 1
            helpers = 1
            [[channel]]
            name = "Yard"
            queue = true
            [[channel]]
            name = "Gate"
            mode = "cut-in"
            preemption-step = 5
            [[channel]]
            name = "News"
            mode = "listen-only"
            [push]
            [operator]
            listen = "0.0.0.0:9464"
            """)
        let lines = CheckCommand.summary(settings, state: "/var/lib/pttrelay")
        #expect(lines.contains("listens on UDP 192.0.2.1:4433, in links as relay.example"))
        #expect(lines.contains { $0.hasPrefix("sends its members to relay2.example:4433 when it stops") })
        #expect(
            lines.contains(
                "serves 'Yard': half-duplex: one member talks at a time, others wait for their turn, only an emergency takes the floor"
            ))
        #expect(
            lines.contains(
                "serves 'Gate': cut-in: whoever presses last talks, and takes the floor from whoever talks, unless that is an emergency, "
                    + "'preemption-step' has no effect in this mode"))
        let news =
            "listen-only: one of the members invited with a priority talks at a time, others are refused meanwhile, "
            + "only an emergency takes the floor"
        #expect(lines.contains("serves 'News': \(news)"))
        #expect(lines.contains("runs one worker thread, and one helper thread for channels with hundreds of listeners"))
        #expect(lines.contains { $0.hasPrefix("warning: nobody may push") })
        #expect(lines.contains { $0.hasPrefix("warning: the operator's page has no TLS") })
        #expect(CheckCommand.summary(RelaySettings(), state: "/s").allSatisfy { !$0.hasPrefix("warning") })
    }

    @Test func `check finds a certificate that is none`() throws {
        let folder = try StateFolder()
        let path = folder.path + "/identity.pem"
        let file = try #require(fopen(path, "w"))
        fputs("no certificate\n", file)
        fclose(file)
        let settings = try read("[push]\ncertificate = \"\(path)\"\nkey = \"\(path)\"")
        #expect(throws: PushEndpointError.self) { try CheckCommand.checkPushes(settings) }
        let missing = try read("[push]\ncertificate = \"\(path)\"\nkey = \"\(path).none\"")
        #expect(throws: SettingsError.self) { try CheckCommand.checkPushes(missing) }
    }

    // MARK: The token

    @Test func `the token is made once, and anew by a start that finds it damaged`() throws {
        let folder = try StateFolder()
        let quiet = Logger(label: "state") { _ in SwiftLogNoOpLogHandler() }
        #expect(try RelayState.existingToken(for: .page, in: folder.path) == nil)
        let token = try RelayState.open(folder.path, logger: quiet).token(for: .page, quiet)
        #expect(try RelayState.open(folder.path, logger: quiet).token(for: .page, quiet) == token)
        #expect(try RelayState.existingToken(for: .page, in: folder.path) == token)
        var status = stat()
        #expect(stat(folder.path + "/operator.token", &status) == 0 && status.st_mode & 0o777 == 0o600)
        let file = try #require(fopen(folder.path + "/operator.token", "w"))
        fputs("?\n", file)
        fclose(file)
        #expect(throws: RelayStateError.self) { _ = try RelayState.existingToken(for: .page, in: folder.path) }
        let another = try RelayState.open(folder.path, logger: quiet).token(for: .page, quiet)
        #expect(another != token)
        #expect(try RelayState.existingToken(for: .page, in: folder.path) == another)
        #expect(access(folder.path + "/operator.token.damaged-1", F_OK) == 0)
    }

    // MARK: Health

    @Test func `a relay that has ended is not healthy, though it answers commands`() async throws {
        let relay = try await RunningRelay.start(try StateFolder()) { 1_000 }
        #expect(try await relay.ask(.health) == .done)
        await relay.server.stop()
        #expect(try await relay.ask(.health) == .failed("the relay accepts no members: it is starting or draining"))
        await relay.stop()
    }

    // MARK: Reload

    @Test func `a reload serves new channels, changes rules, and takes nothing over from a file with a mistake`()
        async throws
    {
        let relay = try await RunningRelay.start(try StateFolder()) { 1_000 }
        let text = Mutex("")
        let log = KeptLog()
        let ending = CurrentShutdownSettings(ShutdownSettings())
        let reloader = Reloader(
            started: RelaySettings(), channels: ["Team"], allHaveQueues: false, registrar: relay.registrar, pushes: nil,
            web: nil,
            ending: ending, logger: log.logger,
            read: {
                try SettingsFile.read(text: text.withLock { $0 }, file: "pttrelay.toml", RelaySettings.read)
            })
        await reloader.reload()
        #expect(await relay.server.statistics?.channels.map(\.name.text) == ["Team"])

        text.withLock {
            $0 =
                "[relay]\nsuccessor = \"b.example:1\"\ndrain-time = \"3s\"\n"
                + "[[channel]]\nname = \"Yard\"\nmode = \"cut-in\"\n[[channel]]\nname = \"Team\"\nqueue = true"
        }
        await reloader.reload()
        #expect(await relay.server.statistics?.channels.map(\.name.text) == ["Team", "Yard"])
        #expect(ending.get() == ShutdownSettings(drainTime: .seconds(3), successor: RelayPlace("b.example:1")))
        #expect(log.lines.contains { $0.contains("the rules of 'Team' change") })
        #expect(log.lines.contains { $0.contains("'Yard' is served now") })
        guard case .invitation = try await relay.ask(.invite(channel: "Yard", terms: nil, key: nil)) else {
            return #expect(Bool(false), "no link to the new channel")
        }

        log.clear()
        text.withLock { $0 = "[[channel]]\nname = \"Gate\"\nmode = \"loud\"" }
        await reloader.reload()
        #expect(await relay.server.statistics?.channels.map(\.name.text) == ["Team", "Yard"])
        #expect(ending.get().successor != nil)
        #expect(log.lines.contains { $0.contains("was not applied") })

        log.clear()
        text.withLock { $0 = "[limits]\nconnections = 7\n[operator]" }
        await reloader.reload()
        #expect(log.lines.contains { $0.contains("[limits]") && $0.contains("after a restart") })
        #expect(log.lines.contains { $0.contains("[operator]") })
        #expect(log.lines.contains { $0.contains("'Yard' is not served any more") })
        #expect(await relay.server.statistics?.channels.map(\.name.text) == ["Team"])
        // Nor is it when the relay is started without a name.
        #expect(try await relay.registrar.state.channels(named: []).map(\.name.text) == ["Team"])
        await relay.stop()
    }

    @Test func `a certificate that cannot be used leaves everything as it was`() async throws {
        let relay = try await RunningRelay.start(try StateFolder()) { 1_000 }
        let folder = try StateFolder()
        let path = folder.path + "/push.pem"
        func write(_ text: String) throws {
            let file = try #require(fopen(path, "w"))
            fputs(text, file)
            fclose(file)
        }
        let identity = try Identity(generating: "localhost")
        try write(identity.certificatePEM + identity.privateKeyPEM)
        let endpoint = try PushEndpoint(
            configuration: PushEndpointConfiguration(
                listenAddress: "127.0.0.1", listenPort: 0, certificatePEM: identity.certificatePEM,
                privateKeyPEM: identity.privateKeyPEM, clients: []),
            logger: Logger(label: "push") { _ in SwiftLogNoOpLogHandler() }, deliver: { _ in .shutDown })
        let successor = Mutex("a.example:1")
        let log = KeptLog()
        let ending = CurrentShutdownSettings(ShutdownSettings())
        let reloader = Reloader(
            started: RelaySettings(), channels: ["Team"], allHaveQueues: false, registrar: relay.registrar,
            pushes: endpoint, web: nil, ending: ending, logger: log.logger,
            read: {
                let successor = successor.withLock { $0 }
                return try SettingsFile.read(
                    text: "[relay]\nsuccessor = \"\(successor)\"\n[push]\ncertificate = \"\(path)\"\nkey = \"\(path)\"",
                    file: "pttrelay.toml", RelaySettings.read)
            })
        await reloader.reload()
        #expect(ending.get().successor == RelayPlace("a.example:1"), "\(log.lines)")
        successor.withLock { $0 = "b.example:1" }
        try write(identity.certificatePEM + (try Identity(generating: "other")).privateKeyPEM)
        await reloader.reload()
        #expect(log.lines.contains { $0.contains("was not applied") })
        #expect(ending.get().successor == RelayPlace("a.example:1"))
        await relay.stop()
    }

    @Test func `what needs a restart is told by its name`() throws {
        let old = try read("[push]\nlisten = \"127.0.0.1:1\"")
        #expect(Reloader.needRestart(old, old).isEmpty)
        let new = try read(
            "[relay]\nlisten = \"127.0.0.1:2\"\nhost = \"a\"\nstate = \"/s\"\ndrain-time = \"1s\"\nretry-after = \"1s\"\n"
                + "log-format = \"json\"\nworkers = 16\nhelpers = 16\n"
                + "[limits]\nconnections = 9\n[operator]\n[api]\n[push]\nlisten = \"127.0.0.1:3\"")
        #expect(
            Reloader.needRestart(old, new) == [
                "[relay] listen", "[relay] host", "[relay] state", "the time limits in [relay]", "[relay] log-format",
                "[relay] workers", "[relay] helpers", "[limits]", "[operator]", "[api]", "[push] listen",
            ])
        #expect(Reloader.needRestart(old, RelaySettings()) == ["[push]"])
    }
}
