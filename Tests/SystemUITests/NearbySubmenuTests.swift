// The lines of "Channels nearby" while channels come and go, and what a click there means.
import MonotonicTime
import TestSupport
import Testing

@testable import SystemUI

@Suite struct NearbySubmenuTests {
    private var submenu = NearbySubmenu()
    private var now = Instant.zero

    private func channel(
        _ id: String, name: String? = nil, creator: String = "Anna", members: Int = 1,
        _ admission: SystemUINearby.Admission = .open, isOwn: Bool = false
    ) -> SystemUINearby.Channel {
        .init(
            id: id, channel: "uuid-\(id)", name: name ?? "Channel \(id)", creator: creator, members: members,
            admission: admission, isOwn: isOwn)
    }

    private var labels: [String] { submenu.view(activeChannel: nil).lines.map(\.label) }
    private var numbers: [Int32] { submenu.view(activeChannel: nil).lines.map(\.number) }

    private mutating func show(_ channels: [SystemUINearby.Channel], joining: String? = nil, problem: String = "") {
        submenu.update(SystemUINearby(channels: channels, joining: joining, problem: problem), at: now)
    }

    private mutating func click(_ number: Int32, active: String? = nil) -> NearbySubmenu.Click? {
        submenu.clicked(number, activeChannel: active, at: now)
    }

    private mutating func pass(_ time: Duration) {
        now = now + time
        submenu.pass(to: now)
    }

    @Test mutating func `channels are looked for while it is open, and a moment longer`() {
        #expect(!submenu.isBrowsing)
        submenu.opened(at: now)
        submenu.opened(at: now)
        #expect(submenu.isBrowsing)
        pass(.seconds(30))
        submenu.closed(at: now)
        pass(.milliseconds(1_999))
        #expect(submenu.isBrowsing)
        pass(.milliseconds(1))
        #expect(!submenu.isBrowsing && submenu.nextDeadline == nil)
    }

    @Test mutating func `a tray that never tells of closing does not have channels looked for for ever`() {
        submenu.opened(at: now)
        pass(.seconds(59))
        #expect(submenu.isBrowsing)
        pass(.seconds(1))
        #expect(!submenu.isBrowsing)
        // Nothing is open that could be closed.
        submenu.closed(at: now)
        #expect(!submenu.isBrowsing)
    }

