// One notification at a server that comes and goes, and what it is made of.
import DBus
import MonotonicTime
import PushToTalkCore
import TestSupport
import Testing

@testable import SystemUI

private func view(
    _ subject: NotificationView.Subject = .speaking("Anna"), action: TalkAction? = nil, channel: String = "Kitchen"
) -> NotificationView {
    NotificationView(
        subject: subject, channelName: channel, image: nil, buttons: action.map { [$0.button] } ?? [],
        lifetime: .seconds(60))
}

@Suite struct NotificationRequestTests {
    private let full: Set = ["body", "body-markup", "actions", "icon-static", "persistence"]

    @Test func `a server that can show all of it gets all of it`() {
        let request = NotificationRequest(
            view(.spoke("A & B"), action: .talk, channel: "<Team>"), capabilities: full, replacing: 7,
            picture: .file(path: "/run/user/1/a b.png"))
        #expect(request.summary == "A & B was speaking")
        #expect(request.body == "&lt;Team&gt;")
        #expect(request.actions == ["talk", "Talk"])
        #expect(request.icon == "audio-volume-high")
        #expect(
            request.hints == [
                "urgency": .byte(1), "transient": .boolean(true), "suppress-sound": .boolean(true),
                "category": .string("im.received"), "image-path": .string("file:///run/user/1/a%20b.png"),
            ])
        #expect(request.arguments.signature == "susssasa{sv}i")
        #expect(request.arguments[1] == .uint32(7))
        #expect(request.arguments[7] == .int32(60_000))
    }

    @Test func `a server that shows one line gets one line`() {
        let request = NotificationRequest(
            view(.failure("a call has the audio"), action: .talk), capabilities: [], replacing: 0,
            picture: .icon("team"))
        #expect(request.summary == "You cannot talk on Kitchen: a call has the audio")
        #expect(request.body.isEmpty && request.actions.isEmpty && request.icon.isEmpty)
        #expect(request.hints["image-path"] == nil)
        #expect(request.hints["category"] == .string("im.error"))
    }

    @Test func `a newcomer is asked about with buttons, or with the command where there are none`() {
        var newcomer = view(.newcomer("Eve"), channel: "Crane 2")
        newcomer.buttons = [.init(key: "admit-1", label: "Admit"), .init(key: "refuse-1", label: "Refuse")]
        let asked = NotificationRequest(newcomer, capabilities: full, replacing: 0, picture: nil)
        #expect(asked.summary == "Eve wants to join" && asked.body == "Crane 2")
        #expect(asked.actions == ["admit-1", "Admit", "refuse-1", "Refuse"])
        #expect(asked.hints["urgency"] == .byte(2))
        let told = NotificationRequest(newcomer, capabilities: ["body"], replacing: 0, picture: nil)
        #expect(told.actions.isEmpty)
        #expect(told.body == "Crane 2\n'pttctl nearby admit' or 'pttctl nearby refuse' answers")
    }

    @Test func `without markup nothing is escaped`() {
        let request = NotificationRequest(
            view(.failure("1 < 2"), channel: "Q&A"), capabilities: ["body"], replacing: 0, picture: nil)
        #expect(request.body == "Q&A\n1 < 2")
    }
}

@Suite struct NotificationStateMachineTests {
    private var machine = NotificationStateMachine()
    private let anna = view(action: .talk)
    private let bert = view(.speaking("Bert"))

    private mutating func handle(
        _ event: NotificationStateMachine.Event, at milliseconds: Int = 0
    ) -> [NotificationStateMachine.Action] {
        machine.handle(event, at: .zero + .milliseconds(milliseconds))
    }

    private func notify(_ view: NotificationView, replacing: UInt32 = 0, server: Int = 0)
        -> NotificationStateMachine.Action
    { .notify(view, capabilities: ["body"], replacing: replacing, server: server) }

    @Test mutating func `nothing is asked of a server before there is something to show`() {
        #expect(handle(.serverChanged).isEmpty)
        #expect(handle(.wanted(nil)).isEmpty)
        #expect(handle(.wanted(anna)) == [.askCapabilities(server: 1)])
        #expect(handle(.wanted(bert)).isEmpty)
        #expect(handle(.capabilities(["body"], server: 1)) == [notify(bert, server: 1)])
    }

    @Test mutating func `the notification is replaced, at most twice a second, and closed`() {
        _ = handle(.wanted(anna))
        #expect(handle(.capabilities(["body"], server: 0)) == [notify(anna)])
        #expect(handle(.notified(9, server: 0), at: 10).isEmpty)
        #expect(handle(.wanted(bert), at: 20).isEmpty)
        #expect(machine.nextDeadline == .zero + .milliseconds(500))
        #expect(handle(.wanted(anna), at: 30).isEmpty)
        #expect(machine.nextDeadline == nil)
        #expect(handle(.wanted(bert), at: 40).isEmpty)
        #expect(handle(.deadline, at: 500) == [notify(bert, replacing: 9)])
        #expect(handle(.notified(9, server: 0), at: 510).isEmpty)
        #expect(handle(.wanted(nil), at: 520) == [.close(9)])
        #expect(handle(.closed(9, reason: 3), at: 530).isEmpty)
        #expect(machine.nextDeadline == nil)
    }

    @Test mutating func `what is over before the server answered is closed when it does`() {
        _ = handle(.wanted(anna))
        _ = handle(.capabilities(["body"], server: 0))
        #expect(handle(.wanted(nil)).isEmpty)
        #expect(handle(.notified(4, server: 0)) == [.close(4)])
    }

