// What the accessory commands show, as rules of values: the scan's list, the press log, near names, the device that is meant.
import DBus
import MonotonicTime
import PTTBus
import Terminal
import TestSupport
import Testing
import Vocabulary

@testable import pttctl

@Suite struct ScanListTests {
    private func device(
        _ address: String, _ name: String = "", _ strength: Int? = nil, profile: String? = nil, refusal: String? = nil,
        accessory: String? = nil
    ) -> DiscoveredDevice {
        var device = DiscoveredDevice(address: address)
        (device.name, device.signalStrength) = (name, strength)
        (device.profile, device.profileTitle) = (profile, profile.map { "The \($0)" })
        (device.refusal, device.accessory) = (refusal, accessory)
        return device
    }

    @Test
    func `first what could be added, then what is an accessory, what cannot be one, and the rest; each by strength`() {
        var list = ScanList()
        for device in [
            device("1", "", -30), device("2", "Watch", -40),
            device("3", "iTAG", -40, profile: "itag", refusal: "clicks"),
            device("4", "PTT-Z", -90, profile: "ptt-z"), device("5", "PTT-Z", -50, profile: "ptt-z"),
            device("6", "Mine", -30, profile: "ptt-z", accessory: "Mine"), device("7", "PTT-Y", -52, profile: "ptt-z"),
        ] { #expect(list.found(device) == .found) }
        #expect(list.sorted.map(\.address) == ["7", "5", "4", "6", "3", "2", "1"])
        #expect(list.hasCandidate)
    }

    @Test
    func `only what is different is news, and the exact strength is not`() {
        var list = ScanList()
        #expect(list.found(device("1", "PTT-Z")) == .found)
        #expect(!list.hasCandidate)
        #expect(list.found(device("1", "PTT-Z", -60)) == .changed, "it came into sight")
        #expect(list.found(device("1", "PTT-Z", -61)) == nil)
        #expect(list.found(device("1", "PTT-Z", -61, profile: "ptt-z")) == .changed)
        #expect(list.lost("1")?.profile == "ptt-z")
        #expect(list.lost("1") == nil)
        #expect(list.found(device("1", "PTT-Z", -61)) == .found)
    }

    @Test
    func `a flood of devices is counted and not kept`() {
        var list = ScanList()
        let size = TerminalSize(columns: 80, rows: 24)
        for number in 0..<(ScanList.devicesMax + 50) { _ = list.found(device("\(number)", "", -70)) }
        #expect(list.devices.count == ScanList.devicesMax && list.unkept == 50)
        let lines = list.lines(size: size, all: false, hints: ["hint"])
        #expect(lines.count == 3 && lines[1].contains("\(ScanList.devicesMax + 50) without a name"), "\(lines)")
        let all = list.lines(size: size, all: true, hints: ["hint"])
        #expect(
            all.count == 24 && all[22].contains("\(ScanList.devicesMax - 21) more than the screen shows"), "\(all[22])")
    }

    @Test
    func `a name from the air moves nothing on the terminal`() {
        let line = ScanList.line(device("1", "\u{1B}[2J\nPTT\u{202E}", -50, profile: "x\u{9B}1m"))
        #expect(line.unicodeScalars.filter(\.isTerminalControl).isEmpty, "\(line)")
        let news = ScanList.line(.found, device("1\n2", "a\nfound\tb", nil, refusal: "\u{1B}c"))
        let harmful = news.unicodeScalars.filter { $0.isTerminalControl && $0 != "\t" }
        #expect(harmful.isEmpty, "\(news)")
        #expect(news.split(separator: "\t").count == 5)
    }

    @Test
    func `why a device cannot be used is said in full, below one another where the terminal is narrow`() {
        let itag = device(
            "1", "iTAG", -50, profile: "itag", refusal: "it tells clicks and no releases, so it would keep talking")
        let lines = ScanList.lines(itag, columns: 80)
        let words = lines.flatMap { $0.dropFirst(52).split(separator: " ") }.joined(separator: " ")
        #expect(words == "no talk button: it tells clicks and no releases, so it would keep talking")
        #expect(lines.count == 3 && lines.allSatisfy { $0.columns < 80 }, "\(lines)")
        #expect(ScanList.lines(itag, columns: 200) == [ScanList.line(itag)])
    }

