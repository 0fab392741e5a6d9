// Waits for the Enter key at a terminal, with which a command continues.
import Glibc
import Reactor

/// Tells each line that the person types, while the standard input is a terminal.
actor EnterKey {
    private let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    private let handler: @Sendable () -> Void
    private var watch: EventLoop.Watch?

    /// - Parameter handler: Called on `loop`, once for each Enter.
    init(loop: EventLoop, _ handler: @escaping @Sendable () -> Void) {
        self.loop = loop
        self.handler = handler
    }

    /// Begins to listen. Without a terminal it never reports anything.
    func start() {
        guard isatty(STDIN_FILENO) == 1 else { return }
        watch = try? loop.watch(STDIN_FILENO, for: .readable) { [weak self] _ in
            self?.assumeIsolated { $0.readable() }
        }
    }

    func stop() {
        watch?.cancel()
        watch = nil
    }

    private func readable() {
        var bytes = [UInt8](repeating: 0, count: 256)
        let count = read(STDIN_FILENO, &bytes, bytes.count)
        guard count > 0 else { return stop() }
        if bytes.prefix(count).contains(UInt8(ascii: "\n")) { handler() }
    }
}
