// The commands that run until they are stopped: scan, test and learn, as pipes and terminals see them.
import BusTestSupport
import DaemonAPI
import FoundationEssentials
import Glibc
import MonotonicTime
import PTTBus
import Testing
import Vocabulary

@testable import pttctl

@Suite struct AccessoryLiveTests {
    private var address: String { ScriptedAccessories.address }

    // MARK: Scan

    @Test
    func `into a pipe the scan writes a line for each news, and Ctrl-C ends it with 0 and the daemon's scan with it`()
        async throws
    {
        try await withAccessories { fixture, _, accessories in
            var device = ScriptedAccessories.device
            await accessories.know([device])
            let process = try Program.start(fixture, ["accessory", "scan"])
            let line = "\t\(address)\t-52 dBm\tPTT-Z\tPryme BT-PTT-Z\n"
            #expect(try await eventually { process.output == "found" + line }, "\(process.output)")
            device.signalStrength = -53
            await accessories.found(device)
            device.accessory = "PTT-Z"
            await accessories.found(device)
            var other = DiscoveredDevice(address: "00:00:00:00:00:01")
            other.signalStrength = -70
            await accessories.found(other)
            (other.name, other.refusal) = ("iTAG\u{1B}[2J\nfound", "it tells clicks only")
            await accessories.found(other)
            await accessories.lost(other.address)
            #expect(try await eventually { process.output.contains("lost") })
            process.signal(SIGINT)
            #expect(try await process.end() == 0)
            let lines = process.output.split(separator: "\n").map(String.init)
            #expect(
                lines.dropFirst() == [
                    "changed\t\(address)\t-53 dBm\tPTT-Z\tis the accessory 'PTT-Z' already (Pryme BT-PTT-Z)",
                    "changed\t00:00:00:00:00:01\t-70 dBm\tiTAG\u{FFFD}[2J\u{FFFD}found\tno talk button: it tells clicks only",
                    "lost\t00:00:00:00:00:01\t-70 dBm\tiTAG\u{FFFD}[2J\u{FFFD}found\tno talk button: it tells clicks only",
                ], "\(process.output)")
            #expect(process.errors.contains("press the button now"))
            #expect(accessories.asked.all == ["scan on", "scan off"])
        }
    }

    private struct ScanLine: Decodable {
        var event: String
        var device: DiscoveredDevice
        var t: Int64
    }

    @Test
    func `as JSON each line has the whole device; the scan ends after its seconds`() async throws {
        try await withAccessories { fixture, _, accessories in
            await accessories.know([ScriptedAccessories.device, DiscoveredDevice(address: "00:00:00:00:00:01")])
            let outcome = try await Program.run(fixture, "accessory", "scan", "--json", "--seconds", "0.2")
            #expect(outcome.status == 0 && outcome.errors.isEmpty)
            let lines = try outcome.output.split(separator: "\n").map {
                try Outcome(output: String($0)).json(ScanLine.self)
            }
            #expect(lines.map(\.event) == ["found", "found"] && lines.allSatisfy { $0.t > 0 })
            #expect(lines.first?.device == ScriptedAccessories.device)
            #expect(try await accessories.asked.wait(for: 2) == ["scan on", "scan off"])
        }
    }

    @Test(arguments: [true, false])
    func `a scan that is killed, or whose reader leaves, ends the daemon's scan`(isKilled: Bool) async throws {
        try await withAccessories { fixture, _, accessories in
            await accessories.know([ScriptedAccessories.device])
            if isKilled {
                let process = try Program.start(fixture, ["accessory", "scan"])
                #expect(try await eventually { process.output.contains("found") })
                process.signal(SIGKILL)
                #expect(try await accessories.asked.wait(for: 2) == ["scan on", "scan off"])
            } else {
                let process = try shell(fixture, #""$0" accessory scan | head -n 1"#)
                #expect(try await process.end() == 0)
                #expect(process.output.hasPrefix("found\t"))
                #expect(try await accessories.asked.wait(for: 2) == ["scan on", "scan off"])
            }
        }
    }

    @Test
    func `on a terminal the list is drawn in its place, and its last picture stays`() async throws {
        try await withAccessories { fixture, _, accessories in
            await accessories.know([ScriptedAccessories.device])
            let process = try terminal(fixture, "accessory scan --seconds 0.8")
            #expect(try await process.end() == 0, "\(process.errors)")
            #expect(
                process.output.contains(
                    "Press the button now: most advertise only for a short while after a press\u{1B}"))
            #expect(process.output.contains("\u{1B}[3A"), "drawn over")
            let last = process.output.components(separatedBy: "\u{1B}[").suffix(6).joined()
            #expect(last.contains("▂▄▆█  -52  PTT-Z") && last.contains("pttctl accessory add ADDRESS"), "\(last)")
        }
    }

    private func shell(_ fixture: BusFixture, _ script: String) throws -> ChildProcess {
        try ChildProcess(
            ["sh", "-c", script, try Program.path()],
            environment: [
                "DBUS_SESSION_BUS_ADDRESS": fixture.bus.address, "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nowhere",
                "TERM": "xterm",
            ])
    }

    /// On a terminal that script(1) makes.
    private func terminal(_ fixture: BusFixture, _ arguments: String) throws -> ChildProcess {
        try shell(fixture, #"script -q -e -c "$0 \#(arguments)" /dev/null"#)
    }

    // MARK: Test

    @Test
    func `a test shows each press with its length and latency, changes of the accessory, and figures at the end`()
        async throws
    {
        try await withAccessories { fixture, _, accessories in
            await accessories.show([ScriptedAccessories.button])
            let process = try Program.start(fixture, ["accessory", "test", "ptt-z"])
            #expect(try await accessories.asked.wait(for: 1) == ["test PTT-Z on"])
            #expect(try await eventually { process.output.contains("battery 85 %") })
            #expect(process.output.contains("Nothing is transmitted meanwhile"))
            let now = Instant.now
            await accessories.control("ptt", isDown: true, at: now - .milliseconds(700))
            await accessories.control("ptt", isDown: false, at: now - .milliseconds(200))
            #expect(try await eventually { process.output.contains("held 0.50 s") }, "\(process.output)")
            var button = ScriptedAccessories.button
            (button.battery, button.ready, button.problem) = (84, false, "it sleeps: press it")
            await accessories.show([button])
            #expect(try await eventually { process.output.contains("it sleeps: press it") })
            process.signal(SIGINT)
            #expect(try await process.end() == 0)
            let text = process.output
            for words in ["● ptt", "DOWN", "○ ptt", "battery 84 %", "the connection was lost: press it"] {
                #expect(text.contains(words), "\(words) in \(text)")
            }
            #expect(text.contains("ptt: 1 press, held 0.50 s (median)\nlatency of 2: median "), "\(text)")
            #expect(accessories.asked.all == ["test PTT-Z on", "test PTT-Z off"])
        }
    }

    private struct TestLine: Decodable {
        struct Edge: Decodable {
            var control: String
            var down: Bool
            var latency: Double
            var held: Double?
        }
        struct Figures: Decodable {
            var control: String
            var presses, releases: Int
        }
        struct Latency: Decodable {
            var count: Int
            var median, p95, longest: Double
        }
        var event: String
        var edge: Edge?
        var controls: [Figures]?
        var latency: Latency?
    }

    @Test
    func `as JSON: the state, each edge, and the figures; a hundred presses are a hundred, with real latencies`()
        async throws
    {
        try await withAccessories { fixture, _, accessories in
            await accessories.show([ScriptedAccessories.button])
            let process = try Program.start(fixture, ["accessory", "test", address, "--json", "--seconds", "60"])
            #expect(try await eventually { process.output.contains("\"state\"") })
            for _ in 0..<100 {
                await accessories.control("ptt", isDown: true)
                await accessories.control("ptt", isDown: false)
            }
            #expect(try await eventually { process.output.split(separator: "\n").count == 201 })
            process.signal(SIGTERM)
            #expect(try await process.end() == 0)
            let lines = try process.output.split(separator: "\n").map {
                try Outcome(output: String($0)).json(TestLine.self)
            }
            #expect(lines[1].event == "control" && lines[1].edge?.down == true)
            #expect(lines[2].edge?.held != nil)
            let last = try #require(lines.last)
            #expect(last.event == "summary" && last.controls?.first?.presses == 100)
            #expect(last.controls?.first?.releases == 100)
            let latency = try #require(last.latency)
            #expect(latency.count == 200 && latency.median > 0 && latency.median <= latency.p95)
            #expect(latency.p95 <= latency.longest)
        }
    }

    @Test
    func `a test without a press, one whose accessory is removed, and one whose daemon ends, end with 1`() async throws
    {
        try await withAccessories { fixture, daemon, accessories in
            await accessories.show([ScriptedAccessories.button])
            let outcome = try await Program.run(fixture, "accessory", "test", "PTT-Z", "--seconds", "0.1")
            #expect(outcome.status == 1 && outcome.output.hasSuffix("No press arrived.\n"), "\(outcome)")
            let removed = try Program.start(fixture, ["accessory", "test", "PTT-Z"])
            #expect(try await accessories.asked.wait(for: 3).last == "test PTT-Z on")
            #expect(try await eventually { removed.output.contains("battery") })
            await accessories.show([])
            #expect(try await removed.end() == 1)
            #expect(removed.errors == "pttctl: the accessory was removed\n")
            await accessories.show([ScriptedAccessories.button])
            let orphan = try Program.start(fixture, ["accessory", "test", "PTT-Z"])
            #expect(try await eventually { orphan.output.contains("battery") })
            await daemon.stop()
            #expect(try await orphan.end() == 1)
            #expect(orphan.errors.contains("pttd has left the bus"), "\(orphan.errors)")
        }
    }

    // MARK: Learn

    @Test
    func `learning prompts, shows the profile that was written, and tries it`() async throws {
        try await withAccessories { fixture, _, accessories in
            let process = try Program.start(fixture, ["accessory", "learn", address, "--name", "My button"])
            #expect(try await accessories.asked.wait(for: 1) == ["learn \(address) My button"])
            for (step, words) in [
                (LearningStep.quiet, "TOUCH NOTHING"), (.press, "PRESS AND HOLD  (1)"), (.release, "LET GO"),
            ] {
                await accessories.learn {
                    ($0.step, $0.prompt, $0.round) = (step, "Prompt of \(step).", step == .quiet ? 0 : 1)
                }
                #expect(try await eventually { process.output.contains("Prompt of \(step).") })
                #expect(process.output.contains(words), "\(process.output)")
            }
            await accessories.show([ScriptedAccessories.button])
            await accessories.learn {
                $0.step = .done
                ($0.profile, $0.file) = ("my-button", "/etc/pttd/profiles.d/my-button.toml")
                ($0.text, $0.accessory) = ("id = \"my-button\"\n\ntitle = \"My\u{1B} button\"\n", "PTT-Z")
            }
            #expect(try await accessories.asked.wait(for: 2).last == "test PTT-Z on")
            await accessories.control("ptt", isDown: true, at: .now - .seconds(1))
            await accessories.control("ptt", isDown: false)
            #expect(try await process.end() == 0)
            for words in [
                "The profile 'my-button' is in /etc/pttd/profiles.d/my-button.toml:", "    id = \"my-button\"",
                "    title = \"My\u{FFFD} button\"", "It works: ptt was held for 1.0",
            ] { #expect(process.output.contains(words), "\(words) in \(process.output)") }
        }
    }

    @Test(arguments: [true, false])
    func `a session that fails ends with 1 and its reason; Ctrl-C cancels it`(isInterrupted: Bool) async throws {
        try await withAccessories { fixture, _, accessories in
            let process = try Program.start(fixture, ["accessory", "learn", "--json"])
            #expect(try await accessories.asked.wait(for: 1) == ["learn - -"])
            await accessories.learn { ($0.step, $0.prompt, $0.round) = (.press, "Press it", 1) }
            #expect(try await eventually { process.output.contains("\"step\":\"press\"") })
            if isInterrupted {
                process.signal(SIGINT)
            } else {
                await accessories.learn { ($0.step, $0.problem) = (.failed, "nothing moved; tag the device first") }
            }
            #expect(try await process.end() == 1)
            let words = isInterrupted ? "interrupted; no profile was written" : "nothing moved; tag the device first"
            #expect(process.errors == "pttctl: \(words)\n")
            if isInterrupted { #expect(accessories.asked.all.last == "cancel learning") }
        }
    }

    @Test
    func `that a learned button was not added is told, and fails`() async throws {
        try await withAccessories { fixture, _, accessories in
            let process = try Program.start(fixture, ["accessory", "learn", "C4:11:22:33:44:55"])
            #expect(try await accessories.asked.wait(for: 1).count == 1)
            await accessories.learn {
                ($0.step, $0.profile, $0.file) = (.done, "key", "/x/key.toml")
                $0.problem = "learned, but not added: it does not answer"
            }
            #expect(try await process.end() == 1)
            #expect(process.output.contains("/x/key.toml"))
            #expect(process.errors.contains("not added: it does not answer"), "\(process.errors)")
        }
    }

    @Test
    func `learning without an accessory writes the profile only`() async throws {
        try await withAccessories { fixture, _, accessories in
            let process = try Program.start(fixture, ["accessory", "learn", "--profile-only"])
            #expect(try await accessories.asked.wait(for: 1) == ["learn - - profile-only"])
            await accessories.learn { ($0.step, $0.profile, $0.file) = (.done, "key", "/x/key.toml") }
            #expect(try await process.end() == 0)
            #expect(process.output.contains("The profile 'key' is in /x/key.toml:"))
            #expect(accessories.asked.all.count == 1)
        }
    }
}
