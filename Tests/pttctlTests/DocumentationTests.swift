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

    private var commands: [Help.Command] {
        get async throws {
            let process = try ChildProcess([try Program.path(), "--experimental-dump-help"])
            try #require(try await process.end() == 0)
            return try JSONDecoder().decode(Help.self, from: Data(process.output.utf8)).command.all
        }
    }

    private var page: String {
        "\(#filePath)".replacing("Tests/pttctlTests/DocumentationTests.swift", with: "docs/man/pttctl.1")
    }

    @Test("every sub-command, option and value of the program is in its manual page, and no other option is")
    func complete() async throws {
        let text = String(decoding: try Data(contentsOf: URL(filePath: page)), as: UTF8.self)
        let commands = try await commands
        #expect(commands.count >= 10)
        var options: Set<String> = []
        for command in commands {
            #expect(
                command.commandName == "pttctl" || text.contains("Cm \(command.commandName)"), "\(command.commandName)")
            for argument in command.arguments ?? [] {
                for name in argument.names ?? [] {
                    let option = name.kind == "short" ? name.name : "-" + name.name
                    options.insert(option)
                    #expect(text.contains("Fl \(option)"), "\(command.commandName): \(option)")
                }
                for value in argument.allValues ?? [] { #expect(text.contains("Cm \(value)"), "\(value)") }
            }
        }
        // "Fl" alone is the '-' of standard input.
        for match in text.matches(of: /Fl (-?[a-z]+)/) {
            #expect(options.contains(String(match.output.1)), "the page has \(match.output.1), the program has not")
        }
    }

    @Test("the manual page has no fault that mandoc knows")
    func lint() async throws {
        let process = try ChildProcess(["mandoc", "-T", "lint", "-W", "warning", page], package: "mandoc")
        #expect(try await process.end() == 0, "\(process.output)\(process.errors)")
    }

    @Test("completions are made for each shell", arguments: ["bash", "zsh", "fish"])
    func completions(shell: String) async throws {
        let process = try ChildProcess([try Program.path(), "--generate-completion-script", shell])
        #expect(try await process.end() == 0)
        for command in try await commands { #expect(process.output.contains(command.commandName)) }
        #expect(process.output.contains("half-duplex"))
    }

    @Test("bash completes sub-commands, options and modes")
    func bash() async throws {
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
