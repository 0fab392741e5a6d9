// What a name from the air can do to a terminal: nothing.
import Testing

@testable import Terminal

@Suite struct PlainTextTests {
    @Test(arguments: [
        ("PTT-Z", "PTT-Z"), ("\u{1B}[2J\u{1B}]0;x\u{07}y", "\u{FFFD}[2J\u{FFFD}]0;x\u{FFFD}y"),
        ("a\nb\r\nc\td", "a\u{FFFD}b\u{FFFD}\u{FFFD}c\u{FFFD}d"), ("\u{9B}31m", "\u{FFFD}31m"),
        ("\u{202E}ZTTP\u{2066}", "\u{FFFD}ZTTP\u{FFFD}"), ("Bergwacht ⛰ 山", "Bergwacht ⛰ 山"), ("", ""),
        ("\u{7F}\u{2028}\u{FEFF}", "\u{FFFD}\u{FFFD}\u{FFFD}"),
    ])
    func `control characters, line ends and marks that reorder become U+FFFD; the rest stays`(
        text: String, expected: String
    ) {
        #expect(text.plain() == expected)
    }

    @Test
    func `a long text is cut, and so is a heap of marks on one letter`() {
        #expect(String(repeating: "x", count: 600).plain() == String(repeating: "x", count: 512) + "…")
        let heap = "e" + String(repeating: "\u{301}", count: 10_000)
        #expect(heap.plain().unicodeScalars.count == 16)
    }

    @Test(arguments: [
        ("abc", 3), ("山本", 4), ("e\u{301}", 1), ("📻", 2), ("▂▄▆█", 4), ("é", 1), ("", 0), ("한국", 4),
    ])
    func `columns are counted as terminals do`(text: String, expected: Int) {
        #expect(text.columns == expected)
    }

    @Test(arguments: [
        ("abc", 5, "abc  "), ("abcdef", 4, "abc…"), ("山本山本", 5, "山本…"), ("山本山本", 4, "山… "), ("ab", 2, "ab"),
    ])
    func `a text is cut or filled to the width that it is given`(text: String, width: Int, expected: String) {
        #expect(text.fitted(width) == expected)
        #expect(text.fitted(width, padded: false) == expected.replacing(#/ +$/#, with: ""))
    }

    @Test(arguments: [
        ("it tells clicks only", 10, 5, ["it tells", "clicks", "only"]), ("a b c d", 1, 2, ["a", "…"]),
        ("a b c d", 3, 1, ["a …"]), ("", 5, 2, [""]), ("abcdefgh x", 4, 3, ["abc…", "x"]),
    ])
    func `a text is broken at spaces, and cut after its last line`(
        text: String, width: Int, limit: Int, expected: [String]
    ) {
        #expect(text.wrapped(width, limit: limit) == expected)
    }

    @Test
    func `what is said keeps its lines and loses its escapes`() {
        #expect(Console.harmless("a\u{1B}[1m\nb\r\tc\u{85}") == "a\u{FFFD}[1m\nb\r\tc\u{FFFD}")
        #expect(Console.harmless("Grüße ⛰") == "Grüße ⛰")
    }
}

@Suite struct LiveBlockTests {
    private let size = TerminalSize(columns: 10, rows: 4)

    @Test
    func `the first drawing goes where the cursor is; the next ones go over the one before`() {
        var block = LiveBlock()
        #expect(block.draw(["a", "b"], size: size) == "\ra\u{1B}[K\nb\u{1B}[K\n\u{1B}[J")
        #expect(block.draw(["c"], size: size) == "\r\u{1B}[2Ac\u{1B}[K\n\u{1B}[J")
        #expect(block.draw(["d"], size: size) == "\r\u{1B}[1Ad\u{1B}[K\n\u{1B}[J")
    }

    @Test
    func `no line wraps, and no more lines are drawn than the terminal has`() {
        var block = LiveBlock()
        let text = block.draw((0..<9).map { _ in String(repeating: "x", count: 30) }, size: size)
        #expect(text.split(separator: "\n").count == 3 + 1)
        #expect(text.contains("xxxxxxxx…\u{1B}[K") && !text.contains("xxxxxxxxx"))
        #expect(block.draw([], size: size).hasPrefix("\r\u{1B}[3A"))
    }
}
