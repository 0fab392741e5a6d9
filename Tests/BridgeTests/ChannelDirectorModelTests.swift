import Bridge
import Cryptography
import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import RelayProtocol
import TestSupport
import Testing

/// What a listener to the director's actions knows, and what must hold of them.
private struct Listener {
    var open: UUID?
    var remembered: UUID?
    var chosen: UUID?

    /// Carries an action out; the words of what is wrong with it.
    mutating func take(_ action: ChannelDirectorStateMachine.Action) -> String? {
        switch action {
        case .open(let membership, _):
            guard open == nil else { return "a second channel was opened" }
            open = membership.uuid
        case .close(let uuid, _):
            guard open == uuid else { return "a channel was closed that is not open" }
            open = nil
        case .choose(let uuid): chosen = uuid
        case .remember: remembered = open
        case .forget: remembered = nil
        default: break
        }
        return nil
    }
}

@Suite struct ChannelDirectorModelTests {
    /// Any order of events: never two channels, always the configured one when it is wanted, nothing stale remembered.
    @Test(arguments: [UInt64(1), 2, 3, SeededGenerator.seed(for: "ChannelDirectorModelTests")])
    func `any order of events keeps one channel and one program`(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        let links = try (0..<3).map { index in
            try InvitationLink(
                host: "192.0.2.1", port: 4433, channelName: #require(DisplayName("C\(index)")), channel: ChannelID(),
                token: InvitationToken(), pin: #require(PublicKeyPin([UInt8](repeating: 7, count: 32))))
        }
        // The last link is nobody's: users join with it.
        let configured = links.prefix(2).map { link in
            ChannelMembership(
                uuid: link.channel.uuid, descriptor: PTChannelDescriptor(name: link.channelName.text, image: nil),
                owner: nil, isConfigured: true, link: link)
        }
        let uuids = links.map(\.channel.uuid) + [UUID()]
        let names = ["", "com.example.A", "com.example.B"]
        var now = Instant.zero
        var director = ChannelDirectorStateMachine(channels: configured)
        var listener = Listener()
        listener.chosen = configured[0].uuid
        var userLeftConfigured = false
        var isOpen = true
        var counts: [String: Int] = [:]

        func apply(_ event: ChannelDirectorStateMachine.Event) {
            for action in director.handle(event, at: now) {
                counts[String("\(action)".prefix { $0.isLetter }), default: 0] += 1
                if let wrong = listener.take(action) { Issue.record("\(wrong): \(event)") }
                if case .open(let membership, _) = action {
                    if membership.isConfigured { userLeftConfigured = false }
                    if !membership.hasApplicationMedia, director.link(of: membership) == nil {
                        Issue.record("opened without a link: \(event)")
                    }
                }
            }
            #expect(listener.open == director.active?.uuid)
            #expect(listener.chosen == director.configured?.uuid, "a restart would find another one chosen: \(event)")
            if director.active?.isConfigured == true { #expect(director.active == director.configured) }
            #expect(listener.remembered == (director.active?.isConfigured == false ? director.active?.uuid : nil))
            if isOpen, !userLeftConfigured { #expect(director.active != nil, "nothing is joined: \(event)") }
            if !isOpen { #expect(director.active == nil, "joined at a forbidden hour: \(event)") }
            if let busName = director.active?.owner?.busName { #expect(director.programs[busName] != nil) }
            if let deadline = director.nextDeadline { #expect(deadline >= now || event == .deadlineReached) }
            let named = director.programs.values.map(\.name).filter { !$0.isEmpty }
            #expect(Set(named).count == named.count, "a name is registered twice: \(event)")
        }

        apply(.started(restoring: nil))
        for _ in 0..<30_000 {
            let caller = ":1.\(Int.random(in: 0..<6, using: &random))"
            let uuid = uuids.randomElement(using: &random)
            let next = now + .milliseconds(Int.random(in: 0..<500, using: &random))
            while let deadline = director.nextDeadline, deadline <= next {
                now = max(now, deadline)
                apply(.deadlineReached)
            }
            now = next
            switch Int.random(in: 0..<15, using: &random) {
            case 0...3:
                apply(
                    .join(
                        ChannelJoin(
                            caller: caller, isForeground: Int.random(in: 0..<8, using: &random) > 0, uuid: uuid,
                            descriptor: PTChannelDescriptor(name: "x", image: nil),
                            link: Bool.random(using: &random) ? links.randomElement(using: &random) : nil,
                            wantsApplicationMedia: [nil, true, false].randomElement(using: &random) ?? nil,
                            replacing: uuids.randomElement(using: &random))))
            case 4, 5:
                guard let uuid else { continue }
                if director.active?.isConfigured == true, director.active?.uuid == uuid { userLeftConfigured = true }
                apply(.leave(uuid, caller: caller))
            case 6: if let uuid = director.active?.uuid, director.active?.isConfigured == false { apply(.left(uuid)) }
            case 7, 8:
                let name = names.randomElement(using: &random) ?? ""
                apply(.registered(BusProgram(busName: caller, name: name)))
            case 9: apply(.gone(busName: caller))
            case 10:
                isOpen.toggle()
                apply(.hoursChanged(isOpen: isOpen))
                if !isOpen, Int.random(in: 0..<10, using: &random) > 0 {
                    isOpen = true
                    apply(.hoursChanged(isOpen: true))
                }
            case 11...13:
                let step = [ChannelStep.up, .down, .name("C1"), .name("C7")].randomElement(using: &random) ?? .up
                let joined = director.active.flatMap { $0.isConfigured ? nil : $0.uuid }
                apply(.change(step, isPress: Bool.random(using: &random)))
                if let joined { #expect(director.active?.uuid == joined, "a join was pushed out") }
            default:
                now = director.nextDeadline ?? now + .seconds(1)
                apply(.deadlineReached)
                #expect(director.nextDeadline.map { $0 > now } ?? true, "a deadline stays due")
            }
        }
        for kind in [
            "open", "close", "remember", "forget", "hand", "orphan", "release", "refuse", "choose", "announce",
        ] {
            #expect((counts[kind] ?? 0) > 0, "never seen: \(kind)")
        }
    }
}
