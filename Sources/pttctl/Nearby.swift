// pttctl nearby: channels that machines on the same network, or in reach of Bluetooth, host.
import ArgumentParser
import FoundationEssentials
import Glibc
import MonotonicTime
import PTTBus
import Reactor
import Terminal

/// `pttctl nearby`.
struct Nearby: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Talk to people nearby without a server: machines here host the channels.",
        discussion: """
            'pttctl nearby create "Crane 2"' creates a channel that everybody on this network or in range of Bluetooth \
            sees; 'pttctl nearby' shows the channels nearby.
            """,
        subcommands: [
            NearbyList.self, NearbyCreate.self, NearbyJoin.self, NearbyDelete.self, NearbyWaiting.self,
            NearbyAdmit.self, NearbyRefuse.self,
        ],
        defaultSubcommand: NearbyList.self)
}

/// `pttctl nearby list`.
struct NearbyList: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "Show the channels nearby, as they come and go, until interrupted.",
        discussion: """
            On a terminal it shows a menu that is redrawn in place: the arrow keys choose a channel, Enter joins it, q \
            ends. Elsewhere it prints the channels after two seconds, or for as long as --seconds says. Channels that \
            only Bluetooth finds take up to ten seconds.
            """)

    @OptionGroup var options: BusOptions
    @Option(help: "Stop after this many seconds, at most 86400.") var seconds: Double?
    @Flag(help: "Print the channels as a JSON array, for scripts.") var json = false

    /// How long a script waits for channels: so soon those on the network have answered. Bluetooth takes up to ten seconds.
    private static let timeout = 2.0

    func validate() throws { try AccessoryScan.check(seconds) }

    func run() async throws {
        let isLive = !json && TerminalSize.ofOutput != nil
        try await options.withDaemon { daemon in
            guard let chosen = try await choose(daemon, isLive: isLive) else { return }
            // It is there only while somebody looks for channels, which ends when this program leaves the bus.
            try await NearbyJoin.join(chosen, code: nil, daemon)
        }
    }

    private func choose(_ daemon: DaemonClient, isLive: Bool) async throws -> NearbyChannelDescription? {
        let live = try await LiveFeed.start(daemon, seconds: seconds ?? (isLive ? nil : Self.timeout))
        defer { live.stop() }
        try await daemon.startBrowsing()
        return isLive ? try await watch(daemon, live) : try await collect(daemon, live)
    }

    /// Waits, and prints what is there then.
    private func collect(_ daemon: DaemonClient, _ live: LiveFeed) async throws -> NearbyChannelDescription? {
        loop: for await item in live.news {
            switch item {
            case .event(.running(false), _): throw Failure.daemonLeft
            case .event, .tick: break
            case .interrupted, .timeUp: break loop
            }
        }
        let nearby = await daemon.snapshot.nearby
        if json {
            Console.say(try jsonText(nearby.channels))
        } else {
            nearby.channels.forEach { Console.say(Self.line($0)) }
        }
        if !nearby.problem.isEmpty { Console.complain("pttctl: \(nearby.problem.plain())") }
        if nearby.channels.isEmpty, nearby.problem.isEmpty {
            Console.complain("pttctl: no channel is nearby; 'pttctl nearby create NAME' makes one")
        }
        return nil
    }

    /// Draws the list until a channel is chosen, or nobody wants it any more.
    private func watch(_ daemon: DaemonClient, _ live: LiveFeed) async throws -> NearbyChannelDescription? {
        let (keys, feed) = AsyncStream.makeStream(of: NearbyMenu.Key.self, bufferingPolicy: .bufferingNewest(64))
        let terminal = TerminalInput(loop: daemon.loop, isRaw: true) { bytes in
            for key in NearbyMenu.keys(in: bytes) { feed.yield(key) }
        }
        try await terminal.start()
        defer {
            feed.finish()
            daemon.loop.execute { terminal.assumeIsolated { $0.stop() } }
        }
        let (input, merged) = AsyncStream.makeStream(of: Input.self, bufferingPolicy: .bufferingNewest(256))
        let tasks = [
            Task { for await item in live.news { merged.yield(.news(item)) } },
            Task { for await key in keys { merged.yield(.key(key)) } },
        ]
        defer { tasks.forEach { $0.cancel() } }
        var menu = NearbyMenu()
        var block = LiveBlock()
        func draw(_ nearby: NearbyProperties) {
            menu.update(nearby.channels)
            let size = TerminalSize.ofOutput ?? TerminalSize(columns: 80, rows: 24)
            Console.draw(block.draw(menu.lines(size: size, problem: nearby.problem), size: size))
        }
        draw(await daemon.snapshot.nearby)
        for await item in input {
            switch item {
            case .news(.event(.running(false), _)): throw Failure.daemonLeft
            case .news(.event): draw(await daemon.snapshot.nearby)
            case .news(.tick): break
            case .news(.interrupted), .news(.timeUp), .key(.quit): return nil
            case .key(.enter):
                if let chosen = menu.chosen { return chosen }
            case .key(let key):
                menu.move(key)
                draw(await daemon.snapshot.nearby)
            }
        }
        return nil
    }

    private enum Input: Sendable {
        case news(LiveEvent)
        case key(NearbyMenu.Key)
    }

    /// A line for a pipe.
    static func line(_ channel: NearbyChannelDescription) -> String {
        "\(channel.name.plain(limit: 128))\t\(channel.creator.plain(limit: 128))\t\(channel.members)\t\(channel.admission)"
            + "\t\(channel.isOwn ? "own" : found(channel))\t\(channel.id)\t\(channel.code.plain(limit: 6))"
    }

    /// How a channel was found: "network", "bluetooth -50 dBm", or both.
    static func found(_ channel: NearbyChannelDescription) -> String {
        let strength = channel.signalStrength.map { " \($0) dBm" } ?? ""
        return channel.foundBy.map { $0.plain(limit: 16) + ($0 == "bluetooth" ? strength : "") }.joined(separator: ", ")
    }
}

