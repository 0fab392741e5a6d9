// The manual page and the shells' completions say what the program does.
import BusTestSupport
import FoundationEssentials
import Testing

@Suite struct DocumentationTests {
    /// What the program tells of its own command line.
    private struct Help: Decodable {
        struct Command: Decodable {
            struct Argument: Decodable {
                struct Name: Decodable { var kind, name: String }
                var kind: String
                var names: [Name]?
                var allValues: [String]?
            }
            var commandName: String
            var arguments: [Argument]?
            var subcommands: [Command]?

            var all: [Command] { [self] + (subcommands ?? []).flatMap(\.all) }
        }
        var command: Command
    }

    /// The pages, by the programs' names.
    static let pages = ["pttctl": "pttctl.1", "pttd": "pttd.8", "pttrelay": "pttrelay.8"]

    private func commands(of program: String) async throws -> [Help.Command] {
        let process = try ChildProcess([try Program.path(program), "--experimental-dump-help"])
        try #require(try await process.end() == 0)
        return try JSONDecoder().decode(Help.self, from: Data(process.output.utf8)).command.all
    }

    private func page(_ name: String) -> String {
        "\(#filePath)".replacing("Tests/pttctlTests/DocumentationTests.swift", with: "docs/man/\(name)")
    }

    @Test(arguments: pages.sorted { $0.key < $1.key })
    func `every sub-command, option and value of a program is in its manual page, and no other option is`(
        program: String, name: String
    ) async throws {
        let text = String(decoding: try Data(contentsOf: URL(filePath: page(name))), as: UTF8.self)
        let commands = try await commands(of: program)
        let words = Set(text.split { $0.isWhitespace })
        var options: Set<String> = []
        for command in commands where command.commandName != "help" {
            #expect(
                command.commandName == program || text.contains("Cm \(command.commandName)"), "\(command.commandName)")
            for argument in command.arguments ?? [] {
                for name in argument.names ?? [] {
                    let option = name.kind == "short" ? name.name : "-" + name.name
                    options.insert(option)
                    #expect(text.contains("Fl \(option)"), "\(command.commandName): \(option)")
                }
                for value in argument.allValues ?? [] { #expect(words.contains(value[...]), "\(value)") }
            }
        }
        // "Fl" alone is the '-' of standard input.
        for match in text.matches(of: /Fl (-?[a-z]+(?:-[a-z]+)*)/) {
            #expect(options.contains(String(match.output.1)), "the page has \(match.output.1), the program has not")
        }
    }

    @Test(arguments: pages.values.sorted())
    func `the manual pages have no fault that mandoc knows`(name: String) async throws {
        let process = try ChildProcess(["mandoc", "-T", "lint", "-W", "warning", page(name)], package: "mandoc")
        #expect(try await process.end() == 0, "\(process.output)\(process.errors)")
    }

    @Test(arguments: ["bash", "zsh", "fish"])
    func `completions are made for each shell`(shell: String) async throws {
        let process = try ChildProcess([try Program.path(), "--generate-completion-script", shell])
        #expect(try await process.end() == 0)
        for command in try await commands(of: "pttctl") { #expect(process.output.contains(command.commandName)) }
        #expect(process.output.contains("half-duplex"))
    }

    @Test
    func `bash completes sub-commands, options and modes`() async throws {
        let script = """
            source <("$0" --generate-completion-script bash)
            complete_line() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMPREPLY=();
              _pttctl "$1" "${@: -1}" "${@: -2:1}"; echo "${COMPREPLY[@]}"; }
            complete_line pttctl in; complete_line pttctl mode ha; complete_line pttctl inhibit --w
            """
        let process = try ChildProcess(["bash", "-c", script, try Program.path()])
        #expect(try await process.end() == 0)
        let words = process.output.split(separator: "\n").map { $0.split(separator: " ").joined(separator: " ") }
        #expect(words == ["inhibit", "half-duplex", "--who --why"], "\(process.output)\(process.errors)")
    }
}
