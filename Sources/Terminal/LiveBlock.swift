// Lines on a terminal that are redrawn in place.
import Glibc

/// A block of lines at the end of what a terminal shows. Pure: it says what to write; `Console.draw` writes it.
public struct LiveBlock: Sendable {
    private var height = 0

    /// Nothing drawn yet.
    public init() {}

    /// What puts `lines` in the place of those drawn before: at most `size.rows - 1` of them, each cut to fit, for a line
    /// that wraps or scrolls away could not be drawn over.
    public mutating func draw(_ lines: [String], size: TerminalSize) -> String {
        let shown = lines.prefix(max(1, size.rows - 1))
        let back = height > 0 ? "\r\u{1B}[\(height)A" : "\r"
        height = shown.count
        return back
            + shown.map { $0.fitted(max(1, size.columns - 1), padded: false) + "\u{1B}[K\n" }.joined() + "\u{1B}[J"
    }
}

/// What fits on a terminal.
public struct TerminalSize: Sendable, Equatable {
    /// Columns.
    public var columns: Int
    /// Rows.
    public var rows: Int

    /// A size.
    public init(columns: Int, rows: Int) {
        self.columns = columns
        self.rows = rows
    }

    /// That of the terminal on standard output; nil when it is none, or one that cannot move the cursor (`TERM=dumb`).
    public static var ofOutput: TerminalSize? {
        guard isatty(STDOUT_FILENO) == 1 else { return nil }
        if let kind = getenv("TERM").map({ String(cString: $0) }), kind == "dumb" || kind.isEmpty { return nil }
        var size = winsize()
        guard ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0, size.ws_row > 0 else {
            return TerminalSize(columns: 80, rows: 24)
        }
        return TerminalSize(columns: Int(size.ws_col), rows: Int(size.ws_row))
    }
}
