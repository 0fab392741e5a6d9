// The operator's commands as programs of their own, beside one that is `pttrelay run`.
import Cryptography
import Files
import Glibc
import RelayProtocol
import Testing

@testable import pttrelay

@Suite struct CommandProgramTests {
    @Test(.timeLimit(.minutes(1)))
    func `an invitation is one line with a link, and the lists tell of it and of the channel`() async throws {
        let program = try RunningProgram()
        let invitation = try await program.command(["invite", "Team", "--priority", "7", "--uses", "2"])
        #expect(invitation.status == 0, "\(invitation.errors)")
        #expect(invitation.rows.count == 1 && invitation.output.hasPrefix("ptt://"))
        #expect(invitation.errors.contains("invitation 2"))
        let link = try InvitationLink(invitation.output)
        #expect(link.channelName.text == "Team" && link.host == "127.0.0.1" && link.mediaKey == nil)
        let standing = try InvitationLink(program.said.prefix { $0 != "\n" })
        #expect(link.place == standing.place && link.channel == standing.channel && link.pin == standing.pin)
        #expect(link.token != standing.token)

        let list = try await program.command(["invite", "Team", "--list"])
        #expect(list.status == 0 && list.rows.contains { $0.hasPrefix("2 open 0 of 2 7 ") }, "\(list.output)")
        let channels = try await program.command(["channels"])
        #expect(channels.status == 0 && channels.rows.dropFirst() == ["Team 0 0 2 the relay's"], "\(channels.output)")
        let members = try await program.command(["members", "Team"])
        #expect(members.status == 0 && members.rows.count == 1 && members.output.hasPrefix("MEMBER"))
    }

    @Test(.timeLimit(.minutes(1)))
    func `who comes by a link that was printed is listed with its priority, and is out when it is revoked`()
        async throws
    {
        let program = try RunningProgram()
        let invitation = try await program.command(["invite", "Team", "--priority", "7", "--uses", "2"])
        let device = try await Device("Ada", try InvitationLink(invitation.output))
        try await device.isReady()
        let members = try await program.command(["members", "Team"])
        #expect(members.rows.contains { $0.hasPrefix("\(device.id) Ada - on 7 2 ") }, "\(members.output)")

        let removal = try await program.command(["revoke", "Team", "Ada"])
        #expect(removal.status == 0, "\(removal.errors)")
        #expect(removal.output.contains("Ada (\(device.id)) is removed") && removal.output.contains("is withdrawn"))
        #expect(try await device.refusal().contains("removed"))
        #expect(try await program.command(["members", "Team"]).rows.count == 1)
        let all = try await program.command(["members", "Team", "--all"])
        #expect(all.rows.contains { $0.hasPrefix("\(device.id) Ada - removed 7 2 ") }, "\(all.output)")
    }

    @Test(.timeLimit(.minutes(1)))
    func `health is that of a relay that runs and answers, and of no other`() async throws {
        let program = try RunningProgram()
        let healthy = try await program.command(["health"])
        #expect(healthy.status == 0 && healthy.output == "members can join\n", "\(healthy)")
        kill(program.process, SIGSTOP)
        let hung = try await program.command(["health"])
        #expect(hung.status == 1 && hung.errors.contains("did not answer"), "\(hung)")
        kill(program.process, SIGCONT)
        #expect(try await program.command(["health"]).status == 0)
        program.end()
        let gone = try await program.command(["health"])
        #expect(gone.status == 1 && gone.errors.contains("no relay runs in \(program.folder.path)"), "\(gone)")
    }

    @Test(.timeLimit(.minutes(1)))
    func `what the relay does not know is told on standard error, and the command fails`() async throws {
        let program = try RunningProgram()
        let mistakes: [(words: [String], status: Int32, complaint: String)] = [
            (["revoke", "Team", "Nobody"], 1, "no member 'Nobody'"),
            (["revoke", "Team", "--invitation", "99"], 1, "no open invitation 99"),
            (["invite", "Nowhere"], 1, "no channel 'Nowhere'; it has 'Team'"),
            (["members", "Nowhere"], 1, "no channel 'Nowhere'"),
            (["invite", "Team", "--priority", "255"], 64, "--priority is 0 to 254"),
        ]
        for (words, status, complaint) in mistakes {
            let outcome = try await program.command(words)
            #expect(outcome.status == status && outcome.output.isEmpty, "\(words)")
            #expect(outcome.errors.contains(complaint), "\(words)")
        }
        #expect(program.isRunning)
    }

