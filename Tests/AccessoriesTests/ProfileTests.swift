// Profile files: those shipped, an administrator's, and wrong ones.
import BlueZ
import FoundationEssentials
import Settings
import Testing

@testable import Accessories

@Suite struct ProfileTests {
    @Test func everyFileOfTheProfilesFolderIsShippedAndReads() throws {
        let tests = String(#filePath.prefix(upTo: #filePath.lastIndex(of: "/")!))
        let folder = tests + "/../../Sources/Accessories/Profiles"
        let names = try FileManager.default.contentsOfDirectory(atPath: folder).sorted()
        #expect(names == ProfileLibrary.shippedFiles.map(\.name).sorted())
        for file in ProfileLibrary.shippedFiles {
            #expect(file.bytes == (try SettingsFile.contents(of: "\(folder)/\(file.name)")))
            let profile = try AccessoryProfile(bytes: file.bytes, file: file.name)
            #expect("\(profile.id).toml" == file.name)
            #expect(profile.refusal != nil || profile.controls.contains(.ptt))
        }
        let loaded = ProfileLibrary.load(directory: nil)
        #expect(loaded.problems.isEmpty)
        #expect(loaded.library.profiles.count == names.count)
    }

    @Test func anAdministratorsFileReplacesTheShippedOneAndABadOneIsReportedAlone() throws {
        let directory = "\(FileManager.default.temporaryDirectory.path)/pttd-profiles-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let shipped = ProfileLibrary.shippedFiles.first { $0.name == "ptt-z.toml" }!.bytes
        var text = String(decoding: shipped, as: UTF8.self)
        text.replace("title = \"Pryme", with: "title = \"Our Pryme")
        try Data(text.utf8).write(to: URL(fileURLWithPath: "\(directory)/site.toml"))
        try Data("id = \"broken\"\ntitel = \"x\"".utf8).write(to: URL(fileURLWithPath: "\(directory)/bad.toml"))
        try Data("not read".utf8).write(to: URL(fileURLWithPath: "\(directory)/README"))
        let (library, problems) = ProfileLibrary.load(directory: directory)
        #expect(library["ptt-z"]?.title.hasPrefix("Our Pryme") == true)
        #expect(library.profiles.count == ProfileLibrary.shippedFiles.count)
        #expect(problems.allSatisfy { $0.file == "\(directory)/bad.toml" })
        #expect(problems.contains { $0.key == "titel" && $0.advice == "did you mean 'title'?" })
    }

    @Test func anAbsentDirectoryIsNoProblem() {
        #expect(ProfileLibrary.load(directory: "/nonexistent/profiles.d").problems.isEmpty)
    }

    @Test(arguments: [
        ("bit = 0x01", "bit = 0x03", "input[1].control[1].bit: is not a single bit"),
        ("bit = 0x02", "bit = 0x01", "input[1].control[2].bit: is already used"),
        ("bit = 0x01", "bit = 0x80", "input[1].control[1].bit: is already used"),
        ("bit = 0x01", "bit = 256", "256 is out of range"),
        ("name = \"ptt2\"", "name = \"ptt\"", "two controls are called \"ptt\""),
        ("name = \"ptt2\"", "name = \"pttt2\"", "did you mean \"ptt2\"?"),
        ("decode = \"bits\"", "decode = \"bit\"", "did you mean \"bits\"?"),
        ("decode = \"bits\"", "decode = \"nonzero\"", "\"nonzero\" knows one control"),
        ("ignored_bits = 0x80", "ignored_bit = 0x80", "did you mean 'ignored_bits'?"),
        ("127fbeef-cb21-11e5-93d0-0002a5d5c51b", "127fbeef", "is not a UUID"),
        ("service_identifies = true", "names = []", "cannot redefine"),
        ("bonding = \"as-needed\"", "bonding = \"always\"", "is not known; write one of \"never\""),
        ("battery = \"service\"", "battery = \"text\"", "battery_prefix go together"),
        ("readable = true", "readable = true\nbyte = 3", "is behind the end of the value"),
    ])
    func mistakesInAProfileAreExplained(right: String, wrong: String, message: String) throws {
        let shipped = ProfileLibrary.shippedFiles.first { $0.name == "aina-v2.toml" }!.bytes
        var text = String(decoding: shipped, as: UTF8.self)
        #expect(text.contains(right))
        if right.hasPrefix("127fbeef") {
            text.replace(right, with: "127fbee")
        } else {
            text.replace(right, with: wrong, maxReplacements: 1)
        }
        #expect {
            try AccessoryProfile(bytes: Array(text.utf8), file: "site.toml")
        } throws: { error in
            "\(error)".contains("site.toml:") && "\(error)".contains(message)
        }
    }

    @Test func aWordThatBeginsAnotherIsRefused() {
        let shipped = ProfileLibrary.shippedFiles.first { $0.name == "anytone-elet.toml" }!.bytes
        var text = String(decoding: shipped, as: UTF8.self)
        text.replace("\"ELET2\"", with: "\"elet12\"")
        #expect { try AccessoryProfile(bytes: Array(text.utf8), file: "x") } throws: {
            "\($0)".contains("\"ELET1\" begins \"elet12\"")
        }
    }

    @Test func aMakersOwnServiceNeedsNoName() throws {
        let library = ProfileLibrary.load(directory: nil).library
        let aina = try #require(library["aina-v2"])
        let has: (BluetoothUUID, BluetoothUUID) -> Bool = {
            $0 == aina.inputs[0].service && $1 == aina.inputs[0].characteristic
        }
        #expect(library.profile(names: [], has: has)?.id == "aina-v2")
        #expect(library.candidate(name: nil, services: aina.services)?.id == "aina-v2")
        #expect(library.profile(names: ["APTT1234"], has: { _, _ in false }) == nil)
    }

    @Test(arguments: [
        ("PTT*", "ptt-z01", true), ("PTT*", "xPTT", false), ("*ASB*", "My asb 2", true), ("a*b*c", "aXbYc", true),
        ("a*b*c", "acb", false), ("*", "", true), ("x", "x", true), ("x", "", false),
        ("*a*a*a*b", "aaaaaaaaaaaa", false),
        ("Gü*", "GÜTER", true),
    ])
    func namePatterns(pattern: String, name: String, matches: Bool) {
        #expect(NamePattern(pattern).matches(name) == matches)
    }
}