    @Test mutating func `without a server nothing is asked again until one appears`() {
        _ = handle(.wanted(anna))
        #expect(handle(.capabilities(nil, server: 0)).isEmpty)
        for second in 1..<100 {
            #expect(handle(.wanted(second.isMultiple(of: 2) ? anna : bert), at: second * 1_000).isEmpty)
            #expect(machine.nextDeadline == nil)
        }
        #expect(handle(.serverChanged, at: 200_000) == [.askCapabilities(server: 1)])
    }

    @Test mutating func `a server that dies of a notification does not get it again`() {
        _ = handle(.wanted(anna))
        _ = handle(.capabilities(["body"], server: 0))
        #expect(handle(.serverChanged).isEmpty)
        // What the dead server's calls end with is no news of the new one.
        #expect(handle(.notified(nil, server: 0)).isEmpty)
        #expect(handle(.serverChanged).isEmpty)
        #expect(handle(.wanted(bert), at: 1_000) == [.askCapabilities(server: 2)])
        #expect(handle(.capabilities(["body"], server: 1), at: 1_001).isEmpty)
        #expect(handle(.capabilities(["body"], server: 2), at: 1_002) == [notify(bert, server: 2)])
        #expect(handle(.serverUnknown(server: 2), at: 1_003).isEmpty)
        #expect(handle(.wanted(anna), at: 2_000).isEmpty)
    }

    @Test mutating func `a refused notification is not repeated, the next one is tried`() {
        _ = handle(.wanted(anna))
        _ = handle(.capabilities(["body"], server: 0))
        #expect(handle(.notified(nil, server: 0)).isEmpty)
        #expect(machine.nextDeadline == nil)
        #expect(handle(.wanted(bert), at: 600) == [notify(bert)])
    }

    @Test mutating func `only what happens to our notification counts`() {
        _ = handle(.wanted(anna))
        _ = handle(.capabilities(["body"], server: 0))
        _ = handle(.notified(4, server: 0), at: 100)
        #expect(handle(.closed(5, reason: 2)).isEmpty)
        #expect(handle(.actionInvoked(5, key: "talk")).isEmpty)
        #expect(handle(.actionInvoked(4, key: "default")).isEmpty)
        #expect(handle(.actionInvoked(4, key: "talk"), at: 400) == [.clicked(key: "talk", after: .milliseconds(300))])
        #expect(handle(.closed(4, reason: 2)) == [.gone])
        #expect(handle(.wanted(nil)).isEmpty)
        #expect(handle(.actionInvoked(4, key: "talk")).isEmpty)
    }

    @Test mutating func `who puts a notification away has not put away what is to take its place`() {
        _ = handle(.wanted(anna))
        _ = handle(.capabilities(["body"], server: 0))
        _ = handle(.notified(4, server: 0), at: 10)
        #expect(handle(.wanted(bert), at: 100).isEmpty)
        #expect(handle(.closed(4, reason: 2), at: 200).isEmpty)
        #expect(handle(.deadline, at: 500) == [notify(bert)])
        _ = handle(.notified(5, server: 0), at: 510)
        // The end of the same speech is no news.
        #expect(handle(.wanted(view(.spoke("Bert"))), at: 520).isEmpty)
        #expect(handle(.closed(5, reason: 2), at: 530) == [.gone])
    }

    /// A server with notifications on its screen and answers that take their time.
    @Test func `whatever happens there is at most one notification, and none when there is nothing to show`() {
        var random = SeededGenerator()
        for _ in 0..<300 {
            var machine = NotificationStateMachine()
            var now = Instant.zero
            var screen: Set<UInt32> = []
            var next: UInt32 = 1
            var answers: [NotificationStateMachine.Event] = []
            var sent = 0
            var wanted: NotificationView?
            func handle(_ event: NotificationStateMachine.Event) {
                for action in machine.handle(event, at: now) {
                    switch action {
                    case .askCapabilities(let server):
                        answers.append(.capabilities(random.chance(90) ? ["body"] : nil, server: server))
                    case .notify(_, _, let replacing, let server):
                        sent += 1
                        if random.chance(10) {
                            answers.append(.notified(nil, server: server))
                            break
                        }
                        let number = screen.contains(replacing) ? replacing : next
                        next += 1
                        screen.insert(number)
                        answers.append(.notified(number, server: server))
                    case .close(let number): screen.remove(number)
                    case .gone, .clicked: break
                    }
                }
                #expect(screen.count <= 1)
            }
            let begin = now
            for _ in 0..<200 {
                switch Int.random(in: 0..<8, using: &random) {
                case 0, 1:
                    wanted = [nil, anna, bert].randomElement(using: &random) ?? nil
                    handle(.wanted(wanted))
                case 2, 3: if !answers.isEmpty { handle(answers.removeFirst()) }
                case 4 where random.chance(20):
                    screen = []
                    handle(.serverChanged)
                case 5 where answers.isEmpty:
                    if let number = screen.popFirst() { handle(.closed(number, reason: 2)) }
                default:
                    now = now + .milliseconds(Int.random(in: 0...400, using: &random))
                    if let deadline = machine.nextDeadline, deadline <= now { handle(.deadline) }
                }
            }
            #expect(sent <= Int((now - begin).milliseconds / 500) + 1)
            handle(.wanted(nil))
            while !answers.isEmpty { handle(answers.removeFirst()) }
            #expect(screen.isEmpty)
            #expect(machine.nextDeadline == nil)
        }
    }
}
