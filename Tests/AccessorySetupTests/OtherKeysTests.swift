// Buttons with further keys: what they tell of those neither opens the microphone nor keeps it open.
import BlueZ
import MonotonicTime
import TestSupport
import Testing
import Vocabulary

@testable import Accessories
@testable import AccessorySetup

@Suite struct OtherKeysTests {
    private func controls(
        _ rule: DecodeRule, gesture: Gesture? = nil, isToggleOnly: Bool = false
    ) -> ControlsStateMachine {
        let learned = LearnedRule(source: .own, rule: rule, isToggleOnly: isToggleOnly, bounces: false)
        return ControlsStateMachine(
            AccessoryProfile(learned, id: "x", title: "X", device: nil, local: nil, date: "2026-11-23"),
            gesture: gesture)
    }

    private func value(_ pressed: UInt8, _ released: UInt8?, byte: Int = 0, size: Int = 1) -> DecodeRule {
        .value(
            .init(byte: byte, size: size, controls: [.init(control: .ptt, pressed: pressed, released: released)]))
    }

    /// Whether the microphone is open after each value.
    private func open(_ controls: ControlsStateMachine, _ values: [[UInt8]]) -> [Bool] {
        var controls = controls
        return values.enumerated().map { index, bytes in
            _ = controls.handle(.value(input: 0, bytes: bytes), at: .zero + .seconds(index))
            return controls.isActive
        }
    }

    // MARK: Decoding

    @Test("a second key pressed while the talk key is held does not keep the microphone open")
    func secondKey() {
        let rule = value(0x04, 0x00, byte: 1, size: 4)
        let isOpen = open(
            controls(rule), [[2, 0x04, 0x55, 0], [2, 0x14, 0x55, 0], [2, 0x10, 0x55, 0], [2, 0x00, 0x55, 0]])
        #expect(isOpen == [true, false, false, false])
    }

    @Test("a talk key that is still held when the second key comes up is held again")
    func secondKeyComesUp() {
        #expect(open(controls(value(0x04, 0x00)), [[0x04], [0x14], [0x04], [0x00]]) == [true, false, true, false])
    }

    @Test("a value of another length, or of a kind that is known to be another one, does not end a word")
    func otherMessages() {
        let rule = DecodeRule.value(
            .init(
                byte: 1, size: 3, controls: [.init(control: .ptt, pressed: 4, released: 0)],
                frame: .init(byte: 0, own: 2, others: [3])))
        let values: [[UInt8]] = [
            [3, 4, 0], [2, 4, 0], [3, 0, 0], [3, 85, 0], [85], [], [9, 4, 0], [9, 4, 0], [2, 0, 0],
        ]
        #expect(open(controls(rule), values) == [false, true, true, true, true, true, false, false, false])
    }

