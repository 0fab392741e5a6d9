// One control's gesture under any sequence of events.
import MonotonicTime
import TestSupport
import Testing
import Vocabulary

@testable import Accessories

@Suite struct GestureStateMachineTests {
    private func at(_ milliseconds: Int) -> Instant { .zero + .milliseconds(milliseconds) }

    @Test func aHybridPressIsLongFromItsThresholdOn() {
        for (held, staysOn) in [(0, true), (399, true), (400, false), (5_000, false)] {
            var machine = GestureStateMachine(.hybrid)
            #expect(machine.handle(.pressed, at: at(0)) == [.begin])
            #expect(machine.handle(.released, at: at(held)) == (staysOn ? [] : [.end]))
            #expect(machine.isActive == staysOn)
        }
    }

    @Test func aHybridPressIsMeasuredFromItsContactThoughItCountsLater() {
        var machine = GestureStateMachine(
            .hybrid, timing: GestureTiming(debounce: .milliseconds(50), minimumHold: .milliseconds(100)))
        #expect(machine.handle(.pressed, at: at(0)).isEmpty)
        #expect(machine.handle(.deadline, at: at(100)) == [.begin])
        #expect(machine.handle(.released, at: at(390)).isEmpty)
        // The release counts when its window has passed, but was at 390 ms: a short press, which stays on.
        #expect(machine.handle(.deadline, at: at(440)).isEmpty && machine.isActive)
        #expect(machine.handle(.pressed, at: at(1_000)).isEmpty)
        #expect(machine.handle(.deadline, at: at(1_100)) == [.end])
        #expect(machine.handle(.released, at: at(2_000)).isEmpty)
        #expect(machine.handle(.deadline, at: at(2_050)).isEmpty && !machine.isActive)
    }

    @Test func theEndFromElsewhereNeedsAFreshPress() {
        for gesture in [Gesture.hold, .toggle, .hybrid] {
            var machine = GestureStateMachine(gesture)
            #expect(machine.handle(.pressed, at: at(0)) == [.begin])
            #expect(machine.handle(.endedBySystem, at: at(10)) == [.end])
            #expect(machine.handle(.pressed, at: at(20)).isEmpty)
            #expect(machine.handle(.released, at: at(2_000)).isEmpty)
            #expect(machine.handle(.pressed, at: at(3_000)) == [.begin])
        }
    }

    /// Begins and ends alternate; nothing is active after a loss; a hold is never active while the contact is up.
    @Test func noSequenceLeavesAControlActive() {
        var random = SeededGenerator()
        for _ in 0..<500 {
            let gesture = Gesture.allCases.randomElement(using: &random)!
            let timing = GestureTiming(
                debounce: .milliseconds([0, 30].randomElement(using: &random)!),
                minimumHold: .milliseconds([0, 60].randomElement(using: &random)!))
            var machine = GestureStateMachine(gesture, timing: timing)
            var isActive = false
            var isDown = false
            var now = Instant.zero
            for _ in 0..<200 {
                now = now + .milliseconds([0, 1, 20, 100, 600].randomElement(using: &random)!)
                let event = [GestureStateMachine.Event.pressed, .released, .lost, .endedBySystem, .deadline]
                    .randomElement(using: &random)!
                for action in machine.handle(event, at: now) {
                    #expect((action == .begin) != isActive)
                    isActive = action == .begin
                }
                #expect(machine.isActive == isActive)
                switch event {
                case .pressed: isDown = true
                case .released: isDown = false
                case .lost:
                    isDown = false
                    #expect(!isActive && machine.nextDeadline == nil)
                case .endedBySystem: #expect(!isActive)
                case .deadline: break
                }
                if gesture == .hold, !isDown, machine.nextDeadline == nil { #expect(!isActive) }
                if gesture == Gesture.none { #expect(!isActive) }
            }
        }
    }
}
