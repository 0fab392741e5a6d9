// docs/app-developers.md shows the samples that are compiled, and no others.
import Foundation
import Testing

@Suite struct SamplesTests {
    static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()
    private static let page = root.appendingPathComponent("docs/app-developers.md")

    /// The snippets between `// snippet: name` and `// end snippet`, without their common indentation.
    static func snippets() throws -> [String: String] {
        let source = try String(
            contentsOf: root.appendingPathComponent("Tests/PushToTalkSamples/Radio.swift"), encoding: .utf8)
        var result: [String: String] = [:]
        var name: String?
        var lines: [String] = []
        for line in source.components(separatedBy: "\n") {
            let text = line.trimmingCharacters(in: .whitespaces)
            if text.hasPrefix("// snippet: ") {
                name = String(text.dropFirst("// snippet: ".count))
                lines = []
            } else if text == "// end snippet", let ended = name {
                let indentation = lines.filter { !$0.isEmpty }.map { $0.prefix { $0 == " " }.count }.min() ?? 0
                result[ended] = lines.map { String($0.dropFirst(min(indentation, $0.count))) }
                    .joined(separator: "\n")
                name = nil
            } else if name != nil {
                lines.append(line)
            }
        }
        return result
    }

    /// The page with each snippet's code after its marker.
    static func rendered(_ page: String) throws -> String {
        let snippets = try snippets()
        var lines: [String] = []
        var isInSnippet = false
        var pages = page.components(separatedBy: "\n")[...]
        while let line = pages.popFirst() {
            if isInSnippet {
                isInSnippet = line != "```"
                continue
            }
            lines.append(line)
            guard line.hasPrefix("<!-- snippet: "), line.hasSuffix(" -->") else { continue }
            let name = String(line.dropFirst("<!-- snippet: ".count).dropLast(" -->".count))
            let code = try #require(snippets[name], "the page shows a snippet \(name) that is not there")
            lines += ["```swift"] + code.components(separatedBy: "\n") + ["```"]
            if pages.first == "```swift" {
                pages.removeFirst()
                isInSnippet = true
            }
        }
        return lines.joined(separator: "\n")
    }

    /// `PTTD_WRITE_SAMPLES=1` writes them into the page.
    @Test func `the page shows the samples that are compiled`() throws {
        let page = try String(contentsOf: Self.page, encoding: .utf8)
        let rendered = try Self.rendered(page)
        if ProcessInfo.processInfo.environment["PTTD_WRITE_SAMPLES"] != nil {
            try rendered.write(to: Self.page, atomically: true, encoding: .utf8)
        } else {
            #expect(page == rendered, "run: PTTD_WRITE_SAMPLES=1 swift test --filter SamplesTests")
        }
    }

    @Test func `every sample is shown`() throws {
        let page = try String(contentsOf: Self.page, encoding: .utf8)
        for name in try Self.snippets().keys { #expect(page.contains("<!-- snippet: \(name) -->"), "\(name)") }
    }
}
