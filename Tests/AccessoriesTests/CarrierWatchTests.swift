// A hung bluetoothd hides a release: what is held needs signs of life.
import BlueZ
import MonotonicTime
import Testing
import Vocabulary

@testable import Accessories
@testable import AccessoryTestSupport

private let puck = DeviceFacts.button("ptt-z")

private func ready() -> SimulatedBluetooth {
    var world = SimulatedBluetooth([
        AccessoryConfiguration(id: AccessoryID("a"), address: puck.address)
    ])
    world.add(puck)
    world.send(.radio(.on))
    return world
}

@Suite struct CarrierWatchTests {
    @Test func whatIsHeldThroughABluetoothdThatHangsIsReleasedWithinHalfASecond() {
        var world = ready()
        world.notify(puck.key, [1])
        world.advance(.seconds(7))
        #expect(world.intents == ["began a/ptt"])
        world.hangs = true
        world.advance(.milliseconds(500))
        #expect(world.intents == ["began a/ptt", "ended a/ptt disconnected"])
        #expect(world.status("a")?.isReady == false)
        #expect(world.status("a")?.problem?.contains("systemctl restart bluetooth") == true)
        #expect(world.notes.count { $0.contains("hangs") } == 1)
        // Its release comes when it goes on, and so does the next press.
        world.notify(puck.key, [0])
        world.goOn()
        #expect(world.intents.count == 2)
        world.advance(PressDoubt.backlogTime)
        #expect(world.status("a")?.isReady == true && world.status("a")?.problem == nil)
        world.notify(puck.key, [1])
        #expect(world.intents.last == "began a/ptt")
    }

    @Test(arguments: [Gesture.hold, .toggle])
    func whatWasPressedWhileBluetoothdHungIsNoPressWhenItIsToldLate(_ gesture: Gesture) {
        var world = SimulatedBluetooth([
            AccessoryConfiguration(id: AccessoryID("a"), address: puck.address, gesture: gesture)
        ])
        world.add(puck)
        world.send(.radio(.on))
        world.notify(puck.key, [1])
        world.hangs = true
        world.advance(.seconds(4))
        let before = world.intents
        #expect(before == ["began a/ptt", "ended a/ptt disconnected"])
        for value: UInt8 in [0, 1, 0, 1, 0] { world.notify(puck.key, [value]) }
        world.goOn()
        #expect(world.intents == before && world.status("a")?.isReady == false)
        world.advance(PressDoubt.backlogTime)
        #expect(world.status("a")?.isReady == true && world.status("a")?.problem == nil)
        world.notify(puck.key, [1])
        #expect(world.intents.count == 3 && world.intents.last == "began a/ptt")
    }

    @Test func aPressThatIsToldLateAndGoesOnCountsForNothingUntilItIsLetGo() {
        var world = ready()
        world.notify(puck.key, [1])
        world.hangs = true
        world.advance(.seconds(4))
        let before = world.intents
        for value: UInt8 in [0, 1] { world.notify(puck.key, [value]) }
        world.goOn()
        world.advance(.seconds(10))
        #expect(world.intents == before)
        #expect(world.status("a")?.problem?.contains("let it go") == true)
        world.notify(puck.key, [0])
        #expect(world.intents == before && world.status("a")?.problem == nil)
        world.notify(puck.key, [1])
        #expect(world.intents.last == "began a/ptt")
    }

    @Test func itIsAskedOftenWhileAControlIsHeldAndNowAndThenWhileAnAccessoryMayTellOfAPress() {
        var world = ready()
        world.advance(.seconds(60))
        #expect((29...31).contains(world.probes))
        world.probes = 0
        world.notify(puck.key, [1])
        world.advance(.seconds(1))
        #expect((5...10).contains(world.probes))
        world.notify(puck.key, [0])
        world.probes = 0
        // It may be connected again at any moment.
        world.dropLink(puck.id)
        world.advance(.seconds(60))
        #expect((29...31).contains(world.probes))
        world.send(.radio(.off))
        world.probes = 0
        world.advance(.seconds(60))
        #expect(world.probes == 0)
    }

