// The level of own speech, as the last line of a terminal's output.
import PTTBus
import Terminal

/// The last line of a terminal while something is recorded. Pure: it says what to write.
struct LevelLine {
    /// The quietest level that has a bar, in dBFS.
    static let quietest = -60.0
    /// The longest bar, in columns.
    static let columnsMax = 40

    private var block = LiveBlock()
    private var isShown = false

    /// What takes the line away, before other lines are written.
    mutating func hidden(_ size: TerminalSize) -> String {
        guard isShown else { return "" }
        isShown = false
        return block.draw([], size: size)
    }

    /// What shows `level` in the place of the one before; without a level the line goes.
    mutating func shown(_ level: Double, _ size: TerminalSize) -> String {
        guard level > ChannelProperties.inputLevelOff else { return hidden(size) }
        isShown = true
        return block.draw([Self.text(level, columns: size.columns)], size: size)
    }

    /// A bar and the number, as wide as fits.
    static func text(_ level: Double, columns: Int) -> String {
        let number = "\((level * 10).rounded() / 10) dBFS"
        let width = min(columnsMax, columns - number.count - 8)
        guard width > 0 else { return number }
        let share = min(1, max(0, 1 - level / quietest))
        let full = Int((share * Double(width)).rounded())
        return "  mic \(String(repeating: "█", count: full))\(String(repeating: "·", count: width - full)) \(number)"
    }
}