/// `pttctl nearby create`.
struct NearbyCreate: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "create", abstract: "Create a channel that this machine hosts, and join it.",
        discussion: """
            Everybody on this network sees it and may join. With --code only those may join who know its six digits, \
            which are chosen at random and printed. With --ask only those may join whom you admit ('pttctl nearby \
            waiting'). The channel lasts, over restarts, until 'pttctl nearby delete', and can be joined while this \
            machine is reachable.
            """)

    @OptionGroup var options: BusOptions
    @Argument(help: "The channel's name; by default the name of this machine.") var name: String?
    @Flag(help: "Lock it with a code of six digits, which you tell those who may join.") var code = false
    @Flag(help: "Ask you before a newcomer is let in.") var ask = false
    @Flag(help: "Print the channel as JSON, for scripts.") var json = false

    func validate() throws {
        if code, ask { throw ValidationError("Give --code or --ask, not both.") }
        guard let name, name.isEmpty || name.utf8.count > PTTBusLimits.nearbyNameBytes else { return }
        throw ValidationError("The name must have 1 to \(PTTBusLimits.nearbyNameBytes) bytes.")
    }

    func run() async throws {
        try await options.withDaemon { daemon in
            try await daemon.watch { _ in }
            let uuid = try await daemon.createNearbyChannel(name, admission: code ? .code : ask ? .ask : .open)
            try await daemon.refresh()
            let snapshot = await daemon.snapshot
            let text = uuid.uuidString.lowercased()
            guard let channel = snapshot.nearby.channels.first(where: { $0.isOwn && $0.uuid == text }) else {
                throw Failure("the channel \(text) was created, and deleted again at once")
            }
            if json { return Console.say(try jsonText(channel)) }
            Console.say("created and joined \(channel.name.plain(limit: 128)); others find it with 'pttctl nearby'")
            if !channel.code.isEmpty { Console.say(Self.words(code: channel.code)) }
            if ask { Console.say("you are asked about each newcomer: 'pttctl nearby waiting' shows who waits") }
            if !snapshot.nearby.problem.isEmpty {
                Console.complain("pttctl: others may not find it: \(snapshot.nearby.problem.plain())")
            }
        }
    }
}

extension NearbyCreate {
    /// The code as text for a person who reads it aloud.
    static func words(code: String) -> String {
        let code = code.plain(limit: 6)
        return """

            Its code:  \(code.prefix(3)) \(code.suffix(3))

            They join with 'pttctl nearby join NAME --code \(code)'
            """
    }
}

