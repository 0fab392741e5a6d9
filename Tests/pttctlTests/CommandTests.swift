// Every sub-command of the real program against the real org.pttd: what it prints, what it asks, and how it ends.
import BusTestSupport
import DBus
import DaemonAPI
import PTTBus
import PushToTalkCore
import RelayClient
import Testing

@testable import pttctl

@Suite struct CommandTests {
    private let link = "ptt://relay.example:7443/Crew?channel=\(ScriptedDaemon.uuid)&token=abc&pin=def"

    @Test
    func `joining by a link tells the channel's name and UUID`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture)
            await daemon.joinsLead(to: "ready", "")
            let outcome = try await Program.run(fixture, "join", link)
            #expect(outcome.status == 0 && outcome.output == "joined Crew (\(ScriptedDaemon.uuid))\n")
            // It is not in pttd.toml: what a restart makes of it is told.
            #expect(
                outcome.errors.contains("not in pttd.toml") && outcome.errors.contains("restart")
                    && outcome.errors.contains("pttctl leave"), "\(outcome.errors)")
            #expect(daemon.asked.all == ["join - \(link) pttd"])
            await daemon.api?.update(channels: ["Crew"])
            let again = try await Program.run(fixture, "join", link)
            #expect(again == Outcome(status: 0, output: "joined Crew (\(ScriptedDaemon.uuid))\n"))
        }
    }

    @Test
    func `a join that the relay refuses fails, and one that it has not answered says so`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture)
            for refusal in [
                "\(RelayLinkError.wrongRelayKey)", "\(RelayLinkError.invitationRefused("it is not known"))",
            ] {
                await daemon.joinsLead(to: "connecting", refusal)
                let process = try Program.start(fixture, ["join", link])
                #expect(try await process.end() == 1)
                #expect(
                    process.errors.contains(refusal) && process.errors.contains("pttctl leave"), "\(process.errors)")
                #expect(process.output.isEmpty, "\(process.output)")
            }
            await daemon.joinsLead(to: "connecting", "no answer from relay.example")
            let process = try Program.start(fixture, ["join", link])
            #expect(try await process.end() == 0)
            #expect(process.output.contains("has not admitted this machine yet"), "\(process.output)")
            #expect(process.errors.contains("no answer from relay.example; pttd keeps trying"), "\(process.errors)")
        }
    }

    @Test
    func `joining by a UUID, with a name and a mode, as JSON`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture)
            await daemon.joinsLead(to: "ready", "")
            let outcome = try await Program.run(
                fixture, "join", ScriptedDaemon.uuid.uppercased(), "--name", "Bergwacht ⛰", "--mode", "full-duplex",
                "--json")
            #expect(outcome.status == 0, "\(outcome)")
            let channel = try outcome.json(ChannelProperties.self)
            #expect(channel.name == "Bergwacht ⛰" && channel.transmissionMode == "fullDuplex")
            #expect(daemon.asked.all == ["join \(ScriptedDaemon.uuid) - pttd", "mode fullDuplex"])
        }
    }

    @Test
    func `a link can come by standard input, where nobody else sees it; spaces around it do not matter`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture)
            await daemon.joinsLead(to: "ready", "")
            let outcome = try await Program.run(fixture, "join", "-", input: "  \(link) ")
            #expect(outcome.status == 0, "\(outcome)")
            #expect(daemon.asked.all == ["join - \(link) pttd"])
            #expect(try await Program.run(fixture, "join", "-").status == 64)
            #expect(try await Program.run(fixture, "join", "-", input: "http://x").status == 64)
        }
    }

    @Test
    func `enrolling takes a link that was broken into lines, and waits until the relay has let the device in`()
        async throws
    {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture)
            let cut = link.index(link.startIndex, offsetBy: 40)
            async let outcome = Program.run(
                fixture, "enrol", input: "\n  PTT\(link.dropFirst(3)[..<cut]) \n\u{200B}\(link[cut...])\n\nmore\n")
            try await daemon.asked.wait { !$0.isEmpty }
            await daemon.show { $0?.serviceStatus = "ready" }
            #expect(try await outcome == Outcome(status: 0, output: "enrolled in Crew (\(ScriptedDaemon.uuid))\n"))
            #expect(daemon.asked.all == ["join - PTT\(link.dropFirst(3)) pttd"])
            for wrong in ["http://x", "", String(repeating: "ptt://", count: 400)] {
                #expect(try await Program.run(fixture, "enrol", "-", input: wrong).status == 64, "\(wrong.prefix(20))")
            }
            #expect(try await Program.run(fixture, "enrol", link, "--wait", "0").status == 64)
        }
    }

    @Test
    func `a refused device is told why and the channel left again; one whose relay is away goes on trying`()
        async throws
    {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture)
            let away = try await Program.run(fixture, "enrol", link, "--wait", "1")
            #expect(away.status == 1 && away.errors.contains("keeps trying"), "\(away)")
            #expect(daemon.asked.all.count == 1)
            async let outcome = Program.run(fixture, "enrol", link)
            try await daemon.asked.wait { $0.count == 2 }
            await daemon.show {
                $0?.serviceStatus = "unavailable"
                $0?.serviceStatusDetail = "the relay refused the invitation (the invitation has expired)"
            }
            let refused = try await outcome
            #expect(refused.status == 1 && refused.errors.contains("the invitation has expired"), "\(refused)")
            #expect(daemon.asked.all.last == "leave \(ScriptedDaemon.uuid)")
        }
    }

    @Test
    func `leaving tells what was left; another UUID than the joined one is not left`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture, joined: true)
            let other = try await Program.run(fixture, "leave", "00000000-0000-0000-0000-000000000001")
            #expect(other.status == 1 && other.errors.contains("Crew (\(ScriptedDaemon.uuid))"), "\(other)")
            #expect(daemon.asked.all.isEmpty)
            let outcome = try await Program.run(fixture, "leave")
            #expect(outcome == Outcome(status: 0, output: "left Crew (\(ScriptedDaemon.uuid))\n"))
            #expect(daemon.asked.all == ["leave \(ScriptedDaemon.uuid)"])
            await daemon.show { $0 = ChannelProperties(properties: ["UUID": .string(ScriptedDaemon.uuid)]) }
            let json = try await Program.run(fixture, "leave", ScriptedDaemon.uuid, "--json")
            #expect(try json.json(ChannelProperties.self).uuid == ScriptedDaemon.uuid)
        }
    }

    @Test
    func `the mode is shown, set and told as JSON`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture, joined: true)
            #expect(try await Program.run(fixture, "mode") == Outcome(status: 0, output: "half-duplex\n"))
            #expect(try await Program.run(fixture, "mode", "listen-only") == Outcome(status: 0))
            #expect(daemon.asked.all == ["mode listenOnly"])
            #expect(
                try await Program.run(fixture, "mode", "--json")
                    == Outcome(status: 0, output: "{\"channel\":\"\(ScriptedDaemon.uuid)\",\"mode\":\"listen-only\"}\n")
            )
        }
    }

    @Test
    func `the status names channel, service, mode, call and accessories, and so does its JSON`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture, joined: true)
            await daemon.api?.update(call: "oFono: +49301234")
            var accessory = AccessoryProperties()
            accessory.name = "Button"
            accessory.problem = "it sleeps: press it"
            await daemon.api?.update(accessories: [accessory])
            let text = try await Program.run(fixture)
            for line in [
                "Channel      Crew (\(ScriptedDaemon.uuid))", "Service      ready", "Mode         half-duplex",
                "Call         oFono: +49301234", "Accessories  Button", "             it sleeps: press it",
            ] {
                #expect(text.output.contains(line), "\(line) in \(text)")
            }
            let document = try await Program.run(fixture, "status", "--json").json(StatusDocument.self)
            #expect(document.call == "oFono: +49301234" && document.activeChannel == ScriptedDaemon.uuid)
            #expect(document.channels.map(\.name) == ["Crew"] && document.accessories == [accessory])
            let list = try await Program.run(fixture, "accessory", "list", "--json").json([AccessoryProperties].self)
            #expect(list == [accessory])
            // "ready" is not said where nothing can be heard.
            await daemon.api?.update(microphoneProblem: "", speakerProblem: "alsa:pulse moves no samples")
            let silent = try await Program.run(fixture)
            #expect(silent.output.contains("Service      connected, but nothing can be heard\n"), "\(silent)")
            #expect(silent.output.contains("Speaker      alsa:pulse moves no samples\n"))
            let told = try await Program.run(fixture, "status", "--json").json(StatusDocument.self)
            #expect(told.speakerProblem == "alsa:pulse moves no samples" && told.microphoneProblem.isEmpty)
        }
    }

    @Test
    func `talking for a time presses and lets go; a refusal ends it with the daemon's words`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture, joined: true)
            #expect(try await Program.run(fixture, "talk", "--for", "0.05") == Outcome(status: 0))
            #expect(daemon.asked.all == ["press", "release"])
            await daemon.refuse(.callActive, "a call is active")
            #expect(
                try await Program.run(fixture, "talk", "--for", "1")
                    == Outcome(status: 1, errors: "pttctl: a call is active\n"))
            #expect(try await Program.run(fixture, "talk").errors.contains("talk --for"), "no terminal")
        }
    }

    @Test
    func `who waits for the floor is told the place, and talks for as long as asked once it is there`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture, joined: true)
            await daemon.letWait()
            let monitor = try Program.start(fixture, ["monitor"])
            #expect(try await eventually { monitor.output.contains("Crew") })
            let talk = try Program.start(fixture, ["talk", "--for", "0.05"])
            #expect(try await eventually { monitor.output.contains("waiting for the floor, place 2") })
            let status = try await Program.run(fixture, "status")
            #expect(status.output.contains("waiting for the floor, place 2"))
            try await Task.sleep(for: .milliseconds(150))
            #expect(daemon.asked.all == ["press"], "nothing was said yet")
            await daemon.show {
                $0?.queuePosition = 0
                $0?.transmitting = true
                $0?.inputLevel = -23.4
            }
            #expect(try await talk.end() == 0)
            #expect(daemon.asked.all == ["press", "release"])
            await daemon.show {
                $0?.path = "TLS through proxy proxy.example:3128"
                $0?.pathReason = "the relay does not answer over UDP"
            }
            let loud = try await Program.run(fixture, "status")
            #expect(
                loud.output.contains(
                    "Path         TLS through proxy proxy.example:3128 (the relay does not answer over UDP)\n"),
                "\(loud)")
            #expect(loud.output.contains("microphone -23.4 dBFS"))
            let document = try await Program.run(fixture, "status", "--json").json(StatusDocument.self)
            #expect(document.channels.first?.inputLevel == -23.4 && document.channels.first?.queuePosition == 0)
            await daemon.show { $0?.queuePosition = 1 }
            await daemon.show { $0?.queuePosition = 0 }
            #expect(try await eventually { monitor.output.contains("no longer waiting for the floor") })
            #expect(!monitor.output.contains("dBFS"), "a bar is for terminals")
        }
    }

    @Test
    func `a daemon that ends while somebody talks ends that, and says so`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture, joined: true)
            let process = try Program.start(fixture, ["talk", "--for", "60"])
            #expect(try await eventually { daemon.asked.all == ["press"] })
            await daemon.stop()
            #expect(try await process.end() == 1)
            #expect(process.errors == "pttctl: the transmission ended: pttd has left the bus\n")
        }
    }

    @Test
    func `waiting for quiet ends when the talker does, at once where nobody talks, and with status 1 after its time`()
        async throws
    {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture, joined: true)
            #expect(try await Program.run(fixture, "wait-quiet") == Outcome(status: 0))
            await daemon.show { $0?.activeRemoteParticipant = "Ann" }
            #expect(
                try await Program.run(fixture, "wait-quiet", "--for", "0.2")
                    == Outcome(status: 1, errors: "pttctl: not quiet within 0.2 s: Crew: Ann is speaking\n"))
            let watcher = try await fixture.connect()
            let names = { @Sendable () async throws -> Set<String> in
                let answer = try await watcher.call(
                    destination: "org.freedesktop.DBus", path: "/org/freedesktop/DBus",
                    interface: "org.freedesktop.DBus", method: "ListNames")
                return Set(try answer.argument(0, as: [String].self))
            }
            for isEnd in [true, false] {
                let before = try await names()
                let process = try Program.start(fixture, ["wait-quiet", "--for", "60"])
                // Once it is on the bus it reads who talks.
                #expect(try await eventually { try await !names().subtracting(before).isEmpty })
                try await Task.sleep(for: .seconds(1))
                // Not over yet: somebody else has begun before.
                await daemon.show {
                    $0?.transmitting = true
                    $0?.activeRemoteParticipant = ""
                }
                try await Task.sleep(for: .milliseconds(50))
                if isEnd { await daemon.show { $0?.transmitting = false } } else { await daemon.stop() }
                #expect(try await process.end() == 0 && process.errors.isEmpty, "\(isEnd)")
                await daemon.show { $0?.activeRemoteParticipant = "Ann" }
            }
        }
    }

    @Test
    func `monitoring tells joining, speaking, modes, calls and leaving as they happen, in JSON with their times`()
        async throws
    {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture)
            let process = try Program.start(fixture, ["monitor", "--json"])
            let text = try Program.start(fixture, ["monitor"])
            #expect(try await eventually { text.output.contains("none joined") })
            // The JSON monitor says nothing at first: it listens once its match is there.
            #expect(
                try await eventually {
                    await daemon.show {
                        $0 = $0 == nil ? ChannelProperties(properties: ["UUID": .string(ScriptedDaemon.uuid)]) : nil
                    }
                    return process.output.contains("joined")
                })
            await daemon.show {
                $0 = ChannelProperties()
                $0?.uuid = ScriptedDaemon.uuid
                $0?.name = "Crew"
            }
            await daemon.show { $0?.activeRemoteParticipant = "Anna" }
            await daemon.show { $0?.activeRemoteParticipant = "" }
            // Two at once: the second is told of, too, and is not told of again when the first has finished.
            for speakers in [["Cleo"], ["Cleo", "Dora"], ["Dora"], []] {
                await daemon.show {
                    $0?.activeRemoteParticipant = speakers.first ?? ""
                    $0?.remoteParticipants = speakers
                }
                guard speakers.count == 2 else { continue }
                let status = try await Program.run(fixture, "status")
                #expect(status.output.contains("Cleo and Dora are speaking"))
            }
            await daemon.show { $0?.transmissionMode = "listenOnly" }
            await daemon.api?.update(call: "oFono: 110")
            await daemon.api?.update(call: "")
            await daemon.show { $0 = nil }
            for line in [
                "Anna is speaking", "Anna has finished", "Cleo is speaking", "Dora is speaking", "Cleo has finished",
                "Dora has finished", "mode listen-only", "silent during a call: oFono: 110",
                "the call is over: oFono: 110", "left Crew",
            ] {
                #expect(try await eventually { text.output.contains(line) }, "\(line) in \(text.output)")
                #expect(try await eventually { process.output.contains("\"text\":\"\(line)\"") })
            }
            #expect(text.output.split(separator: "\n").count { $0.hasSuffix("Dora is speaking") } == 1)
            await daemon.stop()
            #expect(try await eventually { process.output.contains("\"event\":\"daemon\"") })
            for line in process.output.split(separator: "\n") {
                let event = try Outcome(output: String(line)).json(Event.self)
                #expect(event.t > 0 && !event.text.isEmpty)
            }
        }
    }

    private struct Event: Decodable {
        var event, text, detail: String
        var t: Int64
    }

    @Test
    func `where there is no daemon, every command says so and how to start it`() async throws {
        try await withBus { fixture in
            for arguments in [
                ["status"], ["monitor"], ["join", link], ["leave"], ["talk", "--for", "1"], ["mode"],
                ["inhibit", "true"],
                ["inhibit", "--list"], ["accessory", "list"],
            ] {
                let process = try Program.start(fixture, arguments)
                #expect(try await process.end() == 1, "\(arguments)")
                #expect(
                    process.errors.contains("systemctl --user start pttd") && process.output.isEmpty, "\(arguments)")
            }
        }
    }

    @Test
    func `where no channel is joined, what needs one says how to join`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture)
            defer { withExtendedLifetime(daemon) {} }
            for arguments in [["leave"], ["talk", "--for", "1"], ["mode"], ["mode", "half-duplex"]] {
                let process = try Program.start(fixture, arguments)
                #expect(try await process.end() == 1, "\(arguments)")
                #expect(process.errors.contains("pttctl join LINK"), "\(arguments): \(process.errors)")
            }
        }
    }

    @Test
    func `what the daemon refuses is told in its words, with status 1`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture, joined: true)
            await daemon.refuse(.channelLimitReached, "Field Radio has joined Crew; leave it there first")
            for arguments in [["join", link], ["leave"], ["mode", "full-duplex"]] {
                let process = try Program.start(fixture, arguments)
                #expect(try await process.end() == 1, "\(arguments)")
                #expect(process.errors == "pttctl: Field Radio has joined Crew; leave it there first\n", "\(arguments)")
            }
        }
    }

    @Test
    func `a channel that is joined in another mode than asked for is told as such`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture)
            await daemon.refuse(.unknown, "the microphone is somebody else's", only: "mode")
            let outcome = try await Program.run(fixture, "join", link, "--mode", "full-duplex")
            #expect(outcome.status == 1 && outcome.output.isEmpty)
            let words = "the channel is joined, but its mode is not full-duplex: the microphone is somebody else's"
            #expect(outcome.errors == "pttctl: \(words)\n")
        }
    }

    @Test(arguments: [
        (["join"], "Missing expected argument '<channel>'"),
        (["join", "relay.example"], "neither a ptt:// link nor a UUID"),
        (["join", "ptt://x", "--name", ""], "--name is empty"),
        (["join", "ptt://x", "--mode", "loud"], "'half-duplex', 'full-duplex' or 'listen-only'"),
        (["join", "ptt://x", "--name", String(repeating: "x", count: 300)], "at most 256"),
        (["leave", "crew"], "is not a UUID"),
        (["mode", "duplex"], "'half-duplex', 'full-duplex' or 'listen-only'"),
        (["talk", "--for", "0"], "more than 0"), (["talk", "--for", "x"], "'x' is invalid"),
        (["inhibit"], "Give the command"), (["inhibit", "--list", "ls"], "leave 'ls' out"),
        (["inhibit", "--json", "ls"], "--json needs --list"),
        (["inhibit", "--who", "", "ls"], "--who is empty"),
        (["inhibit", "--why", String(repeating: "x", count: 600), "ls"], "at most 512"),
        (["--bus", "sesion"], "'sesion' is not a bus address"), (["sing"], "there is no sub-command 'sing'"),
        (["status", "sing"], "leave 'sing' out"),
        (["status", "--jsn"], "Did you mean '--json'"),
    ])
    func `a wrong command line ends with 64 and says what is right`(arguments: [String], words: String) async throws {
        let process = try ChildProcess([try Program.path()] + arguments)
        #expect(try await process.end() == 64)
        #expect(process.errors.contains(words), "\(process.errors)")
        #expect(process.output.isEmpty)
    }

    @Test(arguments: [true, false])
    func `the bus may be named before and after the sub-command`(before: Bool) async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture, joined: true)
            defer { withExtendedLifetime(daemon) {} }
            let bus = ["--bus", fixture.bus.address]
            let process = try ChildProcess(
                [try Program.path()] + (before ? bus + ["mode"] : ["mode"] + bus),
                environment: ["DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere"])
            #expect(try await process.end() == 0)
            #expect(process.output == "half-duplex\n")
        }
    }
}
