// What is shown at what time, and what a click means.
import MonotonicTime
import PushToTalkCore
import TestSupport
import Testing

@testable import SystemUI

/// A state machine with its clock and what it said.
struct Rules {
    private(set) var machine = SystemUIStateMachine()
    private(set) var now = Instant.zero
    private(set) var wishes: [SystemUIEvent] = []
    private(set) var notification: NotificationView?
    private(set) var notifications = 0
    private(set) var newcomer: NotificationView?
    private(set) var tray = SystemUIStateMachine.initialTray
    private(set) var menu = SystemUIStateMachine.initialMenu
    private(set) var redraws = 0
    var state = SystemUIState()

    mutating func handle(_ event: SystemUIStateMachine.Event) {
        for action in machine.handle(event, at: now) {
            switch action {
            case .notification(let view):
                notification = view
                notifications += 1
            case .newcomer(let view): newcomer = view
            case .tray(let view):
                tray = view
                redraws += 1
            case .menu(let view): menu = view
            case .tell(let wish): wishes.append(wish)
            }
        }
    }

    mutating func change(_ body: (inout SystemUIState) -> Void) {
        body(&state)
        handle(.stateChanged(state))
    }

    /// Lets time pass, with its deadlines.
    mutating func pass(_ time: Duration) {
        let end = now + time
        while let deadline = machine.nextDeadline, deadline <= end {
            now = max(now, deadline)
            handle(.deadline)
        }
        now = end
    }

    static func joined(
        _ name: String = "Kitchen", image: PTImage? = nil, mode: PTTransmissionMode = .halfDuplex
    ) -> Rules {
        var rules = Rules()
        rules.change {
            $0.channel = SystemUIState.Channel(
                descriptor: PTChannelDescriptor(name: name, image: image), serviceStatus: .ready,
                transmissionMode: mode)
        }
        rules.pass(.seconds(1))
        return rules
    }
}

@Suite struct SystemUIStateMachineTests {
    private let anna = PTParticipant(name: "Anna", image: PTImage(named: "avatar-default"))
    private let bert = PTParticipant(name: "Bert", image: nil)

    @Test func `without a channel there is an icon whose menu leads to one, and no notification`() {
        var rules = Rules()
        rules.change { $0.speaker = anna }
        rules.handle(.leaveClicked)
        rules.handle(.failed("no"))
        #expect(rules.notification == nil)
        #expect(rules.wishes.isEmpty)
        #expect(rules.tray.status == .active && rules.tray.activity == .away)
        #expect(rules.menu == SystemUIStateMachine.initialMenu)
        #expect(!rules.menu.canTalk && !rules.menu.canLeave)
        #expect(rules.machine.nextDeadline == nil)
        rules.handle(.talkClicked)
        #expect(rules.wishes.isEmpty)
        guard case .announcement(let words, false) = rules.notification?.subject else {
            Issue.record("a click without a channel tells the way to one")
            return
        }
        #expect(words.contains("channel nearby"))
    }

    @Test func `who speaks is shown with the channel, remains for a moment, and goes`() {
        var rules = Rules.joined()
        rules.change { $0.speaker = anna }
        #expect(rules.notification?.subject == .speaking("Anna"))
        #expect(rules.notification?.channelName == "Kitchen")
        #expect(rules.notification?.image == anna.image)
        rules.pass(.seconds(20))
        #expect(rules.notification?.subject == .speaking("Anna"))
        rules.change { $0.speaker = nil }
        #expect(rules.notification?.subject == .spoke("Anna"))
        rules.pass(.milliseconds(3_999))
        #expect(rules.notification?.subject == .spoke("Anna"))
        rules.pass(.milliseconds(1))
        #expect(rules.notification == nil)
        #expect(rules.notifications == 3)
        #expect(rules.machine.nextDeadline == nil)
    }

