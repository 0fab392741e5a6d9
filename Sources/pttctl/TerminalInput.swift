// What a person types at a terminal, for commands that continue or choose by it.
import Glibc
import Reactor
import Terminal

/// Tells what arrives on the standard input, while that is a terminal.
actor TerminalInput {
    private let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    private let isRaw: Bool
    private let handler: @Sendable ([UInt8]) -> Void
    private var terminal: RawTerminal?
    private var watch: EventLoop.Watch?

    /// - Parameters:
    ///   - isRaw: Whether each key arrives as soon as it is pressed, unechoed; else each line does.
    ///   - handler: Called on `loop` with the bytes.
    init(loop: EventLoop, isRaw: Bool, _ handler: @escaping @Sendable ([UInt8]) -> Void) {
        (self.loop, self.isRaw, self.handler) = (loop, isRaw, handler)
    }

    /// Begins to listen. Without a terminal it never reports anything.
    func start() throws {
        guard isatty(STDIN_FILENO) == 1 else { return }
        if isRaw { terminal = try RawTerminal(tellsReleases: false) }
        watch = try loop.watch(STDIN_FILENO, for: .readable) { [weak self] _ in
            self?.assumeIsolated { $0.readable() }
        }
    }

    func stop() {
        watch?.cancel()
        terminal?.restore()
        (watch, terminal) = (nil, nil)
    }

    private func readable() {
        var bytes = [UInt8](repeating: 0, count: 256)
        let count = read(STDIN_FILENO, &bytes, bytes.count)
        guard count > 0 else { return stop() }
        handler(Array(bytes.prefix(count)))
    }
}
