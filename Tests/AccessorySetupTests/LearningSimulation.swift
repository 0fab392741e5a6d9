// A button, what chatters beside it, and a person who does what the session asks, in a time of their own.
import BlueZ
import MonotonicTime
import TestSupport
import Vocabulary

@testable import Accessories
@testable import AccessorySetup

/// A button: what it tells when it is pressed, while it is held, and when it is let go.
struct SimulatedButton {
    var source: LearningSource
    var press: [LearningObservation.Content]
    var release: [LearningObservation.Content]
    /// Told again and again while it is held, in turn.
    var heartbeat: [LearningObservation.Content] = []
    var heartbeatPause = Duration.milliseconds(500)
    /// Its contact bounces.
    var bounces = false
    /// Another characteristic that tells the same.
    var mirror: LearningSource?

    /// The talk control of a profile.
    init?(_ profile: AccessoryProfile, source: LearningSource) {
        self.source = source
        guard let rule = profile.inputs.first(where: { $0.rule.controls.contains(.ptt) })?.rule else { return nil }
        (press, release) = ([], [])
        switch rule {
        case .value(let rule):
            guard let control = rule.controls.first(where: { $0.control == .ptt }) else { return nil }
            func value(_ code: [UInt8]) -> LearningObservation.Content {
                var bytes = [UInt8](repeating: 0, count: rule.size)
                bytes.replaceSubrange(rule.byte..<(rule.byte + code.count), with: code)
                return .bytes(bytes)
            }
            press = [value(control.pressed)]
            release = control.released.map { [value($0)] } ?? []
        case .bits(let rule):
            guard let control = rule.controls.first(where: { $0.control == .ptt }) else { return nil }
            func value(_ byte: UInt8) -> LearningObservation.Content {
                var bytes = [UInt8](repeating: 0, count: rule.size)
                bytes[rule.byte] = byte
                return .bytes(bytes)
            }
            press = [value(control.bit)]
            release = [value(0)]
            if rule.ignored != 0 { heartbeat = [value(control.bit | rule.ignored), value(control.bit)] }
        case .nonzero(let rule):
            func value(_ byte: UInt8) -> LearningObservation.Content {
                var bytes = [UInt8](repeating: 0, count: rule.size)
                bytes[rule.byte] = byte
                return .bytes(bytes)
            }
            press = [value(1)]
            heartbeat = [value(2)]
            heartbeatPause = .milliseconds(1_000)
            release = [value(0)]
        case .text(let rule):
            guard let control = rule.controls.first(where: { $0.control == .ptt }) else { return nil }
            press = [.bytes(Array((control.pressed.first ?? "").utf8))]
            release = control.released.first.map { [.bytes(Array($0.utf8))] } ?? []
        case .keys(let rule):
            guard let code = rule.controls.first(where: { $0.control == .ptt })?.codes.first else { return nil }
            press = [.key(code: code, isDown: true)]
            release = [.key(code: code, isDown: false)]
        }
    }

    /// One byte for each.
    init(_ source: LearningSource, press: UInt8, release: UInt8?) {
        self.source = source
        self.press = [.bytes([press])]
        self.release = release.map { [.bytes([$0])] } ?? []
    }

    /// Words.
    init(_ source: LearningSource, press: String, release: String?) {
        self.source = source
        self.press = [.bytes(Array(press.utf8))]
        self.release = release.map { [.bytes(Array($0.utf8))] } ?? []
    }
}

/// Something that tells by itself.
struct Chatter {
    var source: LearningSource
    var pause: Duration
    /// The value with this number.
    var value: (UInt64) -> [UInt8]
}

/// What the session asked, and what came of it.
struct LearningOutcome {
    var rule: LearnedRule?
    var failure: String?
    var rounds = 0
    var prompts: [String] = []
}

/// Runs a session.
struct LearningSimulation {
    var button: SimulatedButton
    var chatter: [Chatter] = []
    /// In these rounds the person lets go after half a second.
    var earlyRounds: Set<Int> = []
    /// In these rounds the person does nothing.
    var lazyRounds: Set<Int> = []