    @Test func `the next speaker takes the place of the one before`() {
        var rules = Rules.joined()
        rules.change { $0.speaker = anna }
        rules.change { $0.speaker = nil }
        rules.pass(.seconds(1))
        rules.change { $0.speaker = bert }
        #expect(rules.notification?.subject == .speaking("Bert"))
        rules.pass(.seconds(30))
        #expect(rules.notification?.subject == .speaking("Bert"))
    }

    @Test func `a speaker without a picture is shown with the channel's`() {
        let image = PTImage(named: "channel")
        var rules = Rules.joined(image: image)
        rules.change { $0.speaker = bert }
        #expect(rules.notification?.image == image)
        #expect(rules.tray.image == image)
    }

    @Test func `a notification that was taken away stays away until there is another voice`() {
        var rules = Rules.joined()
        rules.change { $0.speaker = anna }
        rules.handle(.notificationGone)
        #expect(rules.notification == nil)
        rules.change { $0.speaker = PTParticipant(name: "Anna", image: nil) }
        rules.change { $0.speaker = nil }
        #expect(rules.notification == nil)
        rules.change { $0.speaker = anna }
        #expect(rules.notification?.subject == .speaking("Anna"))
        rules.handle(.notificationGone)
        rules.change { $0.speaker = bert }
        #expect(rules.notification?.subject == .speaking("Bert"))
    }

    @Test func `an answer, or the end of the channel, ends the notification`() {
        var rules = Rules.joined()
        rules.change { $0.speaker = anna }
        rules.change { $0.speaker = nil }
        rules.change { $0.isTransmitting = true }
        #expect(rules.notification == nil)
        rules.change { $0.isTransmitting = false }
        rules.change { $0.speaker = bert }
        #expect(rules.notification != nil)
        rules.change { $0.channel = nil }
        #expect(rules.notification == nil)
        rules.pass(.seconds(1))
        #expect(rules.tray.activity == .away)
    }

    @Test func `what happened on one channel is not shown on the next`() {
        var rules = Rules.joined()
        rules.change { $0.speaker = anna }
        rules.change {
            $0.channel?.identifier = "b"
            $0.speaker = nil
        }
        #expect(rules.notification == nil)
        rules.handle(.failed("no"))
        rules.change { $0.channel?.identifier = "c" }
        #expect(rules.notification == nil)
        rules.pass(.seconds(1))
        rules.handle(.talkClicked)
        #expect(rules.menu.action == .stop)
        rules.change { $0.channel?.identifier = "d" }
        rules.pass(.seconds(1))
        #expect(rules.menu.action == .talk)
        // The same voice on another channel is news.
        rules.change { $0.speaker = anna }
        rules.handle(.notificationGone)
        rules.change { $0.channel?.identifier = "e" }
        #expect(rules.notification?.subject == .speaking("Anna"))
    }

    @Test func `a refusal is told with its reason and gives way to a voice or a transmission`() {
        var rules = Rules.joined()
        rules.handle(.failed("Bert is\nspeaking"))
        #expect(rules.notification?.subject == .failure("Bert is speaking"))
        rules.pass(.seconds(6))
        #expect(rules.notification == nil)
        rules.handle(.failed(""))
        #expect(rules.notification?.subject == .failure("no reason was given"))
        rules.change { $0.speaker = anna }
        #expect(rules.notification?.subject == .speaking("Anna"))
        rules.handle(.failed("wait"))
        #expect(rules.notification?.subject == .failure("wait"))
        rules.pass(.seconds(6))
        #expect(rules.notification?.subject == .speaking("Anna"))
        rules.handle(.failed("wait"))
        rules.change { $0.isTransmitting = true }
        #expect(rules.notification?.subject == .speaking("Anna"))
    }

