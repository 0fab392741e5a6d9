// Whose microphone and speaker are used, and when a headset is switched.
import Audio
import MonotonicTime
import Testing

@testable import Headsets

private let vest = "11:22:33:44:55:66"
private let other = "AA:BB:CC:DD:EE:FF"
private let music = HeadsetFacts.Profile(name: "a2dp-sink", isHandsFree: false, priority: 40)
private let handsFree = HeadsetFacts.Profile(name: "headset-head-unit", isHandsFree: true, priority: 20)
private let narrow = HeadsetFacts.Profile(name: "headset-head-unit-cvsd", isHandsFree: true, priority: 10)

private func inMusic(_ address: String = vest, card: UInt32 = 7) -> HeadsetFacts {
    HeadsetFacts(
        address: address, speaker: "pulse:DEVICE=music",
        card: .init(index: card, profiles: [music, narrow, handsFree], activeProfile: "a2dp-sink"))
}

private func inHandsFree(_ address: String = vest, card: UInt32 = 7) -> HeadsetFacts {
    HeadsetFacts(
        address: address, microphone: "pulse:DEVICE=mic", speaker: "pulse:DEVICE=ear",
        card: .init(index: card, profiles: [music, narrow, handsFree], activeProfile: "headset-head-unit"))
}

private let blueALSA = HeadsetFacts(address: vest, microphone: "bluealsa:mic", speaker: "bluealsa:ear")

/// The rules, with a clock of their own.
private struct Rules {
    var machine: HeadsetsStateMachine
    var now = Instant(nanoseconds: 1_000_000_000)
    var sound = WornSound.none
    var profiles: [String] = []
    var learned: [String: [Duration]]?
    var renewed: [String] = []

    init(
        link: HeadsetsStateMachine.LinkUse = .onPress, usesMicrophone: Bool = true,
        learned: [String: [Duration]] = [:]
    ) {
        machine = HeadsetsStateMachine(link: link, usesMicrophone: usesMicrophone, learned: learned)
        send(.accessories([WornAccessory(id: "vest", address: vest, hasSound: true)]))
    }

    mutating func send(_ event: HeadsetsStateMachine.Event, after: Duration = .zero) {
        now = now + after
        for action in machine.handle(event, at: now) {
            switch action {
            case .use(let sound): self.sound = sound
            case .setProfile(let card, let profile): profiles.append("\(card) \(profile)")
            case .renewLink(let headset): renewed.append(headset.microphone ?? "")
            case .changed: break
            case .learned(let times): learned = times
            }
        }
    }

    /// A headset that was told to go back to music, and is shown as hands-free.
    static func returning() -> Rules {
        var rules = Rules()
        rules.send(.listed([inMusic()], by: .soundServer))
        rules.send(.pressed(accessory: "vest"))
        rules.send(.profileSet(card: 7, problem: nil))
        rules.send(.listed([inHandsFree()], by: .soundServer))
        rules.send(.released)
        rules.pass(.milliseconds(3_100))
        return rules
    }

    /// Lets the time pass, with every deadline within it.
    mutating func pass(_ span: Duration) {
        let end = now + span
        var deadlines = 0
        while let next = machine.nextDeadline, next <= end {
            deadlines += 1
            #expect(deadlines < 50, "deadlines that do not move")
            guard deadlines < 50 else { break }
            now = max(now, next)
            send(.deadlineReached)
        }
        now = end
    }
}

@Suite struct HeadsetsStateMachineTests {
    @Test func `a press uses the microphone of the accessory that was pressed`() {
        var rules = Rules()
        rules.send(.listed([blueALSA], by: .blueALSA))
        #expect(rules.sound == WornSound(speaker: .alsa("bluealsa:ear")))
        rules.send(.pressed(accessory: "vest"))
        #expect(rules.sound.microphone == .device(.alsa("bluealsa:mic")))
        rules.send(.released)
        #expect(rules.sound.microphone == .configured)
        #expect(rules.sound.speaker == .alsa("bluealsa:ear"))
    }