    private enum MonitorEvent {
        case tells(LearningSource, LearningObservation.Content)
        case pressed
        case released
        case beats(UInt64, Int)
        case chatters(Int, UInt64)
    }

    func run(using random: inout SeededGenerator) -> LearningOutcome {
        var now = Instant(nanoseconds: 1_000_000_000)
        var machine = LearningStateMachine(at: now)
        var outcome = LearningOutcome()
        var agenda: [(time: Instant, happening: MonitorEvent)] = []
        var press: UInt64 = 0
        var isHeld = false
        func plan(_ happening: MonitorEvent, _ time: Instant) {
            let index = agenda.firstIndex { $0.time > time } ?? agenda.endIndex
            agenda.insert((time, happening), at: index)
        }
        func tell(_ contents: [LearningObservation.Content], at time: Instant) {
            for (index, content) in contents.enumerated() {
                plan(.tells(button.source, content), time + .milliseconds(3 * index))
                if let mirror = button.mirror { plan(.tells(mirror, content), time + .milliseconds(3 * index + 1)) }
            }
        }
        for (index, chatter) in chatter.enumerated() {
            plan(.chatters(index, 0), now + chatter.pause * Double.random(in: 0...1, using: &random))
        }
        var pending = machine.handle(.listening, at: now)
        for _ in 0..<400_000 {
            for action in pending {
                switch action {
                case .learned(let rule):
                    outcome.rule = rule
                    return outcome
                case .failed(let why):
                    outcome.failure = why
                    return outcome
                case .progress(let progress):
                    outcome.rounds = progress.round
                    outcome.prompts.append(progress.prompt)
                    switch progress.step {
                    case .press where !lazyRounds.contains(progress.round):
                        let time = now + .milliseconds(Int.random(in: 300...1_200, using: &random))
                        plan(.pressed, time)
                        if earlyRounds.contains(progress.round) { plan(.released, time + .milliseconds(900)) }
                    case .release where isHeld:
                        plan(.released, now + .milliseconds(Int.random(in: 200...900, using: &random)))
                    default: break
                    }
                }
            }
            pending = []
            let deadline = machine.nextDeadline ?? Instant(nanoseconds: .max)
            guard let next = agenda.first, next.time <= deadline else {
                guard deadline.nanoseconds != .max else { return outcome }
                now = deadline
                pending = machine.handle(.deadline, at: now)
                continue
            }
            agenda.removeFirst()
            now = next.time
            switch next.happening {
            case .tells(let source, let content):
                pending = machine.handle(
                    .observed(LearningObservation(source: source, content: content, time: now)), at: now)
            case .pressed:
                isHeld = true
                press += 1
                tell(button.press, at: now)
                if button.bounces {
                    tell(button.release, at: now + .milliseconds(8))
                    tell(button.press, at: now + .milliseconds(14))
                }
                if !button.heartbeat.isEmpty { plan(.beats(press, 0), now + button.heartbeatPause) }
            case .released:
                guard isHeld else { continue }
                isHeld = false
                tell(button.release, at: now)
            case .beats(let number, let count):
                guard isHeld, number == press else { continue }
                tell([button.heartbeat[count % button.heartbeat.count]], at: now)
                plan(.beats(press, count + 1), now + button.heartbeatPause)
            case .chatters(let index, let count):
                let chatter = chatter[index]
                plan(.tells(chatter.source, .bytes(chatter.value(count))), now)
                plan(.chatters(index, count + 1), now + chatter.pause * Double.random(in: 0.8...1.2, using: &random))
            }
        }
        return outcome
    }
}

extension LearningSource {
    /// A characteristic of a maker's own.
    static let own = LearningSource.characteristic(
        service: "127face1-cb21-11e5-93d0-0002a5d5c51b", "127fbeef-cb21-11e5-93d0-0002a5d5c51b")
    /// Another one.
    static let other = LearningSource.characteristic(
        service: "127face1-cb21-11e5-93d0-0002a5d5c51b", "127fc0ff-cb21-11e5-93d0-0002a5d5c51b")
    /// One that many devices have.
    static let shared = LearningSource.characteristic(service: "ffe0", "ffe1")
}