    @Test(.timeLimit(.minutes(1)))
    func `the media key of an end-to-end link is in no file that the relay keeps, and in nothing that it says`()
        async throws
    {
        let program = try RunningProgram(logLevel: "trace")
        let invitation = try await program.command(["invite", "Secret", "--end-to-end"])
        let link = try InvitationLink(invitation.output)
        let key = try #require(link.mediaKey?.baseKey)
        #expect(invitation.output.hasSuffix("#key=\(Base64URL.encode(key))\n"))
        // The relay hears of the link from a device, and of the key's channel from a command that has the key.
        let device = try await Device("Ada", link)
        try await device.isReady()
        let further = try await program.command(["invite", "Secret", "--end-to-end", "--like", link.text])
        let second = try InvitationLink(further.output)
        #expect(second.mediaKey == link.mediaKey && second.token != link.token)

        let files = program.files()
        func places(_ sought: [UInt8]) -> [String] {
            files.filter { Self.holds($0.value, sought) }.keys.sorted()
        }
        for spelling in Self.spellings(key) { #expect(places(spelling) == []) }

        // The same search finds what is there: text in the records, bytes in a file, and what was printed and logged.
        let standing = try InvitationLink(program.said.prefix { $0 != "\n" })
        for text in ["Secret", link.channel.description, Base64URL.encode(standing.token.bytes)] {
            #expect(places(Array(text.utf8)).contains { $0.hasPrefix("relay.sqlite") }, "\(text)")
        }
        let bytes = try #require(files["transport.key"])
        #expect(places(bytes) == ["transport.key"])
        #expect(places(Array("ready\n".utf8)).contains("output"))
        #expect(places(Array("serving the operator's page".utf8)).contains("errors"))
    }

    /// The ways in which bytes may stand in a file.
    private static func spellings(_ bytes: [UInt8]) -> [[UInt8]] {
        let base64 = Base64URL.encode(bytes)
        let hexadecimal = Hexadecimal.encode(bytes)
        let texts = [
            base64, base64.replacing("-", with: "+").replacing("_", with: "/"), hexadecimal, hexadecimal.uppercased(),
        ]
        return [bytes] + texts.map { Array($0.utf8) }
    }

    /// Whether the bytes of `sought` stand somewhere in `bytes`.
    private static func holds(_ bytes: [UInt8], _ sought: [UInt8]) -> Bool {
        guard !sought.isEmpty, bytes.count >= sought.count else { return false }
        return bytes.withUnsafeBytes { all in
            sought.withUnsafeBytes { part in
                (0...all.count - part.count).contains {
                    memcmp(all.baseAddress! + $0, part.baseAddress!, part.count) == 0
                }
            }
        }
    }

    @Test(.timeLimit(.minutes(1)))
    func `SIGHUP has a channel served that the file has got since, and a file with a mistake changes nothing`()
        async throws
    {
        let program = try RunningProgram()
        try program.configure("[[channel]]\nname = \"Yard\"\n")
        kill(program.process, SIGHUP)
        try await until("Yard is served") {
            try await program.command(["channels"]).rows.contains("Yard 0 0 1 the relay's")
        }
        let invitation = try await program.command(["invite", "Yard"])
        #expect(try InvitationLink(invitation.output).channelName.text == "Yard")
        let before = try await program.command(["channels"]).rows

        try program.configure("[[channel]]\nname = \"Gate\"\nmode = \"loud\"\n")
        kill(program.process, SIGHUP)
        try await until("the mistake is told") { program.log.contains("was not applied") }
        #expect(try await program.command(["channels"]).rows == before)
        #expect(try await program.command(["invite", "Gate"]).status == 1)
        #expect(try await program.command(["invite", "Yard"]).output == invitation.output)

        // It reads the file again when that is in order.
        try program.configure("[[channel]]\nname = \"Yard\"\n[[channel]]\nname = \"Gate\"\nmode = \"cut-in\"\n")
        kill(program.process, SIGHUP)
        try await until("Gate is served") {
            try await program.command(["channels"]).rows.contains("Gate 0 0 1 the relay's")
        }
        #expect(program.isRunning)
    }

    @Test(.timeLimit(.minutes(1)))
    func `a command waits for a relay that has the records and is about to accept commands`() async throws {
        let program = try RunningProgram()
        #expect(program.end())
        let members: Task<RunningProgram.Outcome, any Error>
        do {
            let lock = try DirectoryLock(program.folder.path, timeout: .seconds(5))
            members = Task { try await program.command(["members", "Team"]) }
            // Longer than a command waits for another command.
            try await Task.sleep(for: RelayState.lockTimeout + .seconds(1))
            withExtendedLifetime(lock) {}
        }
        let outcome = try await members.value
        #expect(outcome.status == 0 && outcome.output.hasPrefix("MEMBER"), "\(outcome)")
    }

    @Test(.timeLimit(.minutes(1)))
    func `a command does not wait for ever for a relay that never accepts commands`() async throws {
        let program = try RunningProgram()
        #expect(program.end())
        let lock = try DirectoryLock(program.folder.path, timeout: .seconds(5))
        let outcome = try await program.command(["members", "Team"], within: AdministrationLimits.time + .seconds(20))
        withExtendedLifetime(lock) {}
        #expect(outcome.status == 1 && outcome.errors.contains("accepts no commands"), "\(outcome)")
    }

    /// Waits for what a relay does within a few seconds.
    private func until(_ what: String, _ isSo: () async throws -> Bool) async throws {
        let deadline = ContinuousClock.now + .seconds(10)
        while try await !isSo() {
            guard ContinuousClock.now < deadline else { throw RelayStateError(description: "not within 10 s: \(what)") }
            try await Task.sleep(for: .milliseconds(50))
        }
    }
}
