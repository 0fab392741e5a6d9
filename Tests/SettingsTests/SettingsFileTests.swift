// What a user sees when a settings file is right, and when it is wrong.
import FoundationEssentials
import Glibc
import Settings
import TestSupport
import Testing

private enum Colour: String, CaseIterable { case red, green, blue }

private func problems<T>(_ text: String, _ body: (SettingsTable) -> T) -> [String] {
    do {
        _ = try SettingsFile.read(text: text, file: "t.toml", body)
        return []
    } catch {
        return error.problems.map(\.description)
    }
}

@Suite struct SettingsFileTests {
    @Test func `every kind of setting is read`() throws {
        let text = """
            name = "Güter\\u00e4mter"
            port = 0x1F_90
            tail = "1.5s"
            loud = true
            colour = "green"
            id = "127FACE1-CB21-11E5-93D0-0002A5D5C51B"
            words = [ "a", 'b\\', # comment
              "c",
            ]
            [relay]
            host = "example.org"
            [[accessory]]
            name = "one"
            [[accessory]]
            name = "two"
            [key.red]
            level = 1
            [key.blue]
            level = 2
            """
        try SettingsFile.read(text: text, file: "t.toml") { root in
            #expect(root.required("name", .string) == "Güterämter")
            #expect(root.required("port", .integer(in: 1...65535)) == 8080)
            #expect(root.required("tail", .duration(in: .zero ... .seconds(2))) == .milliseconds(1500))
            #expect(root.required("loud", .boolean))
            #expect(root.required("colour", .oneOf as SettingType<Colour>) == .green)
            #expect(root.required("id", .uuid) == UUID(uuidString: "127face1-cb21-11e5-93d0-0002a5d5c51b"))
            #expect(root.required("words", .array(of: .string)) == ["a", "b\\", "c"])
            #expect(root.table("relay")?.required("host", .string) == "example.org")
            #expect(root.tables("accessory").map { $0.required("name", .string) } == ["one", "two"])
            let levels = root.namedTables("key").map { "\($0.name)\($0.table.required("level", .integer(in: 0...9)))" }
            #expect(levels == ["red1", "blue2"])
            #expect(root.optional("absent", .string) == nil)
            #expect(root.value("other", .boolean, default: true))
        }
    }

