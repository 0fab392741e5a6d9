// The accessory commands of the real program against the real org.pttd: what they print, what they ask, and how they end.
import BusTestSupport
import DaemonAPI
import Glibc
import MonotonicTime
import PTTBus
import PushToTalkCore
import Testing
import Vocabulary

@testable import pttctl

@Suite struct AccessoryCommandTests {
    private var address: String { ScriptedAccessories.address }

    @Test
    func `the list names each accessory, its state and its problem`() async throws {
        try await withAccessories { fixture, _, accessories in
            #expect(try await Program.run(fixture, "accessory").output.contains("pttctl accessory scan"))
            var away = AccessoryProperties()
            (away.id, away.name, away.problem) = ("left", "Speaker\u{1B}[31m", "it sleeps: press it")
            await accessories.show([ScriptedAccessories.button, away])
            let outcome = try await Program.run(fixture, "accessory", "list")
            #expect(
                outcome.output == """
                    PTT-Z  C4:11:22:33:44:55  Pryme BT-PTT-Z  ready  battery 85 %
                    Speaker\u{FFFD}[31m [left]  not recognised yet  not connected
                        it sleeps: press it

                    """)
            let json = try await Program.run(fixture, "accessory", "list", "--json")
            #expect(try json.json([AccessoryProperties].self) == [ScriptedAccessories.button, away])
        }
    }

    @Test
    func `a name with line ends forges no line of the status or of what happens`() async throws {
        try await withAccessories { fixture, daemon, accessories in
            let process = try Program.start(fixture, ["monitor"])
            #expect(try await eventually { process.output.contains("Accessories") })
            var button = ScriptedAccessories.button
            button.name = "x\n12:00:00.000  joined Forged"
            button.problem = "y\nChannel      Forged"
            await accessories.show([button])
            #expect(try await eventually { process.output.contains("joined Forged is ready") })
            await daemon.api?.update(call: "oFono\nForged")
            #expect(try await eventually { process.output.contains("silent during a call") })
            let status = try await Program.run(fixture, "status")
            for line in (process.output + status.output).split(separator: "\n") {
                #expect(!line.hasPrefix("12:00:00.000") && !line.hasPrefix("Channel      Forged"), "\(line)")
                #expect(!line.hasPrefix("Forged"), "\(line)")
            }
        }
    }

    @Test
    func `adding by address tells the steps, the notes and what to do next`() async throws {
        try await withAccessories { fixture, _, accessories in
            await accessories.know(notes: ["it can be imitated\u{1B}[2J", "copy this:\nRULE\nand that"])
            let outcome = try await Program.run(fixture, "accessory", "add", address.lowercased())
            #expect(
                outcome
                    == Outcome(
                        status: 0,
                        output: """
                            searching: press the button now
                            connecting
                            recognising it
                            subscribing to its buttons
                            added: PTT-Z  C4:11:22:33:44:55  Pryme BT-PTT-Z  ready  battery 85 %
                            note: it can be imitated\u{FFFD}[2J
                            note: copy this:
                                RULE
                                and that
                            Try it; nothing is transmitted meanwhile: pttctl accessory test PTT-Z

                            """))
            #expect(accessories.asked.all == ["add \(address)"])
        }
    }

    @Test
    func `adding takes a name, a profile, a gesture and a bond, and answers as JSON`() async throws {
        struct Document: Decodable {
            var accessory: AccessoryProperties
            var notes: [String]
        }
        try await withAccessories { fixture, _, accessories in
            await accessories.know(notes: ["experimental"])
            let outcome = try await Program.run(
                fixture, "accessory", "add", address, "--name", "Left hand", "--profile", "ptt-z", "--gesture",
                "toggle",
                "--bonded-only", "--pair", "--json")
            let document = try outcome.json(Document.self)
            #expect(document.accessory.name == "Left hand" && document.notes == ["experimental"])
            #expect(
                accessories.asked.all
                    == ["add \(address) name=Left hand profile=ptt-z gesture=toggle bonded-only pair=true"])
        }
    }

    @Test
    func `adding by name scans for it, and the scan ends`() async throws {
        try await withAccessories { fixture, _, accessories in
            await accessories.know([ScriptedAccessories.device])
            let outcome = try await Program.run(fixture, "accessory", "add", "ptt-z")
            #expect(outcome.status == 0 && outcome.output.contains("found PTT-Z at \(address)"), "\(outcome)")
            #expect(accessories.asked.all == ["scan on", "scan off", "add \(address)"])
        }
    }

    @Test
    func `a name that two buttons in sight have adds neither`() async throws {
        try await withAccessories { fixture, _, accessories in
            var other = ScriptedAccessories.device
            (other.address, other.signalStrength) = ("C4:11:22:33:44:66", -80)
            await accessories.know([ScriptedAccessories.device, other])
            let outcome = try await Program.run(fixture, "accessory", "add", "PTT-Z")
            #expect(outcome.status == 1)
            #expect(outcome.errors.contains("\(address) (-52 dBm), C4:11:22:33:44:66 (-80 dBm)"), "\(outcome)")
            #expect(try await accessories.asked.wait(for: 2) == ["scan on", "scan off"])
        }
    }

    @Test
    func `what the daemon refuses is told in its words, with status 1`() async throws {
        try await withAccessories { fixture, _, accessories in
            await accessories.show([ScriptedAccessories.button])
            await accessories.refuse(.refused, "the adapter is off; switch it on")
            for arguments in [
                ["scan"], ["add", address], ["add", "PTT-Z"], ["test", "PTT-Z"], ["learn", address], ["learn"],
                ["bind", "PTT-Z", "ptt", "none"], ["gesture", "PTT-Z", "hold"], ["bonded-only", "PTT-Z", "on"],
                ["remove", "PTT-Z"],
            ] {
                let process = try Program.start(fixture, ["accessory"] + arguments)
                #expect(try await process.end() == 1, "\(arguments)")
                #expect(process.errors.hasSuffix("pttctl: the adapter is off; switch it on\n"), "\(process.errors)")
            }
        }
    }

    @Test
    func `bindings, gesture and bond are set, shown and remembered; an accessory is removed`() async throws {
        try await withAccessories { fixture, _, accessories in
            await accessories.show([ScriptedAccessories.button])
            #expect(
                try await Program.run(fixture, "accessory", "bind", "ptt-z").output.contains("  soft1     none\n"))
            #expect(
                try await Program.run(fixture, "accessory", "bind", "PTT-Z", "soft1", "channel-up")
                    == Outcome(status: 0, output: "soft1 of PTT-Z (\(address)): channel-up\n"))
            let command = try await Program.run(
                fixture, "accessory", "bind", address, "soft1", "command: echo 'a b'", "--json")
            #expect(try command.json(AccessoryProperties.self).bindings["soft1"] == "command: echo 'a b'")
            #expect(
                try await Program.run(fixture, "accessory", "gesture", "PTT-Z", "hybrid").output
                    == "PTT-Z (\(address)): hybrid\n")
            #expect(
                try await Program.run(fixture, "accessory", "gesture", "PTT-Z").output
                    == "PTT-Z (\(address)): hybrid\n")
            let bond = try await Program.run(fixture, "accessory", "bonded-only", "PTT-Z", "on")
            #expect(bond.output.contains("used only while it is bonded; it is not bonded\n    it is not bonded"))
            #expect(
                try await Program.run(fixture, "accessory", "remove", "PTT-Z").output == "removed PTT-Z (\(address))\n")
            #expect(
                accessories.asked.all == [
                    "bind PTT-Z soft1 channel-up", "bind PTT-Z soft1 command: echo 'a b'", "gesture PTT-Z hybrid",
                    "bonded-only PTT-Z true", "remove PTT-Z",
                ])
        }
    }

    @Test
    func `a control, an action or an accessory that is none is told with the nearest, and nothing is asked`()
        async throws
    {
        try await withAccessories { fixture, _, accessories in
            await accessories.show([ScriptedAccessories.button])
            for (arguments, status, words) in [
                (["bind", "PTT-Z", "sfot1", "none"], 1, "did you mean 'soft1'? it has: ptt, soft1"),
                (["bind", "PTT-Z", "ptt", "transmitt"], 64, "did you mean 'transmit'? there are: transmit,"),
                (["bind", "PTT-Z", "ptt"], 64, "Give what 'ptt' does: transmit,"),
                (["bind", "PTT-Z", "ptt", "command: "], 64, "'command:' has no program"),
                (["test", "PTT-Y"], 1, "did you mean 'PTT-Z'?"), (["remove", "Radio"], 1, "there are: PTT-Z"),
                (["gesture", "PTT-Z", "tap"], 64, "'hold', 'toggle', 'hybrid' or 'default'"),
            ] as [([String], Int32, String)] {
                let process = try Program.start(fixture, ["accessory"] + arguments)
                #expect(try await process.end() == status, "\(arguments)")
                #expect(process.errors.contains(words), "\(process.errors)")
            }
            #expect(accessories.asked.all.isEmpty)
        }
    }

    @Test(arguments: [
        (["scan", "--seconds", "0"], "more than 0"), (["test", "x", "--seconds", "1e9"], "at most 86400"),
        (["add"], "Missing expected argument '<device>'"), (["add", "x", "--name", ""], "--name is empty"),
        (["add", "x", "--name", String(repeating: "x", count: 65)], "at most 64"),
        (["learn", "--name", ""], "--name is empty"), (["bonded-only", "x", "maybe"], "'on' and 'off'"),
    ])
    func `a wrong command line ends with 64 and says what is right`(arguments: [String], words: String) async throws {
        let process = try ChildProcess([try Program.path(), "accessory"] + arguments)
        #expect(try await process.end() == 64)
        #expect(process.errors.contains(words), "\(process.errors)")
    }

    @Test
    func `the configured channels are listed and changed; the last message is played again`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture, joined: true)
            await daemon.api?.update(channels: ["Crew", "Base"])
            #expect(try await Program.run(fixture, "channel").output == "* Crew\n  Base\n")
            #expect(
                try await Program.run(fixture, "channel", "--json").json(Channel.Document.self)
                    == .init(channels: ["Crew", "Base"], active: "Crew"))
            #expect(try await Program.run(fixture, "channel", "up") == Outcome(status: 0, output: "Crew\n"))
            #expect(try await Program.run(fixture, "channel", "Base").status == 0)
            let wrong = try await Program.run(fixture, "channel", "bsae")
            #expect(wrong.status == 1 && wrong.errors.contains("did you mean 'Base'?"), "\(wrong)")
            #expect(try await Program.run(fixture, "replay") == Outcome(status: 0))
            #expect(daemon.asked.all == ["change up", "change name(\"Base\")", "replay \(ScriptedDaemon.uuid)"])
            await daemon.refuse(.transmissionNotFound, "nothing was said yet")
            #expect(
                try await Program.run(fixture, "replay") == Outcome(status: 1, errors: "pttctl: nothing was said yet\n")
            )
        }
    }

    @Test
    func `what the relay keeps is listed, and played again by its number`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture, joined: true)
            let lines = try await Program.run(fixture, "history").output.split(separator: "\n")
            #expect(lines.count == 4)
            #expect(lines[0].hasPrefix(" 1  ") && lines[0].hasSuffix("   0.9 s  Bob  (still going on)"), "\(lines)")
            #expect(lines[1].hasSuffix("  12.3 s  Here  (this device)"), "\(lines)")
            #expect(lines[2].contains("   4.2 s  A") && !lines[2].contains("\u{1B}"), "\(lines)")
            #expect(lines[3].hasSuffix("before this device joined)"), "\(lines)")
            let document = try await Program.run(fixture, "history", "--json").json([KeptMessage].self)
            #expect(document == ScriptedDaemon.kept)
            // What is played is told as it was listed.
            let (newest, second) = (
                try await Program.run(fixture, "replay", "--relay"), try await Program.run(fixture, "replay", "2")
            )
            #expect(newest.status == 0 && newest.output == lines[2].dropFirst(4) + "\n", "\(newest)")
            #expect(second.status == 0 && second.output == lines[1].dropFirst(4) + "\n", "\(second)")
            #expect(daemon.asked.all.filter { $0 != "history" } == ["replay a", "replay b"])
            let beyond = try await Program.run(fixture, "replay", "5")
            #expect(beyond.status == 1 && beyond.errors.contains("'pttctl history' lists 4"), "\(beyond)")
            #expect(try await Program.run(fixture, "replay", "0").status == 64)
            let both = try await Program.run(fixture, "replay", "--relay", "2")
            #expect(both.status == 64 && both.errors.contains("leave one of them out"), "\(both)")
            await daemon.refuse(.transmissionNotFound, "the relay keeps no messages of this channel")
            let refused = try await Program.run(fixture, "history")
            #expect(refused == Outcome(status: 1, errors: "pttctl: the relay keeps no messages of this channel\n"))
        }
    }

    @Test
    func `shells complete accessories, their controls and actions, and nothing that a shell would act on`() async throws
    {
        try await withAccessories { fixture, _, accessories in
            var evil = ScriptedAccessories.button
            (evil.id, evil.name) = ("$(touch /tmp/x)", "$(touch /tmp/x)")
            await accessories.show([ScriptedAccessories.button, evil])
            let script = """
                source <("$0" --generate-completion-script bash)
                complete_line() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE};
                  COMPREPLY=(); _pttctl "$1" "${@: -1}" "${@: -2:1}"; echo "${COMPREPLY[@]}"; }
                mkdir "$1/bin"; ln -s "$0" "$1/bin/pttctl"; PATH="$1/bin:$PATH"
                complete_line pttctl accessory test ''; complete_line pttctl accessory bind PTT-Z so
                complete_line pttctl accessory bind PTT-Z ptt ch
                rm -r "$1/bin"
                """
            let process = try ChildProcess(
                ["bash", "-c", script, try Program.path(), fixture.bus.directory],
                environment: [
                    "DBUS_SESSION_BUS_ADDRESS": fixture.bus.address, "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nowhere",
                ])
            #expect(try await process.end() == 0)
            let words = process.output.split(separator: "\n").map { $0.split(separator: " ").joined(separator: " ") }
            #expect(words == ["PTT-Z", "soft1", "channel-up channel-down"], "\(process.output)\(process.errors)")
        }
    }
}
