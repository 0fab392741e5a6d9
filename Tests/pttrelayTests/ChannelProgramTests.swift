// `pttrelay channel …` and `pttrelay status` as programs of their own, beside one that runs and without one.
import Glibc
import RelayProtocol
import Testing

@testable import pttrelay

@Suite struct ChannelProgramTests {
    @Test(.timeLimit(.minutes(1)))
    func `channels are added, changed and removed while the relay runs, and while it is stopped`() async throws {
        let program = try RunningProgram()
        let added = try await program.command(["channel", "add", "Yard", "--mode", "cut-in", "--keep-bursts", "10"])
        #expect(added.rows == ["'Yard' is added and served", "'pttrelay invite Yard' prints a link to it"], "\(added)")
        let changed = try await program.command(["channel", "change", "Yard", "--name", "Square", "--queue"])
        #expect(changed.status == 0 && changed.output.hasPrefix("'Square': cut-in"), "\(changed)")
        #expect(
            try await program.command(["channel", "list"]).rows.dropFirst() == [
                "Square 0 0 1 cut-in yes - 10 for 10min the relay's records",
                "Team 0 0 1 half-duplex no - 5 for 10min the relay's file",
            ])
        let status = try await program.command(["status"])
        #expect(status.output.hasPrefix("serving since ") && status.output.contains("; channels: 2, members on: 0"))

        // Nobody is asked where nobody can answer.
        let unasked = try await program.command(["channel", "remove", "Square"])
        #expect(unasked.status == 1 && unasked.errors.contains("--yes"), "\(unasked)")
        let removed = try await program.command(["channel", "remove", "Square", "--yes"])
        #expect(removed.output == "'Square' is removed, with 0 members and 1 open invitation\n", "\(removed)")
        for words in [["remove", "Team", "--yes"], ["change", "Team", "--queue"]] {
            let refused = try await program.command(["channel"] + words)
            #expect(refused.status == 1 && refused.errors.contains("declared in pttrelay.toml"), "\(refused)")
        }

        program.end()
        let later = try await program.command(["channel", "add", "Gate", "--preemption-step", "3"])
        #expect(later.output.hasPrefix("'Gate' is added; the relay serves it when it runs\n"), "\(later)")
        #expect(try await program.command(["channel", "remove", "Team", "--yes"]).status == 1)
        #expect(try await program.command(["status"]).errors.contains("no relay runs"))
        let again = try RunningProgram(in: program.folder)
        #expect(
            try await again.command(["channel", "list"]).rows.contains(
                "Gate 0 0 1 half-duplex no 3 5 for 10min the relay's records"))
        // The link of a channel that commands have made is printed only where it is asked for.
        #expect(again.said.split(separator: "\n").count == 2, "Team's link, and that it is ready")
    }

    @Test(
        .timeLimit(.minutes(1)),
        arguments: [
            ["add", "Yard", "--mode", "loud"], ["add", "Yard", "--preemption-step", "255"],
            ["add", "Yard", "--keep-bursts", "65"], ["add", "Yard", "--keep-time", "25h"],
            ["add", "Yard", "--keep-time", "soon"], ["change", "Team"], ["add"],
        ])
    func `a mistake on the command line is told before anything is done`(words: [String]) async throws {
        let program = try RunningProgram()
        let outcome = try await program.command(["channel"] + words)
        #expect(outcome.status == 64 && outcome.output.isEmpty && !outcome.errors.isEmpty, "\(outcome)")
        #expect(try await program.command(["channels"]).rows.count == 2)
    }
}
