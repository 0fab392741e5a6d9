// Learning a button: what is asked, what is inferred, and that what was learned works.
import BlueZ
import MonotonicTime
import TestSupport
import Testing
import Vocabulary

@testable import Accessories
@testable import AccessorySetup

@Suite struct LearningTests {
    private func learn(
        _ button: SimulatedButton, _ chatter: [Chatter] = [], early: Set<Int> = [], lazy: Set<Int> = [],
        _ test: String = #function
    ) -> LearningOutcome {
        var random = SeededGenerator(test)
        return LearningSimulation(button: button, chatter: chatter, earlyRounds: early, lazyRounds: lazy)
            .run(using: &random)
    }

    private func value(_ pressed: UInt8, _ released: UInt8?) -> DecodeRule {
        .value(.init(byte: 0, size: 1, controls: [.init(control: .ptt, pressed: pressed, released: released)]))
    }

    @Test func aPlainButtonIsLearnedInTwoRounds() {
        let outcome = learn(SimulatedButton(.own, press: 1, release: 0))
        #expect(
            outcome.rule
                == LearnedRule(source: .own, rule: value(1, 0), isToggleOnly: false, bounces: false, repeats: false))
        #expect(outcome.rounds == 2)
        #expect(
            outcome.prompts.prefix(3) == [
                "Touch nothing for a moment.", "Press the button, and keep it pressed.", "Let go.",
            ])
    }

    @Test func aHeartbeatWhileHeldIsNoRelease() {
        var button = SimulatedButton(.own, press: 0x01, release: 0x00)
        button.heartbeat = [.bytes([0x81]), .bytes([0x01])]
        let outcome = learn(button)
        #expect(
            outcome.rule?.rule
                == .bits(.init(byte: 0, size: 1, ignored: 0x80, controls: [.init(control: .ptt, bit: 1)])))
    }

    @Test func aValueThatBecomesAnotherWhileHeldIsHeldAllTheSame() {
        var button = SimulatedButton(.own, press: 1, release: 0)
        button.heartbeat = [.bytes([2])]
        #expect(learn(button).rule?.rule == .nonzero(.init(byte: 0, size: 1, control: .ptt)))
    }

    @Test func aCounterBesideTheButtonIsNoButton() {
        let counter = Chatter(source: .other, pause: .milliseconds(130)) { [UInt8(truncatingIfNeeded: $0)] }
        let outcome = learn(SimulatedButton(.own, press: 1, release: 0), [counter])
        #expect(outcome.rule?.rule == value(1, 0) && outcome.rule?.source == .own)
    }

    @Test func aCounterThatCountsTheEdgesIsNoButton() {
        // It steps at each press and release: every other value looks like a button's bit.
        var button = SimulatedButton(.own, press: 1, release: 0)
        button.source = .own
        var inference = RuleInference()
        var count: UInt8 = 0
        for round in 0..<3 {
            let start = Instant(nanoseconds: Int64(round) * 10_000_000_000)
            func edge(_ time: Instant) -> LearningObservation {
                count += 1
                return LearningObservation(source: .other, content: .bytes([count]), time: time)
            }
            inference.rounds.append(
                LearningRound(
                    pressAsked: start, releaseAsked: start + .seconds(3),
                    observations: [edge(start + .seconds(1)), edge(start + .milliseconds(3_400))]))
        }
        guard case .unclear = inference.verdict() else {
            Issue.record("learned a counter: \(inference.verdict())")
            return
        }
    }

    @Test func theButtonsByteIsFoundAmongOthersThatCount() {
        var button = SimulatedButton(.own, press: 0, release: 0)
        button.press = [.bytes([0x10, 7, 1])]
        button.heartbeat = [.bytes([0x10, 8, 1]), .bytes([0x10, 9, 1])]
        button.release = [.bytes([0x10, 10, 0])]
        #expect(
            learn(button).rule?.rule
                == .value(.init(byte: 2, size: 3, controls: [.init(control: .ptt, pressed: 1, released: 0)])))
    }

    @Test func aMirrorIsNotTakenTwice() {
        var button = SimulatedButton(.shared, press: 1, release: 0)
        button.mirror = .own
        let outcome = learn(button)
        #expect(outcome.rule?.source == .own)
        #expect(outcome.rounds == 3)
        #expect(outcome.prompts.contains { $0.hasPrefix("More than one thing changed") })
    }

    @Test func wordsAreLearned() {
        let button = SimulatedButton(.shared, press: "ELET1", release: "ELET2")
        let battery = Chatter(source: .shared, pause: .seconds(4)) { _ in Array("BATT".utf8) + [64] }
        // In some of them the battery tells its level between the question and the press.
        var seeds = SeededGenerator()
        for _ in 0..<200 {
            var random = SeededGenerator(seed: seeds.next())
            let outcome = LearningSimulation(button: button, chatter: [battery]).run(using: &random)
            #expect(
                outcome.rule?.rule
                    == .text(
                        .init(
                            controls: [.init(control: .ptt, pressed: ["ELET1"], released: ["ELET2"])],
                            batteryPrefix: "BATT", ignored: [])))
        }
    }

    @Test func wordsOfAStreamAreLearnedWhereverTheyAreCut() {
        var button = SimulatedButton(.stream(.serialPort), press: "+PTT=P", release: "+PTT=R")
        button.press = [.bytes(Array("+PT".utf8)), .bytes(Array("T=P\0".utf8))]
        #expect(
            learn(button).rule?.rule
                == .text(
                    .init(
                        controls: [.init(control: .ptt, pressed: ["+PTT=P"], released: ["+PTT=R"])], batteryPrefix: nil,
                        ignored: [])))
    }

    @Test func aWordThatIsRepeatedWhileHeldIsOneWord() {
        var button = SimulatedButton(.stream(.serialPort), press: "D;", release: "U;")
        button.heartbeat = [.bytes(Array("D;".utf8))]
        guard case .text(let rule)? = learn(button).rule?.rule else {
            Issue.record("no words")
            return
        }
        #expect(rule.controls == [.init(control: .ptt, pressed: ["D;"], released: ["U;"])])
    }

    @Test func aNumberBehindAWordIsNoPartOfIt() {
        var inference = RuleInference()
        for round in 0..<3 {
            let start = Instant(nanoseconds: Int64(round) * 10_000_000_000)
            func say(_ text: String, _ time: Instant) -> LearningObservation {
                LearningObservation(source: .stream(.serialPort), content: .bytes(Array(text.utf8)), time: time)
            }
            inference.rounds.append(
                LearningRound(
                    pressAsked: start, releaseAsked: start + .seconds(3),
                    observations: [
                        say("DOWN000\(round * 2)\n", start + .seconds(1)),
                        say("UP000\(round * 2 + 1)\n", start + .milliseconds(3_400)),
                    ]))
        }
        guard case .learned(let learned) = inference.verdict(), case .text(let rule) = learned.rule else {
            Issue.record("\(inference.verdict())")
            return
        }
        #expect(rule.controls == [.init(control: .ptt, pressed: ["DOWN"], released: ["UP"])])
    }

    @Test func aKeyIsLearned() {
        let source = LearningSource.keys(LocalDeviceID("/dev/input/event7"))
        var button = SimulatedButton(source, press: 0, release: 0)
        button.press = [.key(code: 183, isDown: true)]
        button.release = [.key(code: 183, isDown: false)]
        #expect(learn(button).rule?.rule == .keys(.init(controls: [.init(control: .ptt, codes: [183])])))
    }

    @Test func aKeyThatComesUpAtOnceCanOnlyToggle() {
        let source = LearningSource.keys(.mediaPlayer)
        var button = SimulatedButton(source, press: 0, release: nil)
        button.press = [.key(code: 200, isDown: true), .key(code: 200, isDown: false)]
        let outcome = learn(button)
        #expect(outcome.rule?.isToggleOnly == true)
        #expect(outcome.rounds == 3)
        #expect(outcome.prompts.contains { $0.hasPrefix("No release was seen") })
    }

    @Test func clicksWithoutAReleaseCanOnlyToggle() {
        let outcome = learn(SimulatedButton(.shared, press: 1, release: nil))
        #expect(outcome.rule == LearnedRule(source: .shared, rule: value(1, nil), isToggleOnly: true, bounces: false))
    }

    @Test func aBouncingContactIsNoticed() {
        var button = SimulatedButton(.own, press: 1, release: 0)
        button.bounces = true
        #expect(learn(button).rule?.bounces == true)
    }

    @Test func whoLetsGoTooEarlyIsAskedAgain() {
        let outcome = learn(SimulatedButton(.own, press: 1, release: 0), early: [1])
        #expect(outcome.rule?.rule == value(1, 0) && outcome.rule?.isToggleOnly == false)
        #expect(outcome.prompts.contains { $0.hasPrefix("It came up too early") })
    }

    @Test func whoDoesNothingIsAskedOnceMoreAndThenTold() {
        let once = learn(SimulatedButton(.own, press: 1, release: 0), lazy: [1])
        #expect(once.rule?.rule == value(1, 0))
        #expect(once.prompts.contains { $0.hasPrefix("Nothing came") })
        let never = learn(SimulatedButton(.own, press: 1, release: 0), lazy: [1, 2, 3, 4, 5])
        #expect(never.rule == nil && never.failure?.hasPrefix("nothing came from the button") == true)
        #expect(never.rounds == 2)
    }

    @Test func aKeepAliveThatLooksLikeTheReleaseMakesTheSessionAskMoreOften() {
        let idle = Chatter(source: .own, pause: .milliseconds(900)) { _ in [0] }
        // It is silent while held: then the release is the button's own.
        var button = SimulatedButton(.own, press: 1, release: 0)
        button.heartbeat = []
        let clicking = learn(SimulatedButton(.own, press: 1, release: nil), [idle])
        #expect(clicking.rule?.isToggleOnly != false, "a click whose end only the keep-alive tells must not be held")
    }

    @Test func aFloodIsLeftOut() {
        let flood = Chatter(source: .other, pause: .milliseconds(1)) { [UInt8(truncatingIfNeeded: $0 &* 7), 1, 2] }
        let outcome = learn(SimulatedButton(.own, press: 1, release: 0), [flood])
        #expect(outcome.rule?.rule == value(1, 0))
    }

    /// Any byte of its long values may tell the kind of a message, or the press: each pair of them is a rule.
    @Test func aSourceThatSuggestsThousandsOfRulesIsNotTriedOnAllOfThem() {
        let size = 32
        var quiet: [LearningObservation] = []
        var rounds: [LearningRound] = []
        func tell(_ place: Int?, _ time: Instant) -> LearningObservation {
            var bytes = [UInt8](repeating: 0, count: size)
            if let place { bytes[place] = 1 }
            return LearningObservation(source: .other, content: .bytes(bytes), time: time)
        }
        quiet.append(tell(nil, .zero))
        for round in 1...2 {
            let start = Instant.zero + .seconds(10 * round)
            let pressed = (0...size).map { tell($0 < size ? $0 : nil, start + .milliseconds(20 * $0)) }
            rounds.append(
                LearningRound(
                    pressAsked: start, releaseAsked: start + .seconds(3),
                    observations: pressed + [tell(nil, start + .milliseconds(3_400))]))
        }
        let inference = RuleInference(quiet: quiet, rounds: rounds)
        let values = SeenValues(.other, size: size, quiet: quiet, rounds: rounds, others: [])
        #expect(values.kinds.count == SeenValues.framesMax)
        let trials = 100_000
        let messages = (quiet + rounds.flatMap(\.observations)).reduce(0) { $0 + $1.shortMessages }
        let candidates = inference.candidates(of: .other, trialsMax: trials)
        #expect(!candidates.isEmpty && candidates.count * messages <= trials)
        // The button beside it is found all the same.
        var beside = inference
        for index in beside.rounds.indices {
            let round = beside.rounds[index]
            beside.rounds[index].observations += [
                LearningObservation(source: .own, content: .bytes([1]), time: round.pressAsked + .seconds(1)),
                LearningObservation(source: .own, content: .bytes([0]), time: round.releaseAsked + .milliseconds(300)),
            ]
        }
        guard case .learned(let learned) = beside.verdict() else {
            Issue.record("\(beside.verdict())")
            return
        }
        #expect(learned.source == .own && learned.rule == value(1, 0))
    }

    /// One bit or other of it is set in each press and clear after it, in two or three rounds, every other time.
    @Test func aClickBesideSlowNoiseIsNotTakenForAHold() throws {
        var random = SeededGenerator()
        for index in 0..<20 {
            var values = random
            let pause = Duration.milliseconds(Int.random(in: 700...2_000, using: &random))
            let noise = Chatter(source: .other, pause: pause) { _ in
                values.bytes(Int.random(in: 1...4, using: &values))
            }
            let outcome = LearningSimulation(button: SimulatedButton(.shared, press: 1, release: nil), chatter: [noise])
                .run(using: &random)
            let rule = try #require(outcome.rule, "\(index): \(outcome.failure ?? "")")
            #expect(rule.source == .shared && rule.isToggleOnly, "\(index)")
        }
    }

    /// A button's bit in a value whose other bytes come and go all the time.
    @Test func aButtonInAValueThatNeverRestsIsLearned() {
        var random = SeededGenerator()
        for index in 0..<20 {
            var values = SeededGenerator(seed: random.next())
            var isDown = false
            var inference = RuleInference()
            func tell(_ time: Instant) -> LearningObservation {
                LearningObservation(
                    source: .own, content: .bytes(values.bytes(3) + [isDown ? 1 : 0]), time: time)
            }
            inference.quiet = (0..<30).map { tell(.zero + .milliseconds(100 * $0)) }
            var verdict = inference.verdict()
            for round in 1...5 {
                let start = Instant.zero + .seconds(10 * round)
                let observations = (0..<40).map { tick in
                    isDown = (10..<34).contains(tick)
                    return tell(start + .milliseconds(100 * tick))
                }
                inference.rounds.append(
                    LearningRound(pressAsked: start, releaseAsked: start + .seconds(3), observations: observations))
                verdict = inference.verdict()
                if case .learned = verdict { break }
            }
            guard case .learned(let learned) = verdict else {
                Issue.record("\(index): \(verdict)")
                continue
            }
            #expect(!learned.isToggleOnly)
            var decoder = InputDecoder(learned.rule)
            #expect(
                decoder.decode([1, 2, 3, 1]) { _ in false } == .controls([ControlState(control: .ptt, isDown: true)]))
        }
    }

    @Test func rubbishTeachesNothing() {
        var random = SeededGenerator()
        for _ in 0..<40 {
            var values = random
            let sizes = Int.random(in: 1...6, using: &random)
            let rubbish = Chatter(source: .own, pause: .milliseconds(Int.random(in: 40...700, using: &random))) { _ in
                values.bytes(sizes)
            }
            let button = SimulatedButton(.other, press: 0, release: nil)
            let outcome = LearningSimulation(button: button, chatter: [rubbish], lazyRounds: [1, 2, 3, 4, 5])
                .run(using: &random)
            #expect(outcome.rule == nil && outcome.failure != nil)
        }
    }

    @Test func aDeviceThatIsLostMeanwhileIsWaitedForAndThenGivenUp() {
        var machine = LearningStateMachine(at: .zero)
        _ = machine.handle(.listening, at: .zero + .seconds(1))
        guard case .progress(let progress)? = machine.handle(.lost, at: .zero + .seconds(2)).first else {
            Issue.record("nothing told")
            return
        }
        #expect(progress.step == .connecting)
        #expect(machine.handle(.listening, at: .zero + .seconds(5)).count == 1)
        _ = machine.handle(.lost, at: .zero + .seconds(6))
        let end = machine.nextDeadline ?? .zero
        guard case .failed? = machine.handle(.deadline, at: end).first else {
            Issue.record("not given up")
            return
        }
        #expect(machine.isOver && machine.nextDeadline == nil)
    }
}