    @Test(arguments: [(-40, "▂▄▆█"), (-60, "▂▄▆ "), (-79, "▂▄  "), (-95, "▂   ")])
    func `the strength is shown in steps`(strength: Int, picture: String) {
        #expect(ScanList.line(device("1", "x", strength)).hasPrefix("\(picture)  \(strength)  x"))
    }

    @Test
    func `a line says what the device is, or why it cannot be used`() {
        #expect(device("1", "x", profile: "ptt-z").verdict == "The ptt-z")
        #expect(device("1", "x", refusal: "it tells clicks only").verdict == "no talk button: it tells clicks only")
        #expect(device("1", "x", accessory: "Mine").verdict == "is the accessory 'Mine' already")
        #expect(device("1").verdict == "no profile matches (yet)")
        #expect(device("1").nameText == "(no name)")
    }
}

@Suite struct PressLogTests {
    private func at(_ milliseconds: Int) -> Instant { Instant(nanoseconds: Int64(milliseconds) * 1_000_000) }

    @Test
    func `a press tells its latency, its release also how long it was held`() {
        var log = PressLog()
        let down = log.handle("ptt", isDown: true, received: at(100), at: at(102))
        #expect(down == .init(control: "ptt", down: true, time: 100_000_000, latency: 2, held: nil))
        let up = log.handle("ptt", isDown: false, received: at(1_300), at: at(1_301))
        #expect(up == .init(control: "ptt", down: false, time: 1_300_000_000, latency: 1, held: 1_200))
        #expect(
            log.summary(of: "x") == [
                "ptt: 1 press, held 1.20 s (median)", "latency of 2: median 1.0 ms, p95 2.0 ms, longest 2.0 ms",
            ])
    }

    @Test
    func `controls are told apart; what is still down, and a release alone, are said`() {
        var log = PressLog()
        #expect(log.handle("soft1", isDown: false, received: at(1), at: at(2)).held == nil)
        _ = log.handle("ptt", isDown: true, received: at(3), at: at(4))
        #expect(log.figures.map(\.control) == ["ptt", "soft1"])
        #expect(log.summary(of: "x").contains("soft1: 0 presses, 1 release"))
        #expect(log.summary(of: "x").last == "ptt is still pressed")
        #expect(log.presses == 1)
        #expect(PressLog().summary(of: "x") == ["No press arrived."])
    }

    @Test
    func `a button that tells clicks only is noticed, and what to do about it said`() {
        var log = PressLog()
        for start in [0, 1_000, 2_000] {
            _ = log.handle("ptt", isDown: true, received: at(start), at: at(start))
            _ = log.handle("ptt", isDown: false, received: at(start), at: at(start))
        }
        #expect(log.summary(of: "B").last?.contains("pttctl accessory gesture B toggle") == true)
        _ = log.handle("ptt", isDown: true, received: at(5_000), at: at(5_000))
        _ = log.handle("ptt", isDown: false, received: at(5_400), at: at(5_400))
        #expect(!log.summary(of: "B").contains { $0.contains("toggle") }, "one was held")
    }

    @Test
    func `percentiles are by nearest rank`() {
        let values = (1...100).shuffled().map { Duration.milliseconds($0) }
        let figures = Percentiles(values)
        #expect(figures?.median == .milliseconds(50) && figures?.p95 == .milliseconds(95))
        #expect(figures?.longest == .milliseconds(100) && figures?.count == 100)
        #expect(Percentiles([.milliseconds(7)])?.p95 == .milliseconds(7))
        #expect(Percentiles([]) == nil)
    }

    @Test
    func `whatever edges come, every press and release is counted, and no length or latency is negative`() {
        var generator = SeededGenerator()
        var log = PressLog()
        var (presses, releases, now) = (0, 0, 0)
        for _ in 0..<5_000 {
            now += Int.random(in: 0...50, using: &generator)
            let isDown = Bool.random(using: &generator)
            let control = ["ptt", "soft1", "emergency"].randomElement(using: &generator)!
            // Also ones that claim to be from the future.
            let received = at(now + Int.random(in: -100...100, using: &generator))
            let edge = log.handle(control, isDown: isDown, received: received, at: at(now))
            if isDown { presses += 1 } else { releases += 1 }
            #expect(edge.latency >= 0)
        }
        #expect(log.presses == presses)
        #expect(log.figures.map(\.releases).reduce(0, +) == releases)
    }

    @Test(arguments: [(0.0, "0.00 s"), (1_234.0, "1.23 s"), (59_996.0, "60.00 s")])
    func `numbers are written plainly`(milliseconds: Double, text: String) {
        #expect(seconds(milliseconds) == text)
        #expect(tenths(1.25) == "1.3" && tenths(0) == "0.0")
    }
}