    @Test mutating func `while it is open lines keep their places, and new ones come below`() {
        submenu.opened(at: now)
        show([channel("b"), channel("c")])
        show([channel("a"), channel("b"), channel("c")])
        #expect(labels == ["b", "c", "a"].map { "Channel \($0) (Anna, 1 member)" })
        show([channel("a"), channel("c", members: 2)])
        #expect(
            labels == [
                "Channel b (Anna, 1 member, gone)", "Channel c (Anna, 2 members)", "Channel a (Anna, 1 member)",
            ])
        pass(.seconds(1))
        #expect(click(1_000) == nil)
        #expect(click(1_001) == .join("c"))
        #expect(click(1_002) == .join("a"))
        // The click itself may come after the menu has closed.
        submenu.closed(at: now)
        #expect(click(1_002) == .join("a"))
        pass(.seconds(2))
        show([channel("a"), channel("c")])
        #expect(numbers == [1_002, 1_001])
    }

    @Test mutating func `a number never means another channel`() {
        var meant: [Int32: String] = [:]
        var random = SeededGenerator()
        for _ in 0..<5_000 {
            switch Int.random(in: 0..<6, using: &random) {
            case 0: submenu.opened(at: now)
            case 1: submenu.closed(at: now)
            case 2: pass(.milliseconds(Int.random(in: 0...3_000, using: &random)))
            default: show((0..<30).filter { _ in random.chance(50) }.shuffled(using: &random).map { channel("\($0)") })
            }
            #expect(numbers.count <= NearbySubmenu.linesMax && Set(numbers).count == numbers.count)
            for (number, label) in zip(numbers, labels) {
                let name = String(label.prefix { $0 != "(" })
                #expect(meant[number] ?? name == name)
                meant[number] = name
            }
            if let number = numbers.randomElement(using: &random), case .join(let id) = click(number) {
                #expect(meant[number] == "Channel \(id) ")
            }
        }
    }

    @Test mutating func `a click within a moment after lines have come or changed does nothing`() {
        submenu.opened(at: now)
        show([channel("a")])
        pass(.milliseconds(399))
        #expect(click(1_000) == nil)
        pass(.milliseconds(1))
        #expect(click(1_000) == .join("a"))
        // Another line may have moved it.
        show([channel("a"), channel("b")])
        #expect(click(1_000) == nil)
        pass(.milliseconds(400))
        #expect(click(1_000) == .join("a"))
        // It was open, and asks now: the other one is as it was.
        show([channel("a", .ask), channel("b")])
        #expect(click(1_000) == nil && click(1_001) == .join("b"))
        pass(.milliseconds(400))
        #expect(click(1_000) == .ask("a", name: "Channel a", creator: "Anna"))
        show([channel("b")])
        show([channel("a", .ask), channel("b")])
        #expect(click(1_000) == nil)
        #expect(click(999) == nil && click(.max) == nil)
    }

    @Test mutating func `what stands there is ready for a click at once when it is opened again`() {
        submenu.opened(at: now)
        show([channel("a"), channel("b")])
        pass(.seconds(1))
        submenu.closed(at: now)
        submenu.opened(at: now)
        #expect(click(1_000) == .join("a"))
        show([channel("b")])
        submenu.closed(at: now)
        submenu.opened(at: now)
        // The line of a is not there any more, and b stands in its place.
        #expect(numbers == [1_001])
        #expect(click(1_001) == nil)
    }

    @Test mutating func `a click does what the line says`() {
        submenu.opened(at: now)
        show([
            channel("a", .code), channel("b", .ask), channel("c", .unknown), channel("d", .code, isOwn: true),
        ])
        pass(.seconds(1))
        let view = submenu.view(activeChannel: nil)
        #expect(view.lines.map(\.isLocked) == [true, false, false, false])
        #expect(view.lines.map(\.isEnabled) == [true, true, false, true])
        #expect(click(1_000) == .locked(name: "Channel a"))
        #expect(click(1_001) == .ask("b", name: "Channel b", creator: "Anna"))
        #expect(click(1_002) == nil)
        #expect(click(1_003) == .join("d"))
        #expect(click(1_003, active: "uuid-d") == nil)
        show([channel("a", .code), channel("b", .ask)], joining: "b")
        #expect(labels[1] == "Channel b (Anna, 1 member, waiting for approval)")
        #expect(click(1_001) == nil)
        #expect(submenu.view(activeChannel: "uuid-a").lines[0].label == "Channel a (Anna, 1 member, joined)")
    }

    @Test mutating func `a flood fills the lines, and the first one tells of the rest`() {
        submenu.opened(at: now)
        show((0..<100).map { channel("\($0)") })
        #expect(numbers.count == NearbySubmenu.linesMax)
        #expect(submenu.view(activeChannel: nil).header == "Choose one to join it; 80 more: 'pttctl nearby'")
        show([], problem: "avahi-daemon is not running")
        #expect(submenu.view(activeChannel: nil).header == "avahi-daemon is not running")
    }

    @Test mutating func `names are bounded, cannot turn the line around, and those alike have their keys`() {
        let long = String(repeating: "x", count: 128)
        submenu.opened(at: now)
        show([
            channel("uuid.key1", name: "Crane\u{202E}\n2", creator: "An\u{200B}na"),
            channel("uuid.key2", name: "Crane 2"), channel("c", name: long, creator: "\u{2066}"),
        ])
        #expect(labels[0] == "Crane 2 (Anna, key uid.key1, 1 member)")
        #expect(labels[1] == "Crane 2 (Anna, key uid.key2, 1 member)")
        #expect(labels[2] == String(repeating: "x", count: 40) + "… (without a name, 1 member)")
    }
}