/// `pttctl nearby join`.
struct NearbyJoin: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "join", abstract: "Join a channel nearby by its name.",
        discussion:
            "A channel nearby that is joined is left for it; a channel of pttd.toml yields, and returns afterwards. A locked channel wants "
            + "its code, which is asked for on a terminal. Where the creator admits newcomers, this waits for the answer; Ctrl-C gives up."
    )

    @OptionGroup var options: BusOptions
    @Argument(help: "Its name, or its Id as 'pttctl nearby --json' shows it.") var name: String
    @Option(help: "The code of a locked channel, six digits.") var code: String?

    /// How long a channel of that name is looked for: Bluetooth takes up to ten seconds.
    private static let timeout = 12.0

    func run() async throws {
        try await options.withDaemon { daemon in
            let channel = try await find(daemon)
            try await Self.join(channel, code: code, daemon)
        }
    }

    private func find(_ daemon: DaemonClient) async throws -> NearbyChannelDescription {
        let live = try await LiveFeed.start(daemon, seconds: Self.timeout)
        defer { live.stop() }
        try await daemon.startBrowsing()
        for await item in live.news {
            switch item {
            case .event(.running(false), _): throw Failure.daemonLeft
            case .event, .tick:
                if let channel = try Self.match(name, await daemon.snapshot.nearby.channels) { return channel }
                continue
            case .interrupted, .timeUp: break
            }
            break
        }
        let problem = await daemon.snapshot.nearby.problem
        throw Failure(
            problem.isEmpty
                ? "no channel '\(name.plain(limit: 128))' is nearby; 'pttctl nearby' shows those that are"
                : problem.plain())
    }

    /// The channel of that name or Id; nil: there is none.
    ///
    /// - Throws: `Failure` when there are several.
    static func match(_ name: String, _ channels: [NearbyChannelDescription]) throws -> NearbyChannelDescription? {
        if let channel = channels.first(where: { $0.id == name }) { return channel }
        let named = channels.filter { $0.name == name }
        guard named.count > 1 else { return named.first }
        let list = named.map { "\($0.id) (\($0.creator.plain(limit: 64)))" }.joined(separator: ", ")
        throw Failure("\(named.count) channels have this name; give the Id of one: \(list)")
    }

    static func join(_ channel: NearbyChannelDescription, code: String?, _ daemon: DaemonClient) async throws {
        var code = code
        if !channel.isOwn, channel.admission == NearbyAdmission.code.rawValue, code == nil {
            code = askForCode(of: channel)
        }
        if !channel.isOwn, channel.admission == NearbyAdmission.ask.rawValue {
            Console.complain("waiting for \(channel.creator.plain(limit: 128)) to let this machine in; Ctrl-C gives up")
        }
        try await daemon.joinNearbyChannel(channel.id, code: code)
        let deadline = ContinuousClock.now + .seconds(3)
        while ContinuousClock.now < deadline {
            try await daemon.refresh()
            guard let (_, shown) = await daemon.snapshot.activeChannel else { break }
            if shown.serviceStatus == "ready" {
                return Console.say(
                    "joined \(channel.name.plain(limit: 128)), which \(channel.creator.plain(limit: 128)) hosts")
            }
            try await Task.sleep(for: .milliseconds(20))
        }
        Console.say(
            "joined \(channel.name.plain(limit: 128)); its host has not admitted this machine yet: see 'pttctl status'")
    }
}

extension NearbyJoin {
    /// What the user types when a terminal is there; nil: nothing.
    private static func askForCode(of channel: NearbyChannelDescription) -> String? {
        guard isatty(STDIN_FILENO) == 1 else { return nil }
        Console.complain("\(channel.name.plain(limit: 128)) is locked. Its code of six digits:")
        return readLine().flatMap { $0.isEmpty ? nil : $0 }
    }
}

/// `pttctl nearby delete`.
struct NearbyDelete: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "delete", abstract: "End a channel that this machine hosts, for everybody.",
        discussion: "'pttctl leave' leaves a channel without deleting it.")

    @OptionGroup var options: BusOptions
    @Argument(help: "Its name or Id; not needed if this machine hosts only one channel.") var name: String?

    func run() async throws {
        try await options.withDaemon { daemon in
            try await daemon.refresh()
            let own = await daemon.snapshot.nearby.channels.filter(\.isOwn)
            guard !own.isEmpty else {
                throw Failure("this machine hosts no channel; only the creator of a channel can delete it")
            }
            let channel: NearbyChannelDescription
            if let name {
                guard let match = try NearbyJoin.match(name, own) else {
                    throw Failure("this machine hosts no channel '\(name.plain(limit: 128))'")
                }
                channel = match
            } else {
                guard own.count == 1 else {
                    let names = own.map { $0.name.plain(limit: 128) }.joined(separator: ", ")
                    throw Failure("this machine hosts several channels; name one: \(names)")
                }
                channel = own[0]
            }
            try await daemon.deleteNearbyChannel(channel.id)
            Console.say("deleted \(channel.name.plain(limit: 128))")
        }
    }
}