/// Every kind of button, learned and then used.
@Suite struct LearnedButtonTests {
    private static let profiles = ProfileLibrary.load(directory: nil).library.profiles.filter {
        $0.refusal == nil && $0.controls.contains(.ptt)
    }

    private func source(_ profile: AccessoryProfile) -> LearningSource {
        switch profile.transport {
        case .gatt:
            let input = profile.inputs.first { $0.rule.controls.contains(.ptt) }
            return .characteristic(service: input?.service ?? "ffe0", input?.characteristic ?? "ffe1")
        case .spp: return .stream(.serialPort)
        case .handsFree: return .stream(.handsFree)
        case .input: return .keys(LocalDeviceID("/dev/input/event3"))
        case .serial: return .serial(LocalDeviceID("/dev/ttyUSB0"))
        }
    }

    private func noise(_ random: inout SeededGenerator) -> [Chatter] {
        var chatter: [Chatter] = []
        if random.chance(50) {
            let step = UInt8.random(in: 1...3, using: &random)
            chatter.append(
                Chatter(source: .other, pause: .milliseconds(Int.random(in: 30...900, using: &random))) {
                    [UInt8(truncatingIfNeeded: $0) &* step]
                })
        }
        if random.chance(30) {
            var values = random
            chatter.append(
                Chatter(
                    source: .characteristic(service: "1815", "2a56"),
                    pause: .milliseconds(Int.random(in: 20...2_000, using: &random))
                ) { _ in values.bytes(Int.random(in: 1...4, using: &values)) })
        }
        if random.chance(30) {
            chatter.append(
                Chatter(source: .characteristic(service: "180f", "2a19"), pause: .seconds(2)) { [UInt8(90 - $0 % 20)] })
        }
        return chatter
    }

