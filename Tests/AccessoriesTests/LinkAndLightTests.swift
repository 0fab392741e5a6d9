// Link parameters while a control is held, and the light: when they are asked for, and that they disturb nothing.
import BlueZ
import MonotonicTime
import Testing

@testable import Accessories
@testable import AccessoryTestSupport

private let puck = DeviceFacts.button("ptt-z")
private let tight = LinkTightening.tight!
private let idle = LinkTightening.usualIdle!

private func readyPuck() -> SimulatedBluetooth {
    var world = SimulatedBluetooth([AccessoryConfiguration(id: AccessoryID("puck"), address: puck.address)])
    world.add(puck)
    world.send(.radio(.on))
    return world
}

private let lightService = BluetoothUUID("127face1-cb21-11e5-93d0-0002a5d5c51b")
private let lightUUID = BluetoothUUID("127fdead-cb21-11e5-93d0-0002a5d5c51b")

/// An AINA with its light: idle 0, transmitting 1, receiving 2, refused 4.
private func readyAINA() -> (SimulatedBluetooth, CharacteristicIdentifier) {
    var aina = DeviceFacts.button("aina-v2", name: "APTT12")
    let light = CharacteristicIdentifier(path: "\(aina.id.path)/service0010/char0019")!
    aina.characteristics.append(CharacteristicFacts(id: light, service: lightService, characteristic: lightUUID))
    var world = SimulatedBluetooth([AccessoryConfiguration(id: AccessoryID("a"), address: aina.address)])
    world.add(aina)
    world.send(.radio(.on))
    return (world, light)
}

extension SimulatedBluetooth {
    fileprivate var asked: [LEConnectionParameters] {
        linkCommands.compactMap { if case .setLink(_, let parameters) = $0 { parameters } else { nil } }
    }
    fileprivate var written: [[UInt8]] {
        writes.compactMap { if case .write(_, let value) = $0 { value } else { nil } }
    }
}

@Suite struct LinkAndLightTests {
    @Test func theLinkIsTightWhileHeldAndRelaxedALittleAfter() {
        var world = readyPuck()
        #expect(world.asked == [idle])
        world.notify(puck.key, [1])
        #expect(world.asked == [idle, tight])
        world.notify(puck.key, [0])
        world.advance(.seconds(1))
        world.notify(puck.key, [1])
        world.notify(puck.key, [0])
        #expect(world.asked == [idle, tight])
        world.advance(.seconds(3))
        #expect(world.asked == [idle, tight, idle])
        // Nothing more is due for the link; bluetoothd is asked now and then.
        world.advance(.seconds(60))
        #expect(world.asked == [idle, tight, idle])
    }

    @Test func aTightLinkIsLostWithinHalfASecond() {
        #expect(tight.supervisionTimeout <= .milliseconds(400) && tight.latency == 0)
        #expect(tight.interval == .microseconds(7500) ... .milliseconds(15))
    }

    @Test func aRefusalIsToldOnceAndNotAskedAgainOnThisLink() {
        var world = SimulatedBluetooth([AccessoryConfiguration(id: AccessoryID("puck"), address: puck.address)])
        world.failures = Array(
            repeating: ({ if case .setLink = $0 { true } else { false } }, .notPermitted), count: 100)
        world.add(puck)
        world.send(.radio(.on))
        for _ in 0..<10 {
            world.notify(puck.key, [1])
            world.notify(puck.key, [0])
            world.advance(.seconds(5))
        }
        #expect(world.intents.count == 20)
        #expect(world.asked.count == 1)
        #expect(world.notes.count == 1)
        #expect(world.status("puck")?.problem?.contains("CAP_NET_RAW") == true)
        #expect(world.status("puck")?.isReady == true)
        world.dropLink(puck.id)
        world.wake(puck.id)
        #expect(world.asked.count == 2)
        #expect(world.notes.count == 1)
    }

    @Test func onlyTheLatestWishIsAskedForWhenAnAnswerIsLate() {
        var link = LinkTightening()
        #expect(link.handle(.ready(idle: nil), at: .zero) == [.set(idle)])
        #expect(link.handle(.pressed, at: .zero) == [])
        #expect(link.handle(.released, at: .zero) == [])
        #expect(link.handle(.pressed, at: .zero) == [])
        #expect(link.handle(.completed(nil), at: .zero) == [.set(tight)])
        #expect(link.handle(.lost, at: .zero) == [])
        #expect(link.handle(.completed(.notConnected), at: .zero) == [])
        #expect(link.nextDeadline == nil)
    }

    @Test func aProfilesOwnIdleLinkIsUsed() {
        var link = LinkTightening()
        let own = AccessoryProfile.IdleLink(
            interval: .milliseconds(100), latency: 2, supervisionTimeout: .seconds(4))
        guard case .set(let parameters) = link.handle(.ready(idle: own), at: .zero).first else {
            Issue.record("nothing was asked for")
            return
        }
        #expect(parameters.interval.upperBound == .milliseconds(100))
        #expect(parameters.latency == 2 && parameters.supervisionTimeout == .seconds(4))
    }

    // MARK: Light

    @Test func theLightShowsWhatTheChannelDoes() {
        var (world, _) = readyAINA()
        #expect(world.written == [[0]])
        world.send(.feedback(.transmitting))
        world.send(.feedback(.transmitting))
        world.send(.feedback(.receiving))
        #expect(world.written == [[0], [1], [2]])
        world.dropLink(world.devices.keys.first!)
        world.send(.feedback(.idle))
        #expect(world.written.count == 3)
        world.wake(world.devices.keys.first!)
        #expect(world.written.suffix(1) == [[0]])
    }

    @Test func aRefusalShowsForAMoment() {
        var (world, _) = readyAINA()
        world.send(.feedback(.receiving))
        world.send(.feedback(.refused))
        #expect(world.written.last == [4])
        world.send(.feedback(.idle))
        world.advance(.milliseconds(1400))
        #expect(world.written.last == [4])
        world.advance(.milliseconds(200))
        #expect(world.written.last == [0])
        world.send(.feedback(.refused))
        world.send(.feedback(.transmitting))
        #expect(world.written.last == [1])
    }

    @Test func oneWriteIsUnderWayAndTheLatestWins() {
        var (world, light) = readyAINA()
        world.holdsWrites = true
        for feedback: AccessoryFeedback in [.transmitting, .receiving, .idle, .receiving] {
            world.send(.feedback(feedback))
        }
        #expect(world.written == [[0], [1]])
        world.send(.completed(.write(characteristic: light, value: [1]), .other("busy")))
        #expect(world.written == [[0], [1], [2]])
        world.send(.completed(.write(characteristic: light, value: [2]), .other("busy")))
        #expect(world.written.count == 3)
        #expect(world.notes.count == 1)
        #expect(world.status("a")?.isReady == true)
    }

    @Test func startCommandsComeBeforeTheLight() {
        let first = CharacteristicIdentifier(path: "\(puck.id.path)/service0010/char0011")!
        let light = CharacteristicIdentifier(path: "\(puck.id.path)/service0010/char0012")!
        var machine = LightStateMachine(.receiving)
        let start: [BluetoothCommand] = [7, 8].map { .write(characteristic: first, value: [$0]) }
        #expect(
            machine.handle(.ready(start: start, light: light, values: [.receiving: [2]]), at: .zero) == [
                .write(start[0])
            ])
        #expect(machine.handle(.completed(nil), at: .zero) == [.write(start[1])])
        #expect(machine.handle(.completed(nil), at: .zero) == [.write(.write(characteristic: light, value: [2]))])
        #expect(machine.handle(.completed(nil), at: .zero) == [])
    }
}
