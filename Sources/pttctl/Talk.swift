// pttctl talk: a talk key for people without an accessory.
import ArgumentParser
import CLinux
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
            Terminals with the kitty keyboard protocol tell when the key comes up; in others talking ends 0.2 s after the
            key's repeats stop, and a tap counts as 0.75 s. Closing the terminal ends the transmission.
            """)

    @OptionGroup var options: BusOptions
    @Option(name: .customLong("for"), help: "Talk for so many seconds without a key, for scripts.")
    var seconds: Double?

    func validate() throws {
        if let seconds, !(seconds > 0 && seconds <= 3_600) {
            throw ValidationError("--for takes seconds, more than 0 and at most 3600.")
        }
    }

    func run() async throws {
        try await options.withDaemon { daemon in
            guard let channel = await daemon.snapshot.activeChannel?.properties else {
                Output.complain("pttctl: no channel is joined")
                throw ExitCode.failure
            }
            if let seconds {
                try await daemon.beginTransmitting()
                try await Task.sleep(for: .seconds(seconds))
                try await daemon.stopTransmitting()
            } else {
                try await hold(daemon, channel.name)
            }
        }
    }

    private func hold(_ daemon: DaemonClient, _ name: String) async throws {
        let terminal: RawTerminal
        do {
            terminal = try RawTerminal()
        } catch {
            Output.complain("pttctl: standard input is no terminal (\(error)); use 'pttctl talk --for SECONDS'")
            throw ExitCode.failure
        }
        defer { terminal.restore() }
        Output.line("\(name): hold SPACE to talk, q to leave.\r")
        let (keys, feed) = AsyncStream.makeStream(
            of: HeldKeyStateMachine.Output.self, bufferingPolicy: .bufferingOldest(256))
        let reader = KeyReader(terminal: terminal, loop: daemon.loop, feed: feed)
        try await reader.start()
        for await key in keys {
            switch key {
            case .pressed:
                do {
                    try await daemon.beginTransmitting()
                    Output.line("● talking\r")
                } catch {
                    Output.line("✗ \(error)\r")
                }
            case .released:
                // A refused or ended transmission leaves nothing to stop.
                try? await daemon.stopTransmitting()
                Output.line("○ listening\r")
            case .quit: feed.finish()
            }
        }
        await reader.stop()
    }
}

/// Reads keys on the loop.
private actor KeyReader {
    private let terminal: RawTerminal
    private let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    private let feed: AsyncStream<HeldKeyStateMachine.Output>.Continuation
    private var machine = HeldKeyStateMachine()
    private var watch: EventLoop.Watch?
    private var timer: EventLoop.Timer?

    init(terminal: RawTerminal, loop: EventLoop, feed: AsyncStream<HeldKeyStateMachine.Output>.Continuation) {
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
        for output in outputs { feed.yield(output) }
        timer?.cancel()
        guard let deadline = machine.nextDeadline else { return }
        timer = loop.schedule(at: deadline) { [weak self] in
            self?.assumeIsolated { $0.tell($0.machine.handleTimeout(at: .now)) }
        }
    }
}