    @Test(arguments: [
        (SystemUIState(isTransmitting: true), Activity.transmitting, "You are speaking"),
        (SystemUIState(speaker: PTParticipant(name: "Anna", image: nil)), .receiving, "Anna is speaking"),
        (
            SystemUIState(speaker: PTParticipant(name: "Anna", image: nil), isTransmitting: true), .transmitting,
            "You and Anna are speaking"
        ),
        (SystemUIState(), .idle, "Ready"),
    ])
    func `icon and status line tell what goes on`(state: SystemUIState, activity: Activity, text: String) {
        var rules = Rules.joined()
        rules.change {
            $0.speaker = state.speaker
            $0.isTransmitting = state.isTransmitting
        }
        rules.pass(.seconds(1))
        #expect(rules.tray.activity == activity)
        #expect(rules.tray.text == text)
        #expect(rules.menu.statusLine == text)
        #expect(rules.tray.title == "Kitchen" && rules.menu.channelLine == "Kitchen")
    }

    @Test func `what happened is told for a moment, and an emergency until it was seen`() {
        var rules = Rules.joined()
        rules.handle(.announced("Channel 2: Workshop", isUrgent: false))
        #expect(rules.notification?.subject == .announcement("Channel 2: Workshop", isUrgent: false))
        rules.pass(.seconds(7))
        #expect(rules.notification == nil)
        rules.handle(.announced("Emergency: vest", isUrgent: true))
        rules.handle(.announced("Channel 1: Team", isUrgent: false))
        rules.change { $0.isTransmitting = true }
        rules.pass(.seconds(20))
        #expect(rules.notification?.subject == .announcement("Emergency: vest", isUrgent: true))
        rules.handle(.notificationGone)
        rules.handle(.announced("Channel 1: Team", isUrgent: false))
        #expect(rules.notification?.subject == .announcement("Channel 1: Team", isUrgent: false))
        rules.pass(.seconds(31))
        #expect(rules.notification == nil)
        #expect(rules.machine.nextDeadline == nil)
    }

    @Test func `a channel that cannot be used says why, and only then wants attention`() {
        var rules = Rules.joined()
        rules.change {
            $0.channel?.serviceStatus = .connecting
            $0.channel?.serviceDetail = "looking for the relay"
        }
        #expect(rules.tray.activity == .connecting && rules.tray.status == .active)
        #expect(rules.tray.text == "Connecting: looking for the relay")
        #expect(!rules.menu.canTalk && rules.menu.canLeave)
        rules.pass(.seconds(1))
        rules.change {
            $0.channel?.serviceStatus = .unavailable
            $0.channel?.serviceDetail = ""
        }
        #expect(rules.tray.activity == .unavailable && rules.tray.status == .needsAttention)
        #expect(rules.tray.text == "Not available")
        rules.pass(.seconds(1))
        rules.change {
            $0.channel?.serviceStatus = .ready
            $0.channel?.transmissionMode = .listenOnly
        }
        #expect(rules.tray.status == .active)
        #expect(rules.menu.statusLine == "Ready to listen" && !rules.menu.canTalk)
    }