@Suite struct NearestNameTests {
    @Test(
        arguments: [
            ("sfot1", "soft1"), ("soft", "soft1"), ("EMERGENCY", "emergency"), ("emrgency", "emergency"), ("pt", "ptt"),
            ("transmit", nil), ("", nil), ("zzz", nil),
        ] as [(String, String?)])
    func `the name that was meant is found, and a far one is not`(text: String, expected: String?) {
        #expect(NearestName.of(text, among: ["ptt", "soft1", "emergency"]) == expected)
    }

    @Test
    func `a text without end costs no time`() {
        #expect(NearestName.of(String(repeating: "x", count: 100_000), among: ["ptt"]) == nil)
    }
}

@Suite struct DeviceFinderTests {
    private func device(_ address: String, _ name: String, _ strength: Int?) -> DiscoveredDevice {
        var device = DiscoveredDevice(address: address)
        (device.name, device.signalStrength) = (name, strength)
        return device
    }

    @Test
    func `the device in sight is meant, once others of its name had a moment to show themselves`() throws {
        var finder = DeviceFinder("ptt-z")
        finder.handle(device("1", "Watch", -30), at: .zero)
        finder.handle(device("2", "PTT-Z", nil), at: .zero)
        #expect(try finder.decision(at: .zero + .seconds(5)) == nil, "not in sight")
        finder.handle(device("3", "PTT-Z", -60), at: .zero + .seconds(6))
        #expect(try finder.decision(at: .zero + .milliseconds(6_500)) == nil)
        #expect(try finder.decision(at: .zero + .seconds(7))?.address == "3")
    }

    @Test
    func `two in sight of one name are told apart by address, the nearer one first`() {
        var finder = DeviceFinder("PTT-Z")
        finder.handle(device("1", "PTT-Z", -80), at: .zero)
        finder.handle(device("2", "PTT-Z", -60), at: .zero)
        let failure = #expect(throws: Failure.self) { try finder.decision(at: .zero + .seconds(1)) }
        #expect(failure?.description.contains("2 (-60 dBm), 1 (-80 dBm)") == true)
    }

    @Test
    func `of two of one name the one that is no accessory yet is meant`() throws {
        var finder = DeviceFinder("PTT-Z")
        var mine = device("1", "PTT-Z", -40)
        mine.accessory = "left"
        finder.handle(mine, at: .zero)
        #expect(try finder.decision(at: .zero + .seconds(1))?.address == "1")
        finder.handle(device("2", "PTT-Z", -60), at: .zero + .seconds(1))
        #expect(try finder.decision(at: .zero + .seconds(1))?.address == "2")
    }

    @Test(arguments: [
        "C4:11:22:33:44:5G", "C4-11-22-33-44-55", "C4:11:22:33:44", "C4:11:22:33:44:5", "C4:11:22:33:44:55:66",
    ])
    func `an address with a slip in it is not looked for as a name`(text: String) {
        #expect(text.resemblesBluetoothAddress && !text.isBluetoothAddress)
    }

    @Test(arguments: ["C4:11:22:33:44:55", "PTT-Z", "BBC micro:bit [zuvop]", "BP-01", "left", "WM500_0042", "A-B-C-D"])
    func `names and addresses are no slips`(text: String) { #expect(!text.resemblesBluetoothAddress) }

    @Test
    func `when time is up one that is known will do, and otherwise it says what to do`() throws {
        var finder = DeviceFinder("PTT-Z")
        let failure = #expect(throws: Failure.self) { try finder.lastDecision() }
        #expect(failure?.description.contains("press its button meanwhile") == true)
        finder.handle(device("1", "PTT-Z", nil), at: .zero)
        #expect(try finder.lastDecision().address == "1")
    }
}

@Suite struct ChosenAccessoryTests {
    private func snapshot(_ accessories: [(id: String, name: String, address: String)]) throws -> DaemonSnapshot {
        var snapshot = DaemonSnapshot()
        for entry in accessories {
            var properties = AccessoryProperties()
            (properties.id, properties.name, properties.address) = entry
            snapshot.accessories[try .init(PTTBus.accessoryPath(entry.id))] = properties
        }
        return snapshot
    }

