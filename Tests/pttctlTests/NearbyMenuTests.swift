// The list of channels nearby on a terminal, and how a channel is named on the command line.
import PTTBus
import Terminal
import Testing

@testable import pttctl

@Suite struct NearbyMenuTests {
    private func channel(_ id: String, _ name: String = "Crane", creator: String = "Anna") -> NearbyChannelDescription {
        var channel = NearbyChannelDescription()
        (channel.id, channel.name, channel.creator) = (id, name, creator)
        return channel
    }

    @Test func `the chosen channel stays so while others come and go, and the next one takes its place`() {
        var menu = NearbyMenu()
        menu.move(.down)
        #expect(menu.chosen == nil)
        menu.update([channel("b"), channel("c")])
        #expect(menu.chosen?.id == "b")
        menu.move(.down)
        menu.update([channel("a"), channel("b"), channel("c")])
        #expect(menu.chosen?.id == "c")
        menu.move(.down)
        #expect(menu.chosen?.id == "c", "at the end nothing changes")
        menu.update([channel("a"), channel("b")])
        #expect(menu.chosen?.id == "b")
        menu.move(.up)
        menu.move(.up)
        #expect(menu.chosen?.id == "a")
        menu.update([])
        #expect(menu.chosen == nil)
    }

    @Test func `the chosen line is shown however many there are, and no more than fit`() {
        var menu = NearbyMenu()
        menu.update((0..<100).map { channel("\(1000 + $0)", "Crane \($0)") })
        let size = TerminalSize(columns: 80, rows: 10)
        for _ in 0..<57 { menu.move(.down) }
        let lines = menu.lines(size: size, problem: "")
        #expect(lines.count <= 10)
        #expect(lines.contains { $0.hasPrefix("> Crane 57 ") })
        #expect(lines.contains("  100 channels"))
        #expect(
            menu.lines(size: size, problem: "avahi-daemon is not running").contains("  avahi-daemon is not running"))
    }

    @Test func `how a channel was found is told, with the strength of its signal`() {
        var menu = NearbyMenu()
        var found = channel("a")
        found.foundBy = ["network", "bluetooth"]
        found.signalStrength = -61
        menu.update([found, channel("b")])
        let lines = menu.lines(size: TerminalSize(columns: 120, rows: 24), problem: "")
        #expect(lines.count { $0.hasSuffix("open  (network, bluetooth -61 dBm)") } == 1)
        #expect(NearbyList.line(found).split(separator: "\t").contains("network, bluetooth -61 dBm"))
        found.foundBy = ["network"]
        menu.update([found])
        #expect(!menu.lines(size: TerminalSize(columns: 120, rows: 24), problem: "").contains { $0.contains("(") })
    }

    @Test func `names of strangers are plain text`() {
        var menu = NearbyMenu()
        menu.update([channel("a", "Crane\u{1B}[2J\n2", creator: "\u{1B}]0;x\u{7}")])
        let lines = menu.lines(size: TerminalSize(columns: 80, rows: 24), problem: "")
        #expect(!lines.joined().unicodeScalars.contains { $0.value < 32 })
        #expect(!NearbyList.line(channel("a", "Crane\t\u{1B}2")).contains("\u{1B}"))
    }

    @Test(
        arguments: [
            ([13], [.enter]), ([10], [.enter]), ([UInt8(ascii: "q")], [.quit]), ([3], [.quit]),
            ([27, 91, 65], [.up]), ([27, 91, 66], [.down]), ([27, 79, 65], [.up]),
            ([27, 91, 66, 27, 91, 66, 13], [.down, .down, .enter]),
            ([27], []), ([27, 91], []), ([27, 91, 72], []), ([0, 255, 120], []),
        ] as [([UInt8], [NearbyMenu.Key])])
    func `keys are read from what terminals send`(bytes: [UInt8], keys: [NearbyMenu.Key]) {
        #expect(NearbyMenu.keys(in: bytes) == keys)
    }

    @Test func `a name names one channel, and an Id is always enough`() throws {
        let channels = [channel("a.1", "Crane"), channel("b.1", "Crane", creator: "Bert"), channel("c.1", "Yard")]
        #expect(try NearbyJoin.match("Yard", channels)?.id == "c.1")
        #expect(try NearbyJoin.match("b.1", channels)?.creator == "Bert")
        #expect(try NearbyJoin.match("Gate", channels) == nil)
        let error = #expect(throws: Failure.self) { try NearbyJoin.match("Crane", channels) }
        #expect(error.map { "\($0)".contains("a.1 (Anna)") && "\($0)".contains("b.1 (Bert)") } == true)
    }

    @Test func `who is meant is the one who waits, or the one of that name`() throws {
        func newcomer(_ id: String, _ name: String) -> NearbyNewcomerDescription {
            .init(id: id, name: name, channel: "c", channelName: "Crane")
        }
        let (anna, bert, other) = (newcomer("a.1", "Anna"), newcomer("b.1", "Bert"), newcomer("b.2", "Bert"))
        #expect(try NearbyDecision.match(nil, [anna]) == anna)
        #expect(try NearbyDecision.match("Anna", [anna, bert, other]) == anna)
        #expect(try NearbyDecision.match("b.2", [anna, bert, other]) == other)
        for (name, waiting) in [(nil, []), (nil, [anna, bert]), ("Bert", [bert, other]), ("Carl", [anna])]
            as [(String?, [NearbyNewcomerDescription])]
        {
            #expect(throws: Failure.self) { try NearbyDecision.match(name, waiting) }
        }
    }

    @Test func `a code is shown to its creator`() {
        var own = channel("a.1")
        (own.isOwn, own.admission, own.code) = (true, "code", "271828")
        var menu = NearbyMenu()
        menu.update([own])
        #expect(menu.lines(size: .init(columns: 100, rows: 24), problem: "").contains { $0.hasSuffix("code 271 828") })
        #expect(NearbyCreate.words(code: "271828").contains("271 828"))
    }
}