    @Test func `Talk begins, Stop ends, and Leave leaves`() {
        var rules = Rules.joined()
        #expect(rules.menu.action == .talk)
        rules.handle(.talkClicked)
        #expect(rules.menu.action == .stop)
        // The second click comes before the transmission has begun.
        rules.handle(.talkClicked)
        rules.handle(.talkClicked)
        rules.change { $0.isTransmitting = true }
        rules.pass(.milliseconds(10))
        rules.handle(.talkClicked)
        rules.change { $0.isTransmitting = false }
        // Ended by the click itself: the next one counts at once.
        rules.handle(.talkClicked)
        rules.handle(.leaveClicked)
        #expect(
            rules.wishes
                == [.talkPressed, .talkReleased, .talkPressed, .talkReleased, .talkPressed, .leave])
    }

    @Test func `a click meant for what stood there a moment ago does nothing`() {
        var rules = Rules.joined()
        rules.change { $0.isTransmitting = true }
        rules.pass(.milliseconds(399))
        rules.handle(.talkClicked)
        #expect(rules.wishes.isEmpty)
        rules.pass(.seconds(1))
        // The time limit ends it under the pointer: no new transmission may begin by that.
        rules.change { $0.isTransmitting = false }
        rules.handle(.talkClicked)
        #expect(rules.wishes.isEmpty)
        rules.pass(.milliseconds(400))
        rules.handle(.talkClicked)
        #expect(rules.wishes == [.talkPressed])
        rules.handle(.failed("refused"))
        rules.handle(.talkClicked)
        #expect(rules.wishes == [.talkPressed])
        #expect(rules.menu.action == .stop)
        rules.pass(.milliseconds(400))
        #expect(rules.menu.action == .talk)
        rules.handle(.talkClicked)
        #expect(rules.wishes == [.talkPressed, .talkPressed])
    }

    @Test func `where it cannot be used a click still asks, so that the refusal tells why`() {
        var rules = Rules.joined()
        rules.change { $0.channel?.serviceStatus = .unavailable }
        rules.handle(.talkClicked)
        #expect(rules.wishes == [.talkPressed])
    }

    @Test func `a notification offers Talk when an answer is possible`() {
        var half = Rules.joined()
        half.change { $0.speaker = anna }
        #expect(half.notification?.buttons.isEmpty == true)
        half.change { $0.speaker = nil }
        #expect(half.notification?.buttons == [TalkAction.talk.button])
        var full = Rules.joined(mode: .fullDuplex)
        full.change { $0.speaker = anna }
        #expect(full.notification?.buttons == [TalkAction.talk.button])
        full.handle(.talkClicked)
        #expect(full.notification?.buttons == [TalkAction.stop.button])
        var listener = Rules.joined(mode: .listenOnly)
        listener.change { $0.speaker = anna }
        listener.change { $0.speaker = nil }
        #expect(listener.notification?.buttons.isEmpty == true)
    }

    @Test func `a storm of changes redraws ten times a second, and ends with what is so`() {
        var rules = Rules.joined()
        let before = rules.redraws
        for step in 0..<10_000 {
            rules.change { $0.speaker = step.isMultiple(of: 2) ? anna : nil }
            rules.pass(.microseconds(100))
        }
        #expect(rules.redraws - before <= 11)
        rules.change { $0.isTransmitting = true }
        rules.pass(.seconds(1))
        #expect(rules.tray.activity == .transmitting)
        #expect(rules.menu.action == .stop)
    }

    @Test func `after any events the screen shows what is so, and a silent channel ends without deadlines`() {
        var random = SeededGenerator()
        for _ in 0..<200 {
            var rules = Rules()
            for _ in 0..<200 {
                switch Int.random(in: 0..<10, using: &random) {
                case 0:
                    rules.change {
                        $0.channel = SystemUIState.Channel(
                            descriptor: PTChannelDescriptor(name: "C", image: nil),
                            serviceStatus: PTServiceStatus.allCases.randomElement(using: &random) ?? .ready,
                            transmissionMode: PTTransmissionMode.allCases.randomElement(using: &random) ?? .halfDuplex)
                    }
                case 1 where random.chance(20): rules.change { $0.channel = nil }
                case 2, 3: rules.change { $0.speaker = [nil, anna, bert].randomElement(using: &random) ?? nil }
                case 4, 5: rules.change { $0.isTransmitting.toggle() }
                case 6: rules.handle(.failed("x"))
                case 7: rules.handle(.talkClicked)
                case 8: rules.handle(.notificationGone)
                default: rules.pass(.milliseconds(Int.random(in: 0...5_000, using: &random)))
                }
                #expect(rules.machine.nextDeadline ?? .zero < rules.now + .seconds(10))
            }
            // A press from here never outlives the channel.
            let isTransmitting = rules.state.channel != nil && rules.state.isTransmitting
            rules.pass(.seconds(10))
            #expect(rules.machine.nextDeadline == nil)
            #expect((rules.tray.activity == .away) == (rules.state.channel == nil))
            #expect((rules.tray.activity == .transmitting) == isTransmitting)
            #expect(!isTransmitting || rules.menu.action == .stop)
            #expect(rules.notification == nil || rules.state.speaker != nil)
        }
    }
}
