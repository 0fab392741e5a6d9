// Names of others, made fit for one line of a widget; and the signs that need no theme.
import TestSupport
import Testing

@testable import SystemUI

@Suite struct DisplayTextTests {
    @Test func `a name is shown as it is`() {
        for name in ["Anna", "Anna Müller", "👩‍🚒 班长", "a_b & <c>"] {
            #expect(DisplayText.line(name, fallback: "?") == name)
        }
    }

    @Test func `a text becomes one line without controls and without what turns a line around`() {
        #expect(DisplayText.line(" Anna\r\n\t\u{0}B\u{7} ", fallback: "?") == "Anna B")
        #expect(DisplayText.line("abc\u{202E}fed\u{2066}x\u{200F}", fallback: "?") == "abcfedx")
        for nothing in ["", " \n", "\u{0}\u{1B}", "\u{202E}"] {
            #expect(DisplayText.line(nothing, fallback: "Somebody") == "Somebody")
        }
    }

    @Test func `a long text is cut, and so is a letter with a thousand marks`() {
        let long = String(repeating: "x", count: 10_000)
        #expect(DisplayText.line(long, fallback: "?") == String(repeating: "x", count: 160) + "…")
        let marked = "a" + String(repeating: "\u{308}", count: 100_000)
        #expect(DisplayText.line(marked, fallback: "?").utf8.count < 64)
    }

    @Test func `markup is escaped even where a mark is put on it`() {
        #expect(DisplayText.escapingMarkup("<b>Q&A</b>") == "&lt;b&gt;Q&amp;A&lt;/b&gt;")
        #expect(DisplayText.escapingMarkup("<\u{308}b").unicodeScalars.first == "&")
        #expect(DisplayText.menuLabel("a_b") == "a__b")
    }

    @Test func `whatever bytes a name is made of, it is bounded and goes on a bus`() {
        var random = SeededGenerator()
        for _ in 0..<2_000 {
            let bytes = random.bytes(Int.random(in: 0...400, using: &random))
            let line = DisplayText.line(String(decoding: bytes, as: UTF8.self), fallback: "?")
            #expect(!line.isEmpty && line.count <= 161)
            #expect(!line.unicodeScalars.contains { $0.properties.generalCategory == .control })
        }
    }
}

@Suite struct ActivityBadgeTests {
    @Test func `the signs of activities differ in shape, not only in colour`() {
        let shapes = Activity.allCases.map { activity in
            let pixels = ActivityBadge.pixels(of: activity)
            #expect(pixels.count == ActivityBadge.side * ActivityBadge.side * 4)
            #expect(pixels[0] == 0)
            return stride(from: 0, to: pixels.count, by: 4).map { pixels[$0] > 127 }
        }
        #expect(Set(shapes).count == Activity.allCases.count)
        #expect(shapes.allSatisfy { $0.contains(true) })
    }
}