    @Test func `a button without a microphone uses the configured one, and the worn speaker`() {
        var rules = Rules()
        rules.send(.listed([blueALSA], by: .blueALSA))
        rules.send(.pressed(accessory: "vest"))
        rules.send(.sessionChanged(isActive: true))
        rules.send(.pressed(accessory: "button"))
        #expect(rules.sound == WornSound(speaker: .alsa("bluealsa:ear")))
    }

    @Test func `a headset in its music profile is switched for the transmission and back`() {
        var rules = Rules()
        rules.send(.listed([inMusic()], by: .soundServer))
        #expect(rules.profiles.isEmpty)
        #expect(rules.sound.speaker == .alsa("pulse:DEVICE=music"))
        rules.send(.pressed(accessory: "vest"))
        #expect(rules.profiles == ["7 headset-head-unit"])
        #expect(rules.sound.microphone == .awaited)
        rules.send(.profileSet(card: 7, problem: nil))
        rules.send(.listed([inHandsFree()], by: .soundServer), after: .milliseconds(400))
        #expect(
            rules.sound == WornSound(microphone: .device(.alsa("pulse:DEVICE=mic")), speaker: .alsa("pulse:DEVICE=ear"))
        )
        rules.send(.sessionChanged(isActive: true))
        rules.pass(.seconds(20))
        #expect(rules.profiles.count == 1, "it stays hands-free while somebody talks")
        rules.send(.released)
        rules.send(.sessionChanged(isActive: false))
        rules.pass(.milliseconds(2_900))
        #expect(rules.profiles.count == 1)
        rules.pass(.milliseconds(200))
        #expect(rules.profiles == ["7 headset-head-unit", "7 a2dp-sink"])
        rules.send(.listed([inMusic()], by: .soundServer))
        rules.pass(.seconds(10))
        #expect(rules.profiles.count == 2)
        #expect(rules.machine.nextDeadline == nil)
        rules.pass(.seconds(60))
        rules.send(.sessionChanged(isActive: true))
        rules.pass(.seconds(5))
        rules.send(.sessionChanged(isActive: false))
        rules.pass(.seconds(5))
        #expect(rules.profiles.count == 2, "what others say later is heard without a switch")
    }

    @Test func `a press that waits for its transmission keeps the headset hands-free`() {
        var rules = Rules()
        rules.send(.listed([inMusic()], by: .soundServer))
        rules.send(.pressed(accessory: "vest"))
        rules.send(.listed([inHandsFree()], by: .soundServer))
        rules.pass(.seconds(10))
        rules.send(.sessionChanged(isActive: true))
        #expect(rules.profiles == ["7 headset-head-unit"])
        rules.send(.sessionChanged(isActive: false), after: .seconds(1))
        rules.send(.released, after: .seconds(1))
        rules.pass(.milliseconds(2_900))
        #expect(rules.profiles.count == 1)
        rules.pass(.milliseconds(200))
        #expect(rules.profiles == ["7 headset-head-unit", "7 a2dp-sink"])
    }

    @Test func `a microphone that PipeWire shows in the music profile is used while the switch is under way`() {
        var rules = Rules()
        var facts = inMusic()
        facts.microphone = "pulse:DEVICE=loopback"
        rules.send(.listed([facts], by: .soundServer))
        rules.send(.pressed(accessory: "vest"))
        #expect(rules.sound.microphone == .device(.alsa("pulse:DEVICE=loopback")))
        #expect(rules.profiles == ["7 headset-head-unit"])
        rules.send(.released)
        rules.pass(.seconds(4))
        #expect(rules.profiles == ["7 headset-head-unit"], "the server has not switched it yet")
        rules.send(.listed([inHandsFree()], by: .soundServer))
        #expect(rules.profiles == ["7 headset-head-unit", "7 a2dp-sink"])
    }

    @Test func `a silent microphone of the sound server has its link renewed, one of BlueALSA has not`() {
        var rules = Rules()
        rules.send(.listed([inHandsFree()], by: .soundServer))
        rules.send(.pressed(accessory: "vest"))
        rules.send(.fellSilent)
        #expect(rules.renewed == ["pulse:DEVICE=mic"])
        rules.send(.listed([], by: .soundServer))
        rules.send(.listed([blueALSA], by: .blueALSA))
        rules.send(.fellSilent)
        #expect(rules.renewed.count == 1)
    }

    @Test func `a headset that was off when it was switched is not switched off again`() {
        var rules = Rules()
        var facts = inMusic()
        facts.card?.activeProfile = "off"
        facts.speaker = nil
        rules.send(.listed([facts], by: .soundServer))
        rules.send(.pressed(accessory: "vest"))
        rules.send(.listed([inHandsFree()], by: .soundServer))
        rules.send(.released)
        rules.pass(.seconds(10))
        #expect(rules.profiles == ["7 headset-head-unit"])
    }

    @Test func `an answer within the pause keeps the headset hands-free`() {
        var rules = Rules()
        rules.send(.listed([inMusic()], by: .soundServer))
        rules.send(.pressed(accessory: "vest"))
        rules.send(.listed([inHandsFree()], by: .soundServer))
        rules.send(.sessionChanged(isActive: true))
        rules.send(.released)
        rules.send(.sessionChanged(isActive: false), after: .seconds(1))
        rules.pass(.seconds(2))
        rules.send(.sessionChanged(isActive: true))
        rules.pass(.seconds(9))
        #expect(rules.profiles == ["7 headset-head-unit"])
        rules.send(.sessionChanged(isActive: false))
        rules.pass(.seconds(4))
        #expect(rules.profiles == ["7 headset-head-unit", "7 a2dp-sink"])
    }

    @Test func `a press while a headset goes back to music waits until its microphone is there again`() {
        var rules = Rules.returning()
        #expect(rules.profiles == ["7 headset-head-unit", "7 a2dp-sink"])
        rules.send(.pressed(accessory: "vest"))
        #expect(rules.profiles == ["7 headset-head-unit", "7 a2dp-sink", "7 headset-head-unit"])
        #expect(rules.sound.microphone == .awaited)
        rules.send(.listed([inMusic()], by: .soundServer), after: .milliseconds(100))
        #expect(rules.sound.microphone == .awaited)
        rules.send(.listed([inHandsFree()], by: .soundServer), after: .milliseconds(400))
        #expect(rules.sound.microphone == .device(.alsa("pulse:DEVICE=mic")))
        rules.send(.released)
        rules.pass(.seconds(4))
        #expect(rules.profiles.dropFirst(3) == ["7 a2dp-sink"])
    }

    @Test func `where the return to music is never shown, its answers tell when the microphone can be used`() {
        var rules = Rules.returning()
        rules.send(.pressed(accessory: "vest"))
        rules.send(.profileSet(card: 7, problem: nil))
        #expect(rules.sound.microphone == .awaited)
        rules.send(.profileSet(card: 7, problem: nil))
        #expect(rules.sound.microphone == .device(.alsa("pulse:DEVICE=mic")))
        rules.send(.released)
        rules.pass(.seconds(4))
        #expect(rules.profiles.dropFirst(3) == ["7 a2dp-sink"])
        var refused = Rules.returning()
        refused.send(.pressed(accessory: "vest"))
        #expect(refused.sound.microphone == .awaited)
        refused.send(.profileSet(card: 7, problem: "Device busy"))
        #expect(refused.sound.microphone == .device(.alsa("pulse:DEVICE=mic")))
    }

    @Test func `a choice of somebody else is not undone`() {
        var rules = Rules()
        rules.send(.listed([inMusic()], by: .soundServer))
        rules.send(.pressed(accessory: "vest"))
        rules.send(.listed([inHandsFree()], by: .soundServer))
        var changed = inHandsFree()
        changed.card?.activeProfile = "headset-head-unit-cvsd"
        rules.send(.listed([changed], by: .soundServer))
        rules.send(.released)
        rules.pass(.seconds(10))
        #expect(rules.profiles == ["7 headset-head-unit"])
    }

    @Test func `a microphone that does not appear in time is missing, with a reason`() {
        var rules = Rules()
        rules.send(.listed([inMusic()], by: .soundServer))
        rules.send(.pressed(accessory: "vest"))
        rules.pass(.milliseconds(2_400))
        #expect(rules.sound.microphone == .awaited)
        rules.pass(.milliseconds(200))
        #expect(rules.sound.microphone == .missing("the microphone of \(vest) did not appear in time"))
    }

    @Test func `a refused switch is told at once, and tried again with a later press`() {
        var rules = Rules()
        rules.send(.listed([inMusic()], by: .soundServer))
        rules.send(.pressed(accessory: "vest"))
        rules.send(.profileSet(card: 7, problem: "Input/Output error"), after: .milliseconds(50))
        #expect(
            rules.sound.microphone == .missing("the microphone of \(vest) cannot be used: Input/Output error"))
        #expect(rules.machine.summary(of: "vest") == "microphone away: Input/Output error")
        rules.send(.released)
        rules.pass(.seconds(10))
        #expect(rules.machine.nextDeadline == nil)
        let tried = rules.profiles.count
        rules.send(.pressed(accessory: "vest"))
        #expect(rules.profiles.count == tried + 1)
        #expect(rules.sound.microphone == .awaited)
    }

    @Test func `an accessory with sound that is away is missing, one without sound is not`() {
        var rules = Rules()
        rules.send(
            .accessories([
                WornAccessory(id: "vest", address: vest, hasSound: true),
                WornAccessory(id: "button", address: other, hasSound: false),
            ]))
        rules.send(.pressed(accessory: "vest"))
        #expect(
            rules.sound.microphone == .missing("the microphone of \(vest) is away: it is not connected as a headset"))
        rules.send(.pressed(accessory: "button"))
        #expect(rules.sound.microphone == .configured)
        #expect(rules.machine.summary(of: "vest") == "sound away: connect it as a headset")
        #expect(rules.machine.summary(of: "button") == nil)
    }

    @Test func `a microphone that goes away while it talks is missing at once`() {
        var rules = Rules()
        rules.send(.listed([blueALSA], by: .blueALSA))
        rules.send(.pressed(accessory: "vest"))
        rules.send(.listed([], by: .blueALSA))
        guard case .missing = rules.sound.microphone else {
            Issue.record("\(rules.sound)")
            return
        }
        #expect(rules.sound.speaker == nil)
    }

    @Test func `of two headsets the one that talked last is heard in, else the one that came last`() {
        var rules = Rules()
        rules.send(
            .accessories([
                WornAccessory(id: "vest", address: vest, hasSound: true),
                WornAccessory(id: "helmet", address: other, hasSound: true),
            ]))
        rules.send(.listed([blueALSA], by: .blueALSA))
        let helmet = HeadsetFacts(address: other, microphone: "m", speaker: "helmet")
        rules.send(.listed([blueALSA, helmet], by: .blueALSA))
        #expect(rules.sound.speaker == .alsa("helmet"))
        rules.send(.pressed(accessory: "vest"))
        rules.send(.released)
        #expect(rules.sound.speaker == .alsa("bluealsa:ear"))
        rules.send(.listed([helmet], by: .blueALSA))
        #expect(rules.sound.speaker == .alsa("helmet"))
    }

    @Test func `a headset that is nobody's accessory is left alone`() {
        var rules = Rules()
        rules.send(.listed([inMusic(other)], by: .soundServer))
        rules.send(.pressed(accessory: "vest"))
        #expect(rules.sound.speaker == nil)
        #expect(rules.profiles.isEmpty)
    }

    @Test func `a kept link is hands-free while a channel is joined`() {
        var rules = Rules(link: .kept)
        rules.send(.listed([inMusic()], by: .soundServer))
        #expect(rules.profiles.isEmpty)
        rules.send(.channelChanged(isJoined: true))
        #expect(rules.profiles == ["7 headset-head-unit"])
        #expect(rules.sound.keepsLink)
        rules.send(.listed([inHandsFree()], by: .soundServer))
        rules.pass(.seconds(60))
        #expect(rules.profiles.count == 1)
        rules.send(.channelChanged(isJoined: false))
        #expect(rules.profiles == ["7 headset-head-unit", "7 a2dp-sink"])
        #expect(!rules.sound.keepsLink)
    }

    @Test(arguments: [HeadsetsStateMachine.LinkUse.onPress, .kept])
    func `a headset whose microphone is not used keeps its music, and is heard in`(link: HeadsetsStateMachine.LinkUse) {
        var rules = Rules(link: link, usesMicrophone: false)
        rules.send(.listed([inMusic()], by: .soundServer))
        rules.send(.channelChanged(isJoined: true))
        rules.send(.pressed(accessory: "vest"))
        rules.send(.sessionChanged(isActive: true))
        #expect(rules.profiles.isEmpty)
        #expect(rules.sound.microphone == .configured)
        #expect(rules.sound.speaker == .alsa("pulse:DEVICE=music"))
    }

    @Test func `what is learned of a headset is kept, bounded, and used by its next press`() {
        var rules = Rules()
        rules.send(.listed([blueALSA], by: .blueALSA))
        rules.send(.pressed(accessory: "vest"))
        #expect(rules.sound.settling == nil)
        for span in [900, 300, 400, 500, 300, 300, 300, 300, 300] {
            rules.send(.heard(after: .milliseconds(span + 100), settledAfter: .milliseconds(span)))
        }
        // The oldest, of 900 ms, is forgotten.
        #expect(rules.sound.settling == .milliseconds(500))
        #expect(rules.learned?[vest]?.count == HeadsetsStateMachine.learnedMax)
        #expect(rules.machine.summary(of: "vest") == "microphone and speaker; heard 400 ms after the last press")
        rules.send(.pressed(accessory: "vest"))
        #expect(rules.machine.summary(of: "vest") == "microphone and speaker")
        var next = Rules(learned: rules.learned ?? [:])
        next.send(.listed([blueALSA], by: .blueALSA))
        next.send(.pressed(accessory: "vest"))
        #expect(next.sound.settling == .milliseconds(500))
    }

    @Test func `any order of events ends without a deadline that does not move`() {
        var generator = SystemRandomNumberGenerator()
        let seed = UInt64.random(in: 0...(.max), using: &generator)
        var random = seed
        func next(_ bound: UInt64) -> UInt64 {
            random = random &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return (random >> 33) % bound
        }
        for link in [HeadsetsStateMachine.LinkUse.onPress, .kept] {
            var rules = Rules(link: link)
            for _ in 0..<5_000 {
                let event: HeadsetsStateMachine.Event =
                    switch next(10) {
                    case 0: .listed([inMusic()], by: .soundServer)
                    case 1: .listed([inHandsFree()], by: .soundServer)
                    case 2: .listed([], by: .soundServer)
                    case 3: .listed(next(2) == 0 ? [] : [blueALSA], by: .blueALSA)
                    case 4: .pressed(accessory: next(3) == 0 ? "button" : "vest")
                    case 5: .released
                    case 6: .sessionChanged(isActive: next(2) == 0)
                    case 7: .channelChanged(isJoined: next(2) == 0)
                    case 8: .profileSet(card: 7, problem: next(2) == 0 ? nil : "refused")
                    default: .heard(after: .zero, settledAfter: .milliseconds(Int64(next(3_000))))
                    }
                rules.send(event)
                rules.pass(.milliseconds(Int64(next(2_000))))
            }
            rules.send(.released)
            rules.send(.channelChanged(isJoined: false))
            rules.send(.sessionChanged(isActive: false))
            rules.send(.listed([], by: .soundServer))
            rules.pass(.seconds(60))
            #expect(rules.machine.nextDeadline == nil, "seed \(seed)")
        }
    }
}

@Suite struct HeadsetAddressTests {
    @Test(arguments: [
        ("bluez_card.00_11_22_AA_bb_cC", "00:11:22:AA:BB:CC"), ("bluez_input.00:11:22:33:44:55", "00:11:22:33:44:55"),
        ("bluez_output.00_11_22_33_44_55.1", "00:11:22:33:44:55"), ("dev_00_11_22_33_44_55", "00:11:22:33:44:55"),
        ("00:11:22:33:44:55", "00:11:22:33:44:55"),
    ])
    func `an address is found in names`(text: String, address: String) {
        #expect(HeadsetAddress.find(in: text) == address)
    }

    @Test(arguments: [
        "", "alsa_output.pci-0000_00_1f.3", "00:11:22_33:44:55", "0_00_11_22_33_44", "a00_11_22_33_44_550",
    ])
    func `other text has none`(text: String) { #expect(HeadsetAddress.find(in: text) == nil) }
}
