// Whatever comes in: rubbish in files is refused, rubbish from devices is nothing, and after the loss of the link nothing is held.
import MonotonicTime
import Settings
import TestSupport
import Testing
import Vocabulary

@testable import Accessories

@Suite struct ProfileFuzzTests {
    /// Runs events through a profile and checks that every edge and every begin has its counterpart.
    private struct Checked {
        var machine: ControlsStateMachine
        var down: Set<Control> = []
        var active: Set<Control> = []
        var downs: [Control: Int] = [:]
        var alerts: Set<Control> = []
        var begins = 0
        var isConsistent = true

        init(_ profile: AccessoryProfile, gesture: Gesture? = nil) {
            machine = ControlsStateMachine(profile, gesture: gesture)
        }

        mutating func handle(_ event: ControlsStateMachine.Event, at now: Instant) {
            for action in machine.handle(event, at: now) {
                switch action {
                case .control(let control, isDown: true):
                    isConsistent = down.insert(control).inserted && isConsistent
                    downs[control, default: 0] += 1
                case .control(let control, isDown: false): isConsistent = down.remove(control) != nil && isConsistent
                case .begin(let control):
                    isConsistent = active.insert(control).inserted && isConsistent
                    begins += 1
                case .end(let control): isConsistent = active.remove(control) != nil && isConsistent
                case .emergency(let control, isActive: true):
                    isConsistent = alerts.insert(control).inserted && isConsistent
                case .emergency(let control, isActive: false):
                    isConsistent = alerts.remove(control) != nil && isConsistent
                case .battery(let level): isConsistent = (0...100).contains(level) && isConsistent
                case .fire, .ignored: break
                }
            }
        }
    }

