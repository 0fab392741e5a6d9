// The bar that shows how loud own speech is.
import PTTBus
import Terminal
import Testing

@testable import pttctl

@Suite struct LevelLineTests {
    private let size = TerminalSize(columns: 80, rows: 24)

    @Test
    func `the bar is empty in silence, full at full scale, and fits the terminal`() {
        let silent = LevelLine.text(-96, columns: 80)
        #expect(silent == "  mic \(String(repeating: "·", count: 40)) -96.0 dBFS")
        #expect(LevelLine.text(0, columns: 80).contains(String(repeating: "█", count: 40)))
        #expect(LevelLine.text(-30, columns: 80).count { $0 == "█" } == 20)
        #expect(LevelLine.text(3, columns: 80).count { $0 == "█" } == 40, "never more than full")
        for columns in 1...100 {
            let text = LevelLine.text(-23.4, columns: columns)
            #expect(text.count <= max(columns, 10) && text.contains("-23.4 dBFS"), "\(columns)")
        }
    }

    @Test
    func `it is drawn in its place, and taken away when nothing is recorded, once`() {
        var line = LevelLine()
        #expect(line.shown(ChannelProperties.inputLevelOff, size).isEmpty && line.hidden(size).isEmpty)
        #expect(line.shown(-20, size).contains("-20.0 dBFS"))
        #expect(line.shown(-19, size).hasPrefix("\r\u{1B}[1A"), "over the one before")
        #expect(line.hidden(size) == "\r\u{1B}[1A\u{1B}[J")
        #expect(line.hidden(size).isEmpty)
        _ = line.shown(-20, size)
        #expect(line.shown(ChannelProperties.inputLevelOff, size) == "\r\u{1B}[1A\u{1B}[J")
    }
}