    @Test("other keys that tell each press and release on their own do not end a word")
    func otherEdges() {
        let rule = DecodeRule.value(
            .init(
                byte: 0, size: 1, controls: [.init(control: .ptt, pressed: 0x11, released: 0x91)],
                ignored: [0x12, 0x92]))
        #expect(
            open(controls(rule), [[0x12], [0x11], [0x12], [0x92], [0x91], [0x11], [0x77]])
                == [false, true, true, true, false, true, false])
    }

    @Test("with a bit for each key the talk key works whatever else is held, also where held is 0")
    func bits() {
        func rule(_ isActiveLow: Bool) -> DecodeRule {
            .bits(
                .init(
                    byte: 0, size: 1, ignored: 0x10, controls: [.init(control: .ptt, bit: 4)], isActiveLow: isActiveLow)
            )
        }
        let values: [[UInt8]] = [
            [0x10], [0x14], [0x04], [0x14], [0x10], [0x00], [0x04], [0x44], [0x40], [0x44], [0x04],
        ]
        let isOpen = [false, true, true, true, false, false, true, true, false, false, true]
        #expect(open(controls(rule(false)), values) == isOpen)
        #expect(open(controls(rule(true)), values.map { $0.map { ~$0 } }) == isOpen)
    }

    @Test("words that begin as the talk key's do and are none of them end a word; others do not")
    func words() {
        func rule(_ pressed: String, _ released: String) -> ControlsStateMachine {
            controls(
                .text(
                    .init(
                        controls: [.init(control: .ptt, pressed: [pressed], released: [released])], batteryPrefix: nil))
            )
        }
        func open(_ controls: ControlsStateMachine, _ texts: [String]) -> [Bool] {
            self.open(controls, texts.map { Array($0.utf8) })
        }
        #expect(
            open(rule("+PTT=P", "+PTT=R"), ["+PTT=P", "+PTTS=P", "+VGS=U", "+PTT=X"]) == [true, true, true, false])
        #expect(open(rule("PTT1", "PTT0"), ["PTT1", "PTTBAT55", "hum", "PTT7"]) == [true, true, true, false])
        // A longer number is another word, also when it comes in two parts.
        #expect(
            open(rule("K=1", "K=0"), ["K=16", "K=1", "K=1\n", "K=17", "K=1", "0"]) == [
                false, true, true, false, true, false,
            ])
        #expect(open(rule("D;", "U;"), ["D;", "DX", "U;"]) == [true, true, false])
    }

    @Test("what is not understood neither toggles nor presses again what toggles or what was pressed once")
    func toggles() {
        let toggle = controls(value(1, 0), isToggleOnly: true)
        #expect(open(toggle, [[1], [0x81], [1], [0], [1]]) == [true, true, true, true, false])
        let hybrid = controls(value(1, 0), gesture: .hybrid)
        #expect(open(hybrid, [[1], [0x81], [1], [0], [1], [0]]) == [true, false, false, false, true, false])
    }

    @Test("a control that was down before is not pressed by a value that is not understood and one that repeats it")
    func downBefore() {
        var controls = controls(value(1, 0))
        controls.assume(down: [.ptt])
        #expect(open(controls, [[1], [0x81], [1], [0], [1]]) == [false, false, false, false, true])
    }

    /// What a shipped input sends when the control is pressed, and rubbish in its place that does not say so.
    private func pressedAndRubbish(_ rule: DecodeRule, _ index: Int) -> (pressed: [UInt8], rubbish: [UInt8])? {
        func message(_ size: Int, _ frame: DecodeRule.Frame?, _ bytes: [UInt8], at place: Int) -> [UInt8] {
            var message = [UInt8](repeating: 0, count: size)
            if let frame { message[frame.byte] = frame.own }
            message.replaceSubrange(place..<place + bytes.count, with: bytes)
            return message
        }
        switch rule {
        case .value(let values):
            guard values.controls.indices.contains(index), values.controls[index].released != nil else { return nil }
            let pressed = message(values.size, values.frame, values.controls[index].pressed, at: values.byte)
            var rubbish = pressed
            rubbish[values.byte] ^= 0x5A
            return (pressed, rubbish)
        case .bits(let bits):
            guard bits.controls.indices.contains(index) else { return nil }
            let known = bits.controls.reduce(bits.ignored) { $0 | $1.bit }
            let up: UInt8 = bits.isActiveLow ? known & ~bits.ignored : 0
            let byte = up ^ bits.controls[index].bit
            return (
                message(bits.size, bits.frame, [byte], at: bits.byte),
                message(bits.size, bits.frame, [up ^ ~known], at: bits.byte)
            )
        case .text(let text):
            guard text.controls.indices.contains(index), !text.controls[index].released.isEmpty,
                let word = text.controls[index].pressed.first, word.utf8.count > 1, let last = word.utf8.last
            else { return nil }
            // A state that the words do not have, of the kind that they have.
            let known = Set(text.controls.flatMap { $0.pressed + $0.released }.compactMap(\.utf8.last))
            let states = Array(UInt8(ascii: "0")...UInt8(ascii: "9")).contains(last) ? "0123456789" : "QXYZVW"
            return states.utf8.first { !known.contains($0) }.map {
                (Array(word.utf8), Array(word.utf8.dropLast()) + [$0])
            }
        case .nonzero, .keys: return nil
        }
    }

    @Test("in every shipped profile rubbish in place of a held control's bytes ends it, or says that it is held")
    func shippedProfiles() {
        var tried: [String: Int] = [:]
        for profile in ProfileLibrary.load(directory: nil).library.profiles {
            for (input, rule) in profile.inputs.map(\.rule).enumerated() {
                for control in 0..<8 {
                    guard let (pressed, rubbish) = pressedAndRubbish(rule, control) else { continue }
                    var machine = ControlsStateMachine(profile)
                    _ = machine.handle(.value(input: input, bytes: pressed), at: .zero)
                    guard machine.isDown else {
                        Issue.record("\(profile.id): \(pressed) is no press")
                        continue
                    }
                    _ = machine.handle(.value(input: input, bytes: rubbish), at: .zero + .seconds(1))
                    let isDown = machine.isDown
                    #expect(!isDown, "\(profile.id): \(rubbish) keeps it down")
                    tried["\(rule)".prefix { $0 != "(" }.description, default: 0] += 1
                }
            }
        }
        #expect(tried.count == 3 && tried.values.allSatisfy { $0 >= 4 }, "\(tried)")
    }

    // MARK: Learning

    /// The two-key button with which the fault was found: 02, a mask, a level, 00.
    private var twoKeys: ButtonFamily {
        var family = ButtonFamily(code: .mask(bits: [0x04, 0x10], isActiveLow: false, isWide: false), source: .own)
        family.header = [0x02]
        family.hasBattery = true
        return family
    }

    @Test("a button with a side key is learned by its bit, so that each key counts for itself")
    func learnedByItsBit() {
        for seed in 0..<UInt64(20) {
            let result = FamilySimulation.run(twoKeys, SeededGenerator(seed: seed))
            #expect(
                result.rule?.rule
                    == .bits(.init(byte: 1, size: 3, ignored: 0x10, controls: [.init(control: .ptt, bit: 0x04)])))
            #expect(result.isSafe && result.works && result.together > 0 && result.togetherHeard == result.together)
            #expect(result.prompts.contains { $0.hasPrefix("Now press every other key once") })
        }
    }

    @Test("whoever presses the talk key among the others is asked once more, and then told")
    func talkKeyAmongOthers() {
        let once = FamilySimulation.run(twoKeys, SeededGenerator(seed: 1), mistakes: 1)
        #expect(once.works && once.prompts.contains { $0.hasPrefix("That looked like the talk button") })
        let again = FamilySimulation.run(twoKeys, SeededGenerator(seed: 1), mistakes: 2)
        #expect(again.rule == nil && again.failure?.hasPrefix("another key tells the same") == true)
    }

    @Test("a button whose other key tells the same is refused")
    func sameCode() {
        let family = ButtonFamily(code: .latest(codes: [5, 5], idle: 0), source: .own)
        let result = FamilySimulation.run(family, SeededGenerator(seed: 1))
        #expect(result.rule == nil && result.failure?.hasPrefix("another key tells the same") == true)
    }

    @Test("a button that tells something else at every press cannot be held, and what nobody can read is refused")
    func unlearnable() {
        for seed in 0..<UInt64(60) {
            let latching = ButtonFamily(code: .latching(1, 0), source: .own)
            let result = FamilySimulation.run(latching, SeededGenerator(seed: seed))
            #expect(result.rule?.isToggleOnly != false, "\(result)")
            let encrypted = ButtonFamily(code: .encrypted(1 + Int(seed % 8)), source: .own)
            let other = FamilySimulation.run(encrypted, SeededGenerator(seed: seed))
            #expect(other.rule == nil && other.failure != nil, "\(other)")
        }
    }

    @Test("a person who has no other key, or has pressed them all, need not wait")
    func proceed() throws {
        var machine = LearningStateMachine(at: .zero)
        var now = Instant.zero
        func tell(_ byte: UInt8) {
            let observation = LearningObservation(source: .own, content: .bytes([byte]), time: now)
            _ = machine.handle(.observed(observation), at: now)
        }
        var actions = machine.handle(.listening, at: now)
        while machine.report.step != .others {
            #expect(machine.handle(.proceed, at: now).isEmpty)
            now = try #require(machine.nextDeadline)
            if machine.report.step == .press { tell(1) }
            if machine.report.step == .release { tell(0) }
            now = try #require(machine.nextDeadline)
            actions = machine.handle(.deadline, at: now)
            if actions.isEmpty { break }
        }
        #expect(machine.report.step == .others)
        guard case .learned(let rule)? = machine.handle(.proceed, at: now).first else {
            Issue.record("not learned")
            return
        }
        #expect(rule.rule == value(1, 0) && machine.isOver)
    }
}
