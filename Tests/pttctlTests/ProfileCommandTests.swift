// pttctl profile …: without a daemon, on files that are right and wrong.
import Accessories
import BusTestSupport
import FoundationEssentials
import Testing

@Suite struct ProfileCommandTests {
    private func run(_ arguments: String...) async throws -> Outcome {
        let process = try ChildProcess(
            [try Program.path(), "profile"] + arguments,
            environment: [
                "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere", "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nowhere",
            ])
        let status = try await process.end()
        return Outcome(status: status, output: process.output, errors: process.errors)
    }

    private func withDirectory(_ body: (String) async throws -> Void) async throws {
        let directory = "\(FileManager.default.temporaryDirectory.path)/pttctl-profiles-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        try await body(directory)
    }

    private func write(_ text: String, _ path: String) throws { try Data(text.utf8).write(to: URL(filePath: path)) }

    private let button = """
        id = "gate"
        title = "The button at the gate"
        confidence = "capture"
        sources = ["our own"]
        bonding = "never"
        [match]
        names = ["Gate*"]
        [[input]]
        service = "ffe0"
        characteristic = "ffe1"
        decode = "value"
        [[input.control]]
        name = "ptt"
        pressed = 0x01
        released = 0x00

        """

    @Test
    func `a right file is shown in words, with status 0`() async throws {
        try await withDirectory { directory in
            try write(button, "\(directory)/gate.toml")
            let outcome = try await run("check", "\(directory)/gate.toml")
            #expect(outcome.status == 0 && outcome.errors.isEmpty, "\(outcome)")
            #expect(outcome.output.hasPrefix("gate: The button at the gate\n"), "\(outcome)")
            #expect(outcome.output.contains("ptt: transmit, hold (pressed 01, released 00)"), "\(outcome)")
            #expect(outcome.output.contains("recognised: name Gate*\n"), "\(outcome)")
        }
    }

    @Test
    func `each mistake is told with file, line and column; the right files beside it are shown; status 1`() async throws
    {
        try await withDirectory { directory in
            let good = "\(directory)/good.toml"
            let bad = "\(directory)/bad.toml"
            try write(button, good)
            try write(
                button.replacing("title", with: "titel").replacing("released = 0x00", with: "gesture = \"hold\""), bad)
            let outcome = try await run("check", bad, good, "\(directory)/none.toml")
            #expect(outcome.status == 1, "\(outcome)")
            #expect(outcome.errors.contains("\(bad):2:1: titel: is not known; did you mean 'title'?"), "\(outcome)")
            #expect(outcome.errors.contains("\(bad):15:11: input[1].control[1].gesture: \"hold\" needs"), "\(outcome)")
            #expect(outcome.errors.contains("\(directory)/none.toml: cannot be read"), "\(outcome)")
            #expect(outcome.output.hasPrefix("gate: "), "\(outcome)")
            #expect(try await run("check", good, good).status == 1)
            #expect(try await run("check").status == 64)
        }
    }

    @Test
    func `the list has every shipped profile and the site's own, and says which are refused or only where named`()
        async throws
    {
        try await withDirectory { directory in
            try write(button, "\(directory)/gate.toml")
            try write("id = 1", "\(directory)/bad.toml")
            let outcome = try await run("list", "--profiles", directory)
            #expect(outcome.status == 0 && outcome.errors.contains("\(directory)/bad.toml:1:6: id"), "\(outcome)")
            let lines = outcome.output.split(separator: "\n")
            let profiles = ProfileLibrary.load(directory: nil).library.profiles
            #expect(lines.count == profiles.count + 1)
            for profile in profiles {
                #expect(lines.contains { $0.hasPrefix("\(profile.id) ") && $0.contains(profile.title) })
            }
            #expect(lines.contains { $0.hasPrefix("gate ") && $0.hasSuffix("[site]") }, "\(outcome)")
            #expect(lines.contains { $0.hasPrefix("itag ") && $0.hasSuffix("[refused]") }, "\(outcome)")
            #expect(lines.contains { $0.hasPrefix("ffe0-button ") && $0.hasSuffix("[only where named, experimental]") })
            struct Entry: Decodable {
                var id, origin, transport: String
                var refusal: String?
            }
            let entries = try await run("list", "--json", "--profiles", directory).json([Entry].self)
            #expect(entries.count == lines.count)
            #expect(entries.first { $0.id == "gate" }?.origin == "site")
            #expect(entries.first { $0.id == "flic" }?.refusal?.isEmpty == false)
        }
    }

    @Test
    func `a profile is shown in words, or as the file that can be copied and changed`() async throws {
        try await withDirectory { directory in
            let words = try await run("show", "inrico-b02", "--profiles", directory)
            #expect(
                words.status == 0 && words.output.contains("emergency: emergency, once held for 1000 ms"), "\(words)")
            let file = try await run("show", "--toml", "inrico-b02", "--profiles", directory)
            let shipped = ProfileLibrary.shippedFiles.first { $0.name == "inrico-b02.toml" }!
            #expect(file.output == String(decoding: shipped.bytes, as: UTF8.self))
            try write(file.output.replacing("Inrico B02", with: "Ours"), "\(directory)/b02.toml")
            let own = try await run("show", "--toml", "inrico-b02", "--profiles", directory)
            #expect(own.output.contains("title = \"Ours\""), "\(own)")
            let check = try await run("check", "\(directory)/b02.toml")
            #expect(
                check.status == 0 && check.output.contains("replaces the shipped profile \"Inrico B02\""), "\(check)")
            let wrong = try await run("show", "inrico-b20", "--profiles", directory)
            #expect(wrong.status == 1 && wrong.errors.contains("did you mean 'inrico-b02'?"), "\(wrong)")
        }
    }
}