    @Test func `several mistakes are reported together in the order of the file`() {
        let found = problems(
            """
            tail = 200
            [channel]
            nmae = "Works"
            volume = 101
            colour = "gren"
            """
        ) { root in
            _ = root.required("tail", .duration(in: .zero ... .seconds(2)))
            let channel = root.table("channel")
            _ = channel?.required("name", .string)
            _ = channel?.required("volume", .integer(in: 0...100))
            _ = channel?.required("colour", .oneOf as SettingType<Colour>)
        }
        #expect(
            found == [
                "t.toml:1:8: tail: is an integer without a unit; "
                    + "write a time from \"0ms\" to \"2s\", with its unit and in quotes",
                "t.toml:2:1: channel.name: is missing; add: name = …, a text in quotes",
                "t.toml:3:1: channel.nmae: is not known; did you mean 'name'?",
                "t.toml:4:10: channel.volume: 101 is out of range; write an integer from 0 to 100",
                "t.toml:5:10: channel.colour: \"gren\" is not known; "
                    + "did you mean \"green\"? It is one of \"red\", \"green\", \"blue\"",
            ])
    }

    @Test func `an unknown key far from any other gets the list of known ones`() {
        let found = problems("xyzzy = 1\nname = \"a\"") { $0.required("name", .string) }
        #expect(found == ["t.toml:1:1: xyzzy: is not known; known here: name"])
    }

    @Test func `an unknown table is reported`() {
        let found = problems("[relai]\nhost = \"a\"") { $0.table("relay")?.required("host", .string) }
        #expect(found == ["t.toml:1:2: relai: is not known; did you mean 'relay'?"])
    }

    @Test func `a table that is read in two places knows the keys of both`() {
        let found = problems("[relay]\nhost = \"a\"\nport = 1\ntail = 2\n") { root in
            _ = root.table("relay")?.optional("host", .string)
            _ = root.table("relay")?.optional("port", .integer(in: 1...9))
        }
        #expect(found == ["t.toml:4:1: relay.tail: is not known; known here: host, port"])
    }

    @Test func `columns count characters not bytes`() {
        let found = problems("\"ä\" = \"öö\" x") { $0.required("ä", .string) }
        #expect(found.count == 1)
        #expect(found.first?.hasPrefix("t.toml:1:12: is not TOML: ") == true)
    }

    @Test func `a syntax error says where and what to write`() {
        let found = problems("a = 1\nb = hello") { _ in }
        #expect(found.count == 1)
        #expect(found.first?.hasPrefix("t.toml:2:5: is not TOML: ") == true)
        #expect(found.first?.hasSuffix("; text needs quotes") == true)
    }

    @Test func `a syntax error that quotes would not mend does not ask for them`() {
        let found = problems("[a\nb = 1") { _ in }
        #expect(found.count == 1)
        #expect(found.first?.contains("quotes") == false)
        #expect(found.first?.hasSuffix("; toml.io shows how it is written") == true)
    }

    @Test func `an element of an array is named by its own place`() {
        let found = problems("words = [\"a\",\n  7]") { $0.required("words", .array(of: .string)) }
        #expect(found == ["t.toml:2:3: words: is an integer; write a text in quotes"])
    }

    @Test func `a problem seen by the program itself is placed at its key`() {
        let found = problems("[a]\nlow = 5\nhigh = 3") { root in
            guard let table = root.table("a") else { return }
            let low = table.required("low", .integer(in: 0...9))
            let high = table.required("high", .integer(in: 0...9))
            if low > high { table.problem("high", "is below 'low'", "write a larger number") }
        }
        #expect(found == ["t.toml:3:8: a.high: is below 'low'; write a larger number"])
    }

    @Test func `a missing file and an oversized one are refused with reasons`() {
        #expect(throws: SettingsError.self) { try SettingsFile.read(path: "/nonexistent/pttd.toml") { _ in } }
        let large = [UInt8](repeating: UInt8(ascii: "#"), count: SettingsFile.sizeMax + 1)
        #expect {
            try SettingsFile.read(bytes: large, file: "t.toml") { _ in }
        } throws: { "\($0)".contains("\(SettingsFile.sizeMax) are the limit") }
        // A file that never ends.
        #expect(throws: SettingsError.self) { try SettingsFile.read(path: "/dev/zero") { _ in } }
    }

    @Test func `bytes that are not UTF 8 are refused at their place`() {
        #expect {
            try SettingsFile.read(bytes: Array("a = 1\nb = \"".utf8) + [0xFF, 0x22], file: "t.toml") { _ in }
        } throws: { "\($0)".hasPrefix("t.toml:2:5: is not TOML: ") && "\($0)".contains("utf-8") }
    }

    @Test func `nesting is bounded`() {
        let deep = "a = " + String(repeating: "[", count: 100_000)
        #expect(problems(deep) { _ in }.first?.contains("nested value depth") == true)
    }

    @Test func `a flood of mistakes is cut with a count`() throws {
        let text = (0..<100).map { "key\($0) = 1" }.joined(separator: "\n")
        #expect {
            try SettingsFile.read(text: text, file: "t.toml") { _ in }
        } throws: { error in
            guard let error = error as? SettingsError else { return false }
            return error.problems.count == SettingsError.problemsReported && error.unreported == 80
        }
    }

    @Test(arguments: [
        ("200ms", Duration.milliseconds(200)), ("1.5s", .milliseconds(1500)), ("2min", .seconds(120)),
        ("0.25h", .seconds(900)), ("0s", .zero),
    ])
    func `durations are exact`(text: String, duration: Duration) {
        #expect(parseDuration(text) == duration)
    }

    @Test(arguments: ["", "5", "ms", "-1s", "1.s", ".5s", "1..5s", "1 s", "1e3s", "1.2345s", "9999999999s", "1S", "1d"])
    func `other texts are no durations`(text: String) {
        #expect(parseDuration(text) == nil)
    }

    @Test func `a reader of a part takes other keys for known ones, but only where it says so`() {
        let text = "[audio]\nmicrophone = \"x\"\nother = 1\n[channel]\nlink = \"y\""
        func read(_ body: (SettingsTable) -> Void) -> [String] {
            problems(text) { root in
                body(root)
                return root.table("audio")?.optional("microphone", .string)
            }
        }
        #expect(read { _ in }.count == 2)
        #expect(read { $0.isReadInPart() }.count == 1)
        let whole = read {
            $0.isReadInPart()
            $0.table("audio")?.isReadInPart()
        }
        #expect(whole.isEmpty)
    }

    @Test func `a settings file is looked for at the system's place last`() {
        let paths = SettingsPlaces.paths(of: "pttd", name: "pttd.toml")
        #expect(paths.last == "/etc/pttd/pttd.toml" && paths.count <= 2)
    }

    @Test func `a link to a file that is not there is not passed over, and may be read later`() throws {
        let folder = try TemporaryFolder()
        let (none, link, other) = (folder.file("none"), folder.file("link"), folder.file("other"))
        #expect(symlink(folder.file("disk/settings"), link) == 0)
        try Data("".utf8).write(to: URL(filePath: other))
        #expect(SettingsPlaces.first(of: [none, link, other]) == link)
        #expect(SettingsPlaces.first(of: [none, other, link]) == other && SettingsPlaces.first(of: [none]) == nil)
        #expect {
            try SettingsFile.read(path: link) { _ in }
        } throws: { ($0 as? SettingsError)?.mayPass == true && "\($0)".contains("symbolic link to a missing file") }
    }
}