    /// What an input would send, in pieces, and rubbish.
    private func message(_ input: AccessoryProfile.Input, _ random: inout SeededGenerator) -> [UInt8] {
        let rubbish = random.bytes(Int.random(in: 0...24, using: &random))
        guard random.chance(80) else { return rubbish }
        switch input.rule {
        case .text(let rule):
            let words = rule.controls.flatMap { $0.pressed + $0.released } + (rule.batteryPrefix.map { [$0] } ?? [])
            var bytes: [UInt8] = []
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                let word = Array(words.randomElement(using: &random)!.utf8)
                bytes += random.chance(70) ? word : Array(word.prefix(Int.random(in: 0...word.count, using: &random)))
                if random.chance(20) { bytes += rubbish.prefix(3) }
            }
            return bytes
        case .value(let rule):
            var bytes = random.bytes(rule.size)
            let control = rule.controls.randomElement(using: &random)!
            let code = random.chance(50) ? control.pressed : control.released ?? control.pressed
            bytes.replaceSubrange(rule.byte..<rule.byte + code.count, with: code)
            return bytes
        case .bits(let rule): return random.bytes(rule.size)
        case .nonzero(let rule):
            return random.chance(50) ? [UInt8](repeating: 0, count: rule.size) : random.bytes(rule.size)
        case .keys: return rubbish
        }
    }

    private func event(_ profile: AccessoryProfile, _ random: inout SeededGenerator) -> ControlsStateMachine.Event {
        switch Int.random(in: 0..<100, using: &random) {
        case 0: return .lost
        case 1: return .endedBySystem
        case 2: return .deadline
        case 3: return .value(input: Int.random(in: -2...9, using: &random), bytes: random.bytes(3))
        default: break
        }
        guard let index = profile.inputs.indices.randomElement(using: &random) else { return .deadline }
        let input = profile.inputs[index]
        if case .keys(let rule) = input.rule, random.chance(95) {
            let known = rule.controls.flatMap(\.codes).randomElement(using: &random)!
            return .key(
                code: random.chance(80) ? known : UInt16.random(in: 0...UInt16.max, using: &random),
                isDown: random.chance(50))
        }
        let bytes = message(input, &random)
        return random.chance(5) ? .staleValue(input: index, bytes: bytes) : .value(input: index, bytes: bytes)
    }

    private func fuzz(_ profile: AccessoryProfile, _ random: inout SeededGenerator, count: Int) {
        var checked = Checked(profile, gesture: [nil, .hold, .toggle, .hybrid].randomElement(using: &random)!)
        var now = Instant.zero
        for _ in 0..<count {
            now = now + .milliseconds(Int.random(in: 0...50, using: &random))
            let event = event(profile, &random)
            checked.handle(event, at: now)
            if case .lost = event {
                #expect(checked.down.isEmpty && checked.active.isEmpty && checked.alerts.isEmpty)
                #expect(!checked.machine.isActive && !checked.machine.isDown)
                #expect(checked.machine.nextDeadline == nil)
            }
        }
        checked.handle(.lost, at: now)
        #expect(checked.isConsistent && checked.down.isEmpty && checked.active.isEmpty, "\(profile.id)")
        #expect(checked.alerts.isEmpty, "\(profile.id)")
    }

    @Test func nothingThatComesIntoAShippedProfileLeavesAnythingHeld() {
        var random = SeededGenerator()
        for profile in ProfileLibrary.load(directory: nil).library.profiles { fuzz(profile, &random, count: 1_500) }
    }

    @Test func nothingThatComesIntoAnyProfileLeavesAnythingHeld() {
        var random = SeededGenerator()
        for _ in 0..<60 { fuzz(.random(&random), &random, count: 400) }
    }

    /// What presses and releases a control of a profile.
    private func edges(_ profile: AccessoryProfile, _ control: Control) -> (
        press: ControlsStateMachine.Event, release: ControlsStateMachine.Event?
    ) {
        let input = profile.inputs.firstIndex { $0.rule.controls.contains(control) }!
        func value(_ size: Int, _ byte: Int, _ code: [UInt8]) -> ControlsStateMachine.Event {
            var bytes = [UInt8](repeating: 0, count: size)
            bytes.replaceSubrange(byte..<byte + code.count, with: code)
            return .value(input: input, bytes: bytes)
        }
        switch profile.inputs[input].rule {
        case .value(let rule):
            let own = rule.controls.first { $0.control == control }!
            return (value(rule.size, rule.byte, own.pressed), own.released.map { value(rule.size, rule.byte, $0) })
        case .bits(let rule):
            return (
                value(rule.size, rule.byte, [rule.controls.first { $0.control == control }!.bit]),
                value(rule.size, rule.byte, [0])
            )
        case .nonzero(let rule): return (value(rule.size, rule.byte, [2]), value(rule.size, rule.byte, [0]))
        case .text(let rule):
            let own = rule.controls.first { $0.control == control }!
            return (
                .value(input: input, bytes: Array(own.pressed[0].utf8)),
                own.released.first.map { .value(input: input, bytes: Array($0.utf8)) }
            )
        case .keys(let rule):
            let code = rule.controls.first { $0.control == control }!.codes[0]
            return (.key(code: code, isDown: true), .key(code: code, isDown: false))
        }
    }

    @Test func aThousandNotificationsASecondAreThePressesTheySay() {
        for profile in ProfileLibrary.load(directory: nil).library.profiles {
            for control in profile.controls {
                let (press, release) = edges(profile, control)
                var checked = Checked(profile)
                for time in 0..<1_000 { checked.handle(press, at: .zero + .milliseconds(time)) }
                // A click is a press each time; what is held is held once.
                #expect(checked.downs[control] == (release == nil ? 1_000 : 1), "\(profile.id) \(control)")
                guard let release else { continue }
                for time in 1_000..<1_100 { checked.handle(release, at: .zero + .milliseconds(time)) }
                #expect(checked.down.isEmpty && checked.downs[control] == 1, "\(profile.id) \(control)")
                for time in 2_000..<2_400 {
                    checked.handle(time.isMultiple(of: 2) ? press : release, at: .zero + .milliseconds(time))
                }
                #expect(checked.down.isEmpty && checked.downs[control] == 201, "\(profile.id) \(control)")
                if profile.gestures[control] == .hold { #expect(checked.active.isEmpty && checked.begins == 201) }
                checked.handle(.lost, at: .zero + .seconds(4))
                #expect(checked.isConsistent && checked.active.isEmpty)
            }
        }
    }

    @Test func theBeginningOfAWordIsAllThatIsKept() {
        var random = SeededGenerator()
        for profile in ProfileLibrary.load(directory: nil).library.profiles {
            for input in profile.inputs {
                guard case .text(let rule) = input.rule else { continue }
                let longest = rule.controls.flatMap { $0.pressed + $0.released }.map(\.utf8.count).max()!
                var decoder = TextDecoder(rule)
                for _ in 0..<150 {
                    _ = decoder.decode(message(input, &random))
                    #expect(decoder.pendingCount < longest)
                }
                // Far more than a link gives at once; its last word counts.
                let flood = random.bytes(1 << 14) + Array(rule.controls[0].pressed[0].utf8)
                #expect(
                    decoder.decode(flood).states.last
                        == ControlState(control: rule.controls[0].control, isDown: !rule.controls[0].released.isEmpty))
                #expect(decoder.pendingCount == 0)
            }
        }
    }

    @Test func noFileConfusesTheReader() {
        var random = SeededGenerator()
        let files = ProfileLibrary.shippedFiles.map(\.bytes)
        var refused = 0
        for _ in 0..<1_500 {
            var bytes = files.randomElement(using: &random)!
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                let at = Int.random(in: 0..<bytes.count, using: &random)
                switch Int.random(in: 0...4, using: &random) {
                case 0: bytes[at] = UInt8.random(in: 0...255, using: &random)
                case 1: bytes.removeSubrange(at..<min(bytes.count, at + Int.random(in: 1...40, using: &random)))
                case 2: bytes.insert(contentsOf: random.bytes(3), at: at)
                case 3:
                    // A line of another place, or of another file.
                    let lines = files.randomElement(using: &random)!.split(separator: 10)
                    bytes.insert(contentsOf: [10] + lines.randomElement(using: &random)! + [10], at: at)
                default: bytes.swapAt(at, Int.random(in: 0..<bytes.count, using: &random))
                }
                if bytes.isEmpty { bytes = [0] }
            }
            do {
                let profile = try AccessoryProfile(bytes: bytes, file: "x")
                fuzz(profile, &random, count: 20)
                #expect((try? AccessoryProfile(bytes: Array(profile.text.utf8), file: "x")) == profile)
            } catch {
                refused += 1
                #expect(error.problems.allSatisfy { $0.position != nil || !$0.message.isEmpty })
            }
        }
        #expect(refused > 300)
    }
}