    @Test func everyPressBeginsAndEveryReleaseEnds() throws {
        var random = SeededGenerator()
        try #require(Self.profiles.count >= 5)
        for profile in Self.profiles {
            let source = source(profile)
            guard var button = SimulatedButton(profile, source: source) else { continue }
            let canHold = !profile.toggleOnly.contains(.ptt) || !button.release.isEmpty
            if case .characteristic = source, random.chance(30) { button.mirror = .shared }
            for _ in 0..<6 {
                let outcome = LearningSimulation(button: button, chatter: noise(&random)).run(using: &random)
                let rule = try #require(outcome.rule, "\(profile.id): \(outcome.failure ?? "")")
                #expect(rule.isToggleOnly != canHold, "\(profile.id)")
                let local = LocalDeviceFacts(
                    id: LocalDeviceID("/dev/input/event3"), name: "Some button", address: nil,
                    device: InputDeviceID(vendor: 0x1234, product: 0xABCD), accessoryName: nil, profileID: nil,
                    properties: [:], keys: [], isSerialPort: profile.transport == .serial)
                let isLocal = profile.transport == .input || profile.transport == .serial
                let learned = AccessoryProfile(
                    rule, id: "learned", title: "Learned", device: nil, local: isLocal ? local : nil, date: "2026-11-21"
                )
                // What is written is what was learned.
                #expect(try AccessoryProfile(bytes: Array(learned.text.utf8), file: "learned") == learned)
                use(learned, button, canHold: canHold, using: &random)
            }
        }
    }

