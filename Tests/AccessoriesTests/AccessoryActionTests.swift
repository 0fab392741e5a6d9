// What controls do besides talking: actions, emergencies, gestures, and doing nothing while they are tried.
import BlueZ
import MonotonicTime
import Testing
import Vocabulary

@testable import Accessories
@testable import AccessoryTestSupport

private let aina = DeviceFacts.button("aina-v2", name: "APTT12")

/// A ready AINA; bits: 1 ptt, 2 emergency, 4 ptt2, 8 soft1, 0x10 soft2.
private func world(_ bindings: [Control: ControlAction] = [:], gesture: Gesture? = nil) -> SimulatedBluetooth {
    var world = SimulatedBluetooth([
        AccessoryConfiguration(id: AccessoryID("a"), address: aina.address, gesture: gesture, bindings: bindings)
    ])
    world.add(aina)
    world.send(.radio(.on))
    return world
}

@Suite struct AccessoryActionTests {
    @Test func aBoundControlActsOnceAPress() {
        var world = world([.soft1: .channelUp, .soft2: .command(["/bin/true"])])
        for value: UInt8 in [8, 8, 0, 0x18, 0x10, 0] { world.notify(aina.key, [value]) }
        #expect(
            world.happenings == [
                "channel-up by a/soft1", "channel-up by a/soft1", "command: /bin/true by a/soft2",
            ])
        #expect(world.intents.isEmpty)
        #expect(world.status("a")?.actions[.soft1] == .channelUp)
    }

    @Test func aTalkControlThatIsBoundElsewhereDoesNotTalkAndAnyControlMayTalk() {
        var world = world([.ptt: ControlAction.none, .soft1: .transmit])
        for value: UInt8 in [1, 0, 8, 0] { world.notify(aina.key, [value]) }
        #expect(world.intents == ["began a/soft1", "ended a/soft1 released"])
    }

    @Test func aHybridTalkControlHoldsWhenPressedLongAndLatchesWhenShort() {
        var world = world(gesture: .hybrid)
        world.notify(aina.key, [1])
        world.advance(.seconds(2))
        world.notify(aina.key, [0])
        #expect(world.intents == ["began a/ptt", "ended a/ptt released"])
        world.notify(aina.key, [1])
        world.advance(.milliseconds(100))
        world.notify(aina.key, [0])
        world.advance(.seconds(5))
        #expect(world.intents.count == 3)
        world.notify(aina.key, [1])
        #expect(world.intents.count == 4)
    }

    // MARK: Order

    @Test func anIntentComesBeforeEverythingThatTellsOfIt() {
        var world = world([.soft1: .channelUp])
        /// What follows from a value, in words: the one thing that is done, then the others.
        func words(_ bytes: [UInt8]) -> [String] { words(.value(characteristic: aina.key, bytes: bytes)) }
        func words(_ event: AccessoriesStateMachine.Event) -> [String] {
            world.machine.handle(event, at: world.now).map { action in
                switch action {
                case .event(.intent(.transmitBegan, _)): "begin"
                case .event(.intent(.transmitEscalated, _)): "escalate"
                case .event(.intent(.transmitEnded, _)): "end"
                case .event(.action): "act"
                case .event(.control): "control"
                case .event(.emergency): "emergency"
                case .event(.changed): "changed"
                case .event(.removed): "removed"
                case .command: "command"
                case .ignored: "ignored"
                case .note: "note"
                }
            }
        }
        #expect(words([1]).prefix(2) == ["begin", "control"])
        #expect(words([0]).prefix(2) == ["end", "control"])
        #expect(words([8]).prefix(2) == ["act", "control"])
        #expect(words([1]).prefix(2) == ["begin", "control"])
        _ = words([3])
        world.now = world.now + .seconds(1)
        #expect(words(.deadline).filter { $0 != "command" }.prefix(2) == ["escalate", "emergency"])
        #expect(words([0]).prefix(4) == ["end", "control", "control", "emergency"])
    }

    // MARK: Emergency

    @Test func anEmergencyHasToBeHeld() {
        var world = world()
        world.notify(aina.key, [2])
        world.advance(.milliseconds(990))
        world.notify(aina.key, [0])
        world.advance(.seconds(5))
        #expect(world.happenings.isEmpty && world.intents.isEmpty)
        world.notify(aina.key, [2])
        world.advance(.seconds(1))
        let source = AccessorySource(accessory: AccessoryID("a"), control: .emergency)
        #expect(world.happenings == ["emergency a/emergency on"])
        #expect(world.events.contains(.intent(.transmitBegan(source, .emergency), at: world.now)))
        world.notify(aina.key, [0])
        #expect(world.happenings == ["emergency a/emergency on", "emergency a/emergency off"])
        #expect(world.intents == ["began a/emergency", "ended a/emergency released"])
    }

    @Test func anEmergencyMakesATransmissionUrgentUntilAllAreUp() {
        var world = world()
        world.notify(aina.key, [1])
        world.notify(aina.key, [3])
        world.advance(.seconds(1))
        world.notify(aina.key, [1])
        world.notify(aina.key, [0])
        #expect(world.intents == ["began a/ptt", "escalated a/emergency", "ended a/ptt released"])
        #expect(world.happenings == ["emergency a/emergency on", "emergency a/emergency off"])
    }

    @Test func afterAForcedEndAnEmergencyNeedsAFreshPressAndItsAlertLastsUntilItIsLetGo() {
        var world = world()
        world.notify(aina.key, [2])
        world.advance(.seconds(1))
        world.send(.transmissionEnded)
        #expect(world.happenings == ["emergency a/emergency on"])
        world.advance(.seconds(10))
        world.notify(aina.key, [2])
        #expect(world.intents == ["began a/emergency"])
        world.notify(aina.key, [0])
        #expect(world.happenings.last == "emergency a/emergency off")
        world.notify(aina.key, [2])
        world.advance(.seconds(1))
        #expect(world.intents == ["began a/emergency", "began a/emergency"])
    }

    @Test func aGuardThatRunsIsNotEndedByTheEndOfAnothersTransmission() {
        var world = world()
        world.notify(aina.key, [1])
        world.notify(aina.key, [3])
        world.advance(.milliseconds(500))
        world.send(.transmissionEnded)
        world.advance(.milliseconds(500))
        #expect(world.intents == ["began a/ptt", "began a/emergency"])
    }

    @Test func aLostEmergencyEnds() {
        var world = world()
        world.notify(aina.key, [2])
        world.advance(.seconds(1))
        world.dropLink(aina.id)
        #expect(world.intents == ["began a/emergency", "ended a/emergency disconnected"])
        #expect(world.happenings.last == "emergency a/emergency off")
        // Nothing but that bluetoothd is asked whether it works.
        #expect(world.machine.nextDeadline == world.now + CarrierWatch.idlePause)
    }

    @Test func anEmergencyWithoutAReleaseCountsAtOnceAndToggles() {
        var machine = ControlsStateMachine(.shipped("xevent-talk"))
        let word = Array("AT+XEVENT=SOS,1".utf8)
        func run() -> [ControlsStateMachine.Action] {
            machine.handle(.value(input: 0, bytes: word), at: .zero).filter {
                if case .control = $0 { false } else { true }
            }
        }
        #expect(run() == [.emergency(.emergency, isActive: true), .begin(.emergency)])
        #expect(run() == [.end(.emergency), .emergency(.emergency, isActive: false)])
        _ = run()
        #expect(
            machine.handle(.endedBySystem, at: .zero) == [
                .end(.emergency), .emergency(.emergency, isActive: false),
            ])
        #expect(run() == [.emergency(.emergency, isActive: true), .begin(.emergency)])
    }

    // MARK: Doing nothing

    @Test func aTestedAccessoryReportsItsControlsAndDoesNothing() {
        var world = world([.soft1: .channelUp])
        world.notify(aina.key, [1])
        world.send(.test(AccessoryID("a"), true))
        #expect(world.intents == ["began a/ptt", "ended a/ptt released"])
        for value: UInt8 in [0, 1, 0, 8, 0, 2] { world.notify(aina.key, [value]) }
        world.advance(.seconds(2))
        #expect(world.intents.count == 2 && world.happenings.isEmpty)
        #expect(world.events.count { if case .control = $0 { true } else { false } } >= 6)
        world.send(.test(AccessoryID("a"), false))
        world.notify(aina.key, [0])
        #expect(world.intents.count == 2 && world.happenings.isEmpty)
        world.notify(aina.key, [1])
        #expect(world.intents.count == 3)
    }

    @Test func quietReleasesWhatIsHeldAndNeedsAFreshPressAfter() {
        var world = world()
        world.notify(aina.key, [1])
        world.send(.quiet(true))
        #expect(world.intents == ["began a/ptt", "ended a/ptt released"])
        world.notify(aina.key, [0])
        world.notify(aina.key, [1])
        world.send(.quiet(false))
        #expect(world.intents.count == 2)
        world.notify(aina.key, [0])
        world.notify(aina.key, [1])
        #expect(world.intents.count == 3)
    }

    @Test func moreThanAPersonCanPressIsIgnoredAndStrandsNothing() {
        var world = world()
        for _ in 0..<1000 {
            world.notify(aina.key, [1])
            world.notify(aina.key, [0])
        }
        #expect(world.intents.count == 2 * PressRouter.pressesPerSecondMax)
        #expect(world.intents.last == "ended a/ptt released")
        world.advance(.seconds(2))
        world.notify(aina.key, [1])
        #expect(world.intents.last == "began a/ptt")
    }

    @Test func aHoldOnAControlThatTellsNoReleaseTogglesAndSaysSo() {
        var world = SimulatedBluetooth([
            AccessoryConfiguration(id: AccessoryID("media-player"), gesture: .hold)
        ])
        let player = LocalDeviceFacts.keys(
            "media-player", name: "Media player (AVRCP)", profile: nil, keys: [164, 200, 201])
        world.send(.local(.added(player)))
        #expect(world.status("media-player")?.problem?.contains("gesture = \"hold\" is not possible") == true)
        world.key(player, 200, true)
        world.key(player, 200, false)
        world.advance(.seconds(1))
        #expect(world.intents == ["began media-player/ptt"])
    }
}
