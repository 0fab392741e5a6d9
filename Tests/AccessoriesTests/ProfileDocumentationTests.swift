// docs/profiles.md says what the reader reads and what is shipped.
import Settings
import Testing

@testable import Accessories

@Suite struct ProfileDocumentationTests {
    private static func page() throws -> String {
        let path = "\(#filePath)".replacing(
            "Tests/AccessoriesTests/ProfileDocumentationTests.swift", with: "docs/profiles.md")
        return String(decoding: try SettingsFile.contents(of: path), as: UTF8.self)
    }

    @Test func everyShippedProfileIsInTheTableAndNoOther() throws {
        let profiles = ProfileLibrary.load(directory: nil).library.profiles
        let expected = profiles.map { profile in
            let notes = [
                profile.refusal == nil ? nil : "refused", profile.isExplicitOnly ? "only where named" : nil,
                profile.isExperimental ? "experimental" : nil,
            ].compactMap { $0 }.joined(separator: ", ")
            return
                "| `\(profile.id)` | \(profile.title) | \(profile.transport.rawValue) | \(profile.confidence.rawValue) | \(notes) |"
        }
        let table = try Self.page().split(separator: "## The shipped profiles").last!
        let rows = table.split(separator: "\n").filter { $0.hasPrefix("| `") }.map(String.init)
        #expect(rows == expected, "\(expected.joined(separator: "\n"))")
    }

    @Test func theExamplesAreReadAsThePageSays() throws {
        let blocks = try Self.page().split(separator: "```toml\n").dropFirst().map { $0.split(separator: "```")[0] }
        var refused = 0
        for block in blocks {
            do throws(SettingsError) {
                let profile = try AccessoryProfile(bytes: Array(block.utf8), file: "x")
                #expect(profile.id == "gate" || profile.id == "desk-pedal")
            } catch {
                refused += 1
                #expect(error.problems.map(\.message) == ["\"+PTT=P\" begins \"+PTT=P1\""])
            }
        }
        #expect(blocks.count == 3 && refused == 1)
    }

    @Test func theCheckOfTheExampleIsWhatThePageShows() throws {
        let page = try Self.page()
        let block = page.split(separator: "```toml\n")[1].split(separator: "```")[0]
        let profile = try AccessoryProfile(bytes: Array(block.utf8), file: "gate.toml")
        let shown = profile.summary.enumerated().map { $0 == 0 ? $1 : "    \($1)" }.joined(separator: "\n")
        #expect(page.contains(shown), "\(shown)")
        let wrong = block.trimmingSuffix(while: \.isNewline) + "\ngesture = \"hold\"\n"
        #expect {
            _ = try AccessoryProfile(bytes: Array(wrong.utf8), file: "gate.toml")
        } throws: { error in
            page.contains("\n\(error)\n")
        }
    }

    /// Every key that the reader knows: it names them itself when it meets an unknown one.
    @Test func everyKeyIsExplained() throws {
        let page = try Self.page()
        for (kind, text) in ProfileMistakesTests.right {
            for table in [
                "", "[match]", "[[input]]", "[[input.control]]", "[light]", "[idle_link]", "[[start]]", "[timing]",
            ] {
                guard table.isEmpty || table == "[timing]" || text.contains(table) else { continue }
                let key = "zzzzzzzzzzzz = 1\n"
                let wrong =
                    table.isEmpty
                    ? key + text
                    : text.contains(table)
                        ? text.replacing("\(table)\n", with: "\(table)\n\(key)") : "\(text)\n[timing]\n\(key)"
                guard
                    let error = #expect(
                        throws: SettingsError.self,
                        performing: {
                            _ = try AccessoryProfile(bytes: Array(wrong.utf8), file: kind)
                        })
                else { continue }
                let advice = error.problems.first { $0.key.contains("zzzz") }?.advice ?? ""
                let known = advice.split(separator: "known here: ").last?.split(separator: ", ") ?? []
                #expect(!known.isEmpty)
                for key in known {
                    let isTable = ["input", "match", "timing", "start", "light", "idle_link", "control", "udev"]
                        .contains(key)
                    let isKey = page.contains("`\(key)`") || (isTable && page.contains("\(key)]"))
                    #expect(isKey, "\(key) of \(table) is not in docs/profiles.md")
                }
            }
        }
    }
}

extension Substring {
    fileprivate func trimmingSuffix(while predicate: (Character) -> Bool) -> Substring {
        var text = self
        while let last = text.last, predicate(last) { text.removeLast() }
        return text
    }
}