    private func use(
        _ profile: AccessoryProfile, _ button: SimulatedButton, canHold: Bool, using random: inout SeededGenerator
    ) {
        var controls = ControlsStateMachine(profile)
        var now = Instant(nanoseconds: 1)
        var events: [ControlsStateMachine.Action] = []
        func tell(_ contents: [LearningObservation.Content]) {
            for content in contents {
                switch content {
                case .bytes(let bytes): events += controls.handle(.value(input: 0, bytes: bytes), at: now)
                case .key(let code, let isDown): events += controls.handle(.key(code: code, isDown: isDown), at: now)
                }
            }
        }
        for press in 0..<40 {
            events = []
            tell(button.press)
            for _ in 0..<Int.random(in: 0...3, using: &random) { tell(button.heartbeat) }
            now = now + .milliseconds(700)
            let begins = events.count { $0 == .begin(.ptt) }
            let ends = events.count { $0 == .end(.ptt) }
            if canHold {
                #expect(begins == 1 && ends == 0, "\(profile.text)")
            } else {
                #expect(begins == (press % 2 == 0 ? 1 : 0) && ends == press % 2, "\(profile.text)")
            }
            tell(button.release)
            now = now + .milliseconds(700)
            events += controls.handle(.deadline, at: now)
            if canHold { #expect(events.count { $0 == .end(.ptt) } == 1, "\(profile.text)") }
        }
        #expect(!controls.isActive)
    }
}