    @Test(arguments: ["left", "Left", "C4:00", "c4:00"])
    func `an accessory is meant by its id, its name or its address`(text: String) throws {
        let snapshot = try snapshot([("left", "PTT-Z", "C4:00"), ("right", "PTT-Z", "C4:01")])
        #expect(try ChosenAccessory.find(text, in: snapshot).properties.id == "left")
    }

    @Test
    func `a name that several have, or none, is told with those there are`() throws {
        let snapshot = try snapshot([("left", "PTT-Z", "C4:00"), ("my right", "PTT-Z", "C4:01")])
        let several = #expect(throws: Failure.self) { try ChosenAccessory.find("ptt-z", in: snapshot) }
        #expect(several?.description.contains("left, 'my right'") == true)
        let none = #expect(throws: Failure.self) { try ChosenAccessory.find("lfet", in: snapshot) }
        #expect(none?.description.contains("did you mean 'left'?") == true)
        let empty = #expect(throws: Failure.self) { try ChosenAccessory.find("x", in: DaemonSnapshot()) }
        #expect(empty?.description.contains("pttctl accessory scan") == true)
    }

    @Test(arguments: [
        ("PTT-Z", "PTT-Z"), ("my button", "'my button'"), ("a'b", "'a'\\''b'"), ("$(x)", "'$(x)'"), ("", "''"),
    ])
    func `a word for the shell is one word, whatever is in it`(text: String, expected: String) {
        #expect(text.shellWord == expected)
    }

    @Test
    func `completions offer only what no shell takes for more than letters`() {
        #expect(
            Completion.safe(["b", "$(reboot)", "a b", "-x", "", "C4:11", "a\u{1B}", "`id`", "é"]) == ["C4:11", "b"])
    }

    @Test(arguments: [
        ("C4:11:22:33:44:55", true), ("c4:11:22:33:44:5f", true), ("C4:11:22:33:44", false),
        ("C4:11:22:33:44:5G", false), ("PTT-Z", false), ("C4:11:22:33:44:5٣", false),
    ])
    func `addresses are told from names`(text: String, expected: Bool) {
        #expect(text.isBluetoothAddress == expected)
    }
}

@Suite struct WordsTests {
    @Test
    func `each step of learning has words that can be read from afar`() {
        var now = LearningReport()
        (now.step, now.round, now.prompt) = (.press, 2, "Press \u{1B}[1mit")
        let lines = LearnScreen.lines(now)
        #expect(lines.contains { $0.contains("PRESS AND HOLD  (2)") })
        #expect(lines.last == "  Press \u{FFFD}[1mit")
        now.step = .release
        #expect(LearnScreen.lines(now).contains { $0.contains("LET GO") })
        now.step = .quiet
        #expect(LearnScreen.lines(now).contains { $0.contains("TOUCH NOTHING") })
        #expect(Set(LearnScreen.lines(now)[1...3].map(\.columns)).count == 1, "a box")
    }

    @Test
    func `the configured channels are listed in their order, with a mark at the one that is joined`() {
        #expect(Channel.lines(.init(channels: ["Team", "Base"], active: "Base")) == ["  Team", "* Base"])
        #expect(Channel.lines(.init(channels: [], active: nil)) == ["No channel is configured."])
        #expect(Channel.lines(.init(channels: ["Team"], active: "Guest")).last?.hasPrefix("* Guest (joined;") == true)
        #expect(
            Channel.unknown("taem", ["Team", "My Base"]).contains("did you mean 'Team'? there are: Team, 'My Base'"))
    }

    @Test
    func `JSON keeps control characters as escapes`() throws {
        #expect(try jsonText(["a\u{9B}\u{E0001}\u{202E}é"]) == #"["a\u009b\udb40\udc01\u202eé"]"#)
    }
}