extension NearbySubmenuTests {
    @Test func `a click closes the menu, whether the tray tells that or not`() {
        var rules = Rules()
        rules.handle(.nearbyOpened)
        rules.handle(.nearbyChanged(SystemUINearby(channels: [channel("a", .ask), channel("b", .code)])))
        rules.pass(.seconds(10))
        rules.handle(.nearbyClicked(1_000))
        #expect(rules.wishes == [.browseNearby(true), .joinNearby("a")])
        #expect(
            rules.notification?.subject
                == .announcement("Waiting for approval: Anna is asked to let you into Channel a", isUrgent: false))
        rules.pass(.milliseconds(1_900))
        #expect(rules.wishes.count == 2)
        rules.handle(.nearbyClicked(1_001))
        guard case .announcement(let words, _) = rules.notification?.subject else {
            Issue.record("a locked channel tells how it is joined")
            return
        }
        #expect(words.hasPrefix("Channel b is locked: 'pttctl nearby'"))
        rules.pass(.milliseconds(200))
        #expect(rules.wishes == [.browseNearby(true), .joinNearby("a"), .browseNearby(false)])
        rules.handle(.createClicked)
        #expect(rules.wishes.last == .createNearby)
    }
}

@Suite struct NewcomerQuestionsTests {
    private var questions = NewcomerQuestions()
    private var now = Instant.zero
    private let eve = SystemUINearby.Newcomer(id: "e", name: "Eve", channelName: "Crane 2")
    private let fred = SystemUINearby.Newcomer(id: "f", name: "Fred", channelName: "Crane 2")

    private var asked: String? {
        if case .newcomer(let name) = questions.view?.subject { name } else { nil }
    }

    private mutating func pass(_ time: Duration) {
        now = now + time
        if let deadline = questions.nextDeadline, deadline <= now { questions.pass(to: now) }
    }

    private mutating func click(_ button: Int, after shown: Duration = .seconds(1)) -> String? {
        guard let key = questions.view?.buttons[button].key else { return nil }
        return questions.clicked(key, after: shown, at: now).map { "\($0.id) \($0.isAdmitted)" }
    }

    @Test mutating func `those who wait are asked about one after the other`() {
        questions.update([eve, fred], at: now)
        #expect(asked == "Eve" && questions.nextDeadline == nil)
        #expect(click(0) == "e true")
        #expect(asked == nil)
        questions.update([fred], at: now)
        #expect(asked == nil)
        pass(.seconds(1))
        #expect(asked == "Fred")
        #expect(click(1) == "f false")
        pass(.seconds(60))
        #expect(asked == nil && questions.nextDeadline == nil)
    }

    @Test mutating func `an answer elsewhere, or giving up, takes the question back`() {
        questions.update([eve, fred], at: now)
        let key = questions.view?.buttons[0].key ?? ""
        questions.update([fred], at: now)
        #expect(asked == nil)
        pass(.seconds(1))
        #expect(asked == "Fred")
        // A click on the button for Eve that comes late does not let Fred in.
        #expect(questions.clicked(key, after: .seconds(9), at: now) == nil)
        #expect(asked == "Fred")
        questions.update([], at: now)
        #expect(asked == nil && questions.nextDeadline == nil)
    }

    @Test mutating func `a question that appears under the pointer is not answered by that click, and comes again`() {
        questions.update([eve], at: now)
        #expect(click(0, after: .milliseconds(499)) == nil)
        #expect(asked == nil)
        pass(.seconds(1))
        #expect(asked == "Eve")
        #expect(click(0, after: .milliseconds(500)) == "e true")
    }

    @Test mutating func `a question that is put away is not asked again, unless the newcomer asks again`() {
        questions.update([eve, fred], at: now)
        questions.dismissed(at: now)
        pass(.seconds(1))
        #expect(asked == "Fred")
        questions.update([fred], at: now)
        questions.update([fred, eve], at: now)
        #expect(asked == "Fred")
        #expect(click(1) == "f false")
        pass(.seconds(1))
        #expect(asked == "Eve")
    }

    @Test mutating func `whoever asks again and again is asked about once a second`() {
        var count = 0
        for _ in 0..<1_000 {
            let before = asked
            questions.update([eve], at: now)
            if asked != nil, before == nil { count += 1 }
            questions.update([], at: now)
            pass(.milliseconds(10))
        }
        #expect(count <= 11)
    }
}
