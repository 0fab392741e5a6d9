// The controlling terminal in raw mode, and back.
import CLinux
import Glibc
import Reactor

/// A terminal whose keys arrive one by one, unechoed, until `restore`.
public struct RawTerminal: Sendable {
    /// The terminal's descriptor, for reading keys.
    public let descriptor: Int32
    private let saved: termios
    private let tellsReleases: Bool

    /// Sets the terminal on `descriptor` to raw input.
    ///
    /// - Parameter tellsReleases: Whether to ask it to report releases; where it can, all keys come as escape codes then.
    /// - Throws: `SystemError` when the descriptor is no terminal.
    public init(descriptor: Int32 = STDIN_FILENO, tellsReleases: Bool = true) throws(SystemError) {
        self.tellsReleases = tellsReleases
        var settings = termios()
        guard tcgetattr(descriptor, &settings) == 0 else { throw SystemError("tcgetattr") }
        self.descriptor = descriptor
        saved = settings
        settings.c_lflag &= ~tcflag_t(ICANON | ECHO | ISIG)
        guard tcsetattr(descriptor, TCSANOW, &settings) == 0 else { throw SystemError("tcsetattr") }
        // Kitty keyboard protocol: disambiguate (1), report event types (2), all keys as escape codes (8). Others ignore it.
        if tellsReleases { Console.draw("\u{1B}[>11u") }
    }

    /// Puts everything back.
    public func restore() {
        if tellsReleases { Console.draw("\u{1B}[<u") }
        var settings = saved
        tcsetattr(descriptor, TCSANOW, &settings)
    }

    /// What has arrived, at most 256 bytes; empty at the end of input.
    public func read() -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: 256)
        let count = Glibc.read(descriptor, &bytes, bytes.count)
        return Array(bytes.prefix(max(0, count)))
    }
}