    @Test func whatWasPressedOnALinkThatWasMadeInAHangIsNoPress() throws {
        var world = ready()
        world.dropLink(puck.id)
        world.advance(.seconds(10))
        world.hangs = true
        world.advance(CarrierWatch.idlePause + CarrierWatch.idleAnswerTimeout)
        #expect(world.status("a")?.problem?.contains("systemctl restart bluetooth") == true)
        // The kernel makes the link, and bluetoothd tells all of it when it goes on.
        world.devices[puck.id]?.isConnected = true
        world.devices[puck.id]?.servicesResolved = true
        world.waiting += [.device(try #require(world.devices[puck.id])), .value(characteristic: puck.key, bytes: [1])]
        world.waiting.append(.value(characteristic: puck.key, bytes: [0]))
        world.goOn()
        #expect(world.intents.isEmpty)
        world.advance(PressDoubt.backlogTime)
        world.notify(puck.key, [1])
        #expect(world.intents == ["began a/ptt"])
    }

    @Test(arguments: [Gesture.hold, .toggle], [false, true])
    func whatWasPressedBeforeTheMachineSleptIsNoPressWhenItIsToldAfterwards(_ gesture: Gesture, wasAsked: Bool) {
        var world = SimulatedBluetooth([
            AccessoryConfiguration(id: AccessoryID("a"), address: puck.address, gesture: gesture)
        ])
        world.add(puck)
        world.send(.radio(.on))
        // bluetoothd stops in the middle of its work, perhaps with a question.
        world.hangs = true
        world.advance(wasAsked ? CarrierWatch.idlePause + .milliseconds(100) : .milliseconds(100))
        for value: UInt8 in [1, 0] { world.notify(puck.key, [value]) }
        world.send(.releaseAll(.suspended))
        world.send(.woke)
        world.advance(.milliseconds(300))
        world.goOn()
        #expect(world.intents.isEmpty)
        world.advance(PressDoubt.backlogTime)
        world.notify(puck.key, [1])
        #expect(world.intents == ["began a/ptt"])
    }

    @Test func anAnswerFromBeforeTheMachineSleptProvesNothing() {
        var watch = CarrierWatch()
        _ = watch.handle(.needed(.presses), at: .zero)
        let asked = Instant.zero + CarrierWatch.idlePause
        #expect(watch.handle(.deadline, at: asked) == [.probe])
        let awake = asked + .milliseconds(10)
        #expect(watch.handle(.woke, at: awake).isEmpty)
        #expect(watch.handle(.answered(true), at: awake) == [.probe])
        #expect(watch.handle(.alive, at: awake).isEmpty)
        #expect(watch.handsOnBacklog(at: awake + .milliseconds(900)))
        let answered = awake + .milliseconds(900)
        #expect(watch.handle(.answered(true), at: answered).isEmpty)
        #expect(watch.handsOnBacklog(at: answered))
        #expect(!watch.handsOnBacklog(at: answered + PressDoubt.backlogTime))
    }

    @Test(arguments: [Gesture.hold, .toggle])
    func whatWasPressedInAHangWithNothingHeldIsNoPressWhenItIsToldLate(_ gesture: Gesture) {
        var world = SimulatedBluetooth([
            AccessoryConfiguration(id: AccessoryID("a"), address: puck.address, gesture: gesture)
        ])
        world.add(puck)
        world.send(.radio(.on))
        world.advance(.seconds(7))
        #expect(world.status("a")?.isReady == true)
        world.hangs = true
        world.advance(CarrierWatch.idlePause + CarrierWatch.idleAnswerTimeout)
        #expect(world.status("a")?.isReady == false)
        #expect(world.status("a")?.problem?.contains("systemctl restart bluetooth") == true)
        #expect(world.notes.count { $0.contains("hangs") } == 1)
        for value: UInt8 in [1, 0] { world.notify(puck.key, [value]) }
        world.goOn()
        #expect(world.intents.isEmpty)
        world.advance(PressDoubt.backlogTime)
        #expect(world.status("a")?.isReady == true && world.status("a")?.problem == nil)
        world.notify(puck.key, [1])
        #expect(world.intents == ["began a/ptt"])
    }

    @Test func anAccessoryThatIsRemovedNeedsNoCarrier() {
        var world = ready()
        world.send(.unconfigure(AccessoryID("a")))
        world.probes = 0
        world.advance(.seconds(60))
        #expect(world.probes == 0)
    }

    @Test func aMachineThatSleptDuringAQuestionGivesItsServicesASecond() {
        var watch = CarrierWatch()
        _ = watch.handle(.needed(.presses), at: .zero)
        #expect(watch.handle(.deadline, at: .zero + CarrierWatch.idlePause) == [.probe])
        let awake = Instant.zero + .seconds(3_600)
        #expect(watch.handle(.deadline, at: awake).isEmpty)
        #expect(watch.nextDeadline == awake + CarrierWatch.idleAnswerTimeout)
        #expect(watch.handle(.answered(true), at: awake + .milliseconds(900)).isEmpty)
        #expect(!watch.isLost)
        // And no answer at all is a hang all the same.
        _ = watch.handle(.deadline, at: awake + .seconds(3))
        _ = watch.handle(.deadline, at: awake + .seconds(60))
        #expect(watch.handle(.deadline, at: awake + .seconds(62)) == [.lost])
    }

    @Test func aPressDuringAQuestionIsWatchedAsAnyOther() {
        var watch = CarrierWatch()
        #expect(watch.handle(.needed(.presses), at: .zero).isEmpty)
        let asked = Instant.zero + CarrierWatch.idlePause
        #expect(watch.handle(.deadline, at: asked) == [.probe])
        let pressed = asked + .milliseconds(900)
        #expect(watch.handle(.deadline, at: pressed).isEmpty)
        #expect(watch.handle(.needed(.release), at: pressed).isEmpty)
        #expect(watch.nextDeadline == pressed + CarrierWatch.answerTimeout)
        #expect(watch.handle(.deadline, at: pressed + CarrierWatch.answerTimeout) == [.lost])
    }

    @Test func aToggledTransmissionNeedsSignsOfLifeToo() {
        var world = SimulatedBluetooth([
            AccessoryConfiguration(id: AccessoryID("a"), address: puck.address, gesture: .toggle)
        ])
        world.add(puck)
        world.send(.radio(.on))
        world.notify(puck.key, [1])
        world.notify(puck.key, [0])
        world.hangs = true
        world.advance(.milliseconds(600))
        #expect(world.intents == ["began a/ptt", "ended a/ptt disconnected"])
    }

    @Test func aSlowBluetoothdClipsNothing() {
        var watch = CarrierWatch()
        var now = Instant.zero
        #expect(watch.handle(.needed(.release), at: now).isEmpty)
        for _ in 0..<100 {
            now = now + CarrierWatch.pause
            #expect(watch.nextDeadline == now)
            #expect(watch.handle(.deadline, at: now) == [.probe])
            now = now + .milliseconds(390)
            #expect(watch.handle(.deadline, at: now).isEmpty)
            #expect(watch.handle(.answered(true), at: now).isEmpty)
        }
    }

    @Test func aValueIsASignOfLife() {
        var watch = CarrierWatch()
        var now = Instant.zero
        _ = watch.handle(.needed(.release), at: now)
        now = now + CarrierWatch.pause
        #expect(watch.handle(.deadline, at: now) == [.probe])
        for _ in 0..<20 {
            now = now + .milliseconds(300)
            #expect(watch.handle(.deadline, at: now).isEmpty)
            #expect(watch.handle(.alive, at: now).isEmpty)
        }
    }

    @Test func onlyOneQuestionIsUnderWayAndOneThatHangsIsAskedUntilItAnswers() {
        var watch = CarrierWatch()
        _ = watch.handle(.needed(.release), at: .zero)
        #expect(watch.handle(.deadline, at: .zero + .milliseconds(100)) == [.probe])
        #expect(watch.handle(.deadline, at: .zero + .milliseconds(200)).isEmpty)
        #expect(watch.handle(.deadline, at: .zero + .milliseconds(500)) == [.lost])
        #expect(watch.nextDeadline == nil)
        _ = watch.handle(.needed(.nothing), at: .zero + .milliseconds(500))
        #expect(watch.handle(.answered(false), at: .zero + .seconds(10)) == [.probe])
        #expect(watch.handle(.answered(true), at: .zero + .seconds(12)) == [.back])
        #expect(!watch.isLost && watch.nextDeadline == nil)
    }

    @Test func whoWasLateItselfDoesNotBlameBluetoothd() {
        var watch = CarrierWatch()
        _ = watch.handle(.needed(.release), at: .zero)
        _ = watch.handle(.deadline, at: .zero + .milliseconds(100))
        // Our own process was stopped: the answer waits to be read.
        let late = Instant.zero + .seconds(8)
        #expect(watch.handle(.deadline, at: late).isEmpty)
        #expect(watch.nextDeadline == late + CarrierWatch.pause)
        #expect(watch.handle(.answered(true), at: late).isEmpty)
        // But when none waits, it is lost all the same.
        _ = watch.handle(.deadline, at: late + .milliseconds(100))
        _ = watch.handle(.deadline, at: late + .milliseconds(800))
        #expect(watch.handle(.deadline, at: late + .milliseconds(900)) == [.lost])
    }

    @Test func aMachineThatIsAlwaysLateStillLosesACarrierThatHangs() {
        var watch = CarrierWatch()
        _ = watch.handle(.needed(.release), at: .zero)
        _ = watch.handle(.deadline, at: .zero + .milliseconds(100))
        #expect(watch.handle(.deadline, at: .zero + .milliseconds(800)).isEmpty)
        #expect(watch.handle(.deadline, at: .zero + .milliseconds(1_500)) == [.lost])
    }

    @Test func theEndOfBluetoothdIsNoHang() {
        var world = ready()
        world.notify(puck.key, [1])
        world.hangs = true
        world.advance(.milliseconds(150))
        world.stopService()
        world.hangs = false
        #expect(world.intents == ["began a/ptt", "ended a/ptt bluetoothStopped"])
        world.startService()
        world.advance(.seconds(5))
        #expect(world.status("a")?.isReady == true && world.status("a")?.problem == nil)
    }
}
