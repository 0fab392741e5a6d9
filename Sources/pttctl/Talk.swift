// pttctl talk: a talk key for people without an accessory.
import ArgumentParser
import CLinux
import DBus
import Glibc
import MonotonicTime
import PTTBus
import Reactor
import Terminal

/// `pttctl talk`.
struct Talk: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Hold the space bar to talk.",
        discussion: """
            Terminals with the kitty keyboard protocol report the release of the key. In others talking ends 0.2 s \
            after the key's repeats stop, and a tap counts as 0.75 s. Closing the terminal ends the transmission.
            """)

    @OptionGroup var options: BusOptions
    @Option(name: .customLong("for"), help: "Talk for this many seconds without a key, at most 3600; for scripts.")
    var seconds: Double?

    func validate() throws {
        if let seconds, !(seconds > 0 && seconds <= 3_600) {
            throw ValidationError("--for takes seconds, more than 0 and at most 3600.")
        }
    }

    func run() async throws {
        try await options.withDaemon { daemon in
            guard let channel = await daemon.snapshot.activeChannel?.properties else {
                throw Failure.noChannel
            }
            if let seconds {
                try await talk(daemon, for: .seconds(seconds))
            } else {
                try await hold(daemon, channel.name)
            }
        }
    }

    /// Why a transmission ended by something else than a release; nil for other news.
    private static func ending(_ event: DaemonClient.Event) -> String? {
        switch event {
        case .transmissionFailed(_, _, let why): why
        case .running(false): "pttd has left the bus"
        case .running(true), .changed, .accessory: nil
        }
    }

    /// Why nothing was transmitted, with what keeps the channel from being ready.
    private static func failure(_ error: any Error, _ daemon: DaemonClient) async -> any Error {
        guard let channel = await daemon.snapshot.activeChannel?.properties, channel.serviceStatus != "ready",
            !channel.serviceStatusDetail.isEmpty
        else { return error }
        return Failure("not transmitted, \(channel.name) is \(channel.serviceStatus): \(channel.serviceStatusDetail)")
    }

    /// Ends early, and with an error, when the transmission does.
    private func talk(_ daemon: DaemonClient, for duration: Duration) async throws {
        let (news, feed) = AsyncStream.makeStream(of: News.self, bufferingPolicy: .bufferingOldest(256))
        try await Self.watch(daemon, feed)
        do {
            try await daemon.beginTransmitting()
        } catch {
            throw await Self.failure(error, daemon)
        }
        feed.yield(.activity(await daemon.activity))
        var ending: Task<Void, any Error>?
        defer { ending?.cancel() }
        for await item in news {
            switch item {
            // Waiting for the floor is no talking.
            case .activity(let now) where now.isTransmitting && ending == nil:
                ending = Task {
                    try await Task.sleep(for: duration)
                    feed.finish()
                }
            case .failed(let why):
                Console.complain("pttctl: the transmission ended: \(why)")
                throw ExitCode.failure
            case .activity, .key, .answered: break
            }
        }
        try await daemon.stopTransmitting()
    }

    private static func watch(
        _ daemon: DaemonClient, _ feed: AsyncStream<News>.Continuation
    ) async throws(DBusError) {
        try await daemon.watch { event in
            if let why = ending(event) { feed.yield(.failed(why)) }
            guard case .changed(let old, let new) = event else { return }
            let (before, now) = (TalkActivity(old), TalkActivity(new))
            if now != before { feed.yield(.activity(now)) }
        }
    }

    private func hold(_ daemon: DaemonClient, _ name: String) async throws {
        let terminal: RawTerminal
        do {
            terminal = try RawTerminal()
        } catch {
            Console.complain(
                "pttctl: standard input is not a terminal, so no key can be held; use 'pttctl talk --for SECONDS'")
            throw ExitCode.failure
        }
        defer { terminal.restore() }
        Console.say("\(name): hold SPACE to talk, q to leave.\r")
        let (news, feed) = AsyncStream.makeStream(of: News.self, bufferingPolicy: .bufferingOldest(256))
        let reader = KeyReader(terminal: terminal, loop: daemon.loop, feed: feed)
        try await reader.start()
        try await Self.watch(daemon, feed)
        var isTalking = false
        var shown: TalkActivity?
        for await item in news {
            switch item {
            case .key(.pressed):
                // Not awaited: the release must reach the daemon also while it still opens the microphone.
                await daemon.press { feed.yield(.answered($0.map { "\($0)" })) }
            case .answered(nil):
                isTalking = true
                shown = await daemon.activity
                shown?.tell()
            case .activity(let now) where isTalking && now != shown:
                shown = now
                now.tell()
            case .activity: break
            case .answered(let why?): Console.say("✗ \(why)\r")
            case .failed(let why) where isTalking:
                isTalking = false
                Console.say("✗ \(why)\r")
            // A refusal has been answered already; the others are not about this key.
            case .failed: break
            case .key(.released):
                isTalking = false
                // A refused or ended transmission leaves nothing to stop.
                try? await daemon.stopTransmitting()
                Console.say("○ listening\r")
            case .key(.quit): feed.finish()
            }
        }
        await reader.stop()
    }
}

/// What comes of a press that the daemon took.
private struct TalkActivity: Sendable, Equatable {
    var isTransmitting: Bool
    var queuePosition: UInt32

    init(_ snapshot: DaemonSnapshot) {
        let channel = snapshot.activeChannel?.properties
        isTransmitting = channel?.transmitting ?? false
        queuePosition = channel?.queuePosition ?? 0
    }

    /// Prints the state. It prints nothing for a press without a result.
    func tell() {
        if isTransmitting {
            Console.say("● talking\r")
        } else if queuePosition > 0 {
            Console.say("… waiting, place \(queuePosition)\r")
        }
    }
}

extension DaemonClient {
    fileprivate var activity: TalkActivity { TalkActivity(snapshot) }
}

/// The events that `pttctl talk` waits for.
private enum News: Sendable {
    /// The user did something.
    case key(HeldKeyStateMachine.Output)
    /// The daemon answered a press: nil, or why not.
    case answered(String?)
    /// The daemon's activity has changed.
    case activity(TalkActivity)
    /// A transmission was refused or ended by something else than a release.
    case failed(String)
}

/// Reads keys on the loop.
private actor KeyReader {
    private let terminal: RawTerminal
    private let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    private let feed: AsyncStream<News>.Continuation
    private var machine = HeldKeyStateMachine()
    private var watch: EventLoop.Watch?
    private var timer: EventLoop.Timer?

    init(terminal: RawTerminal, loop: EventLoop, feed: AsyncStream<News>.Continuation) {
        self.terminal = terminal
        self.loop = loop
        self.feed = feed
    }

    func start() throws(SystemError) {
        watch = try loop.watch(terminal.descriptor, for: .readable) { [weak self] _ in
            self?.assumeIsolated { $0.readable() }
        }
    }

    func stop() {
        timer?.cancel()
        watch?.cancel()
    }

    private func readable() {
        let bytes = terminal.read()
        guard !bytes.isEmpty else {
            feed.finish()
            return stop()
        }
        tell(machine.handle(bytes, at: .now))
    }

    private func tell(_ outputs: [HeldKeyStateMachine.Output]) {
        for output in outputs { feed.yield(.key(output)) }
        timer?.cancel()
        guard let deadline = machine.nextDeadline else { return }
        timer = loop.schedule(at: deadline) { [weak self] in
            self?.assumeIsolated { $0.tell($0.machine.handleTimeout(at: .now)) }
        }
    }
}
