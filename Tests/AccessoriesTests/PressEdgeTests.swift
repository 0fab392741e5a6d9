// When a value that says "down" is a press: a table of situations, over everything between the link and the intent.
import BlueZ
import MonotonicTime
import Testing

@testable import Accessories
@testable import AccessoryTestSupport

/// A button of each kind: does it repeat its state, and can it be read?
private enum Kind: CaseIterable {
    /// It tells changes only: a PTT-Z.
    case tellsChanges
    /// It tells changes only, and can be read: a development kit, which is used only where its profile is named.
    case tellsChangesAndReads
    /// It repeats a held control, and can be read: an AINA.
    case repeatsAndReads
    /// It repeats a held control, and cannot be read: an IASUS.
    case repeats
    /// Nothing is known of it: a learned one.
    case unknown

    var device: DeviceFacts {
        var device =
            switch self {
            case .tellsChanges: DeviceFacts.button("ptt-z")
            case .tellsChangesAndReads: DeviceFacts.button("nordic-lbs", name: "Nordic_LBS")
            case .repeatsAndReads: DeviceFacts.button("aina-v2", name: "APTT12")
            case .repeats: DeviceFacts.button("iasus-ig-ptt", name: "IASUS IG-PTT")
            case .unknown: DeviceFacts.button("motorola-wm500", name: "WM500_7")
            }
        device.isTrusted = true
        return device
    }

    var configuration: AccessoryConfiguration {
        AccessoryConfiguration(
            id: AccessoryID("b"), address: device.address,
            profileID: self == .tellsChangesAndReads ? "nordic-lbs" : nil)
    }

    var isReadable: Bool { self == .repeatsAndReads || self == .tellsChangesAndReads }
}

/// What happened before its first value.
private enum Situation: CaseIterable {
    /// pttd starts, and the link is there already.
    case startWithLink
    /// pttd has run for long; the button connects, because a press wakes it.
    case wakesUp
    /// The link was lost while nothing was held, and is back.
    case linkLost
    /// The link was lost while the button was held, and is back.
    case linkLostHeld
    /// bluetoothd was killed while the button was held, and is back with a link that it kept.
    case serviceKilledHeld
    /// bluetoothd hung while the button was held, and goes on.
    case serviceHungHeld
    /// The configuration was changed while the button was held.
    case configuredHeld
}

private struct Scene {
    let kind: Kind
    let device: DeviceFacts
    var world: SimulatedBluetooth

    init(_ kind: Kind) {
        self.kind = kind
        device = kind.device
        world = SimulatedBluetooth([kind.configuration])
    }

    /// Held or not when it is heard again.
    mutating func come(about situation: Situation, held: Bool) {
        let value: [UInt8] = held ? [1] : [0]
        world.devices[device.id] = device
        if situation == .startWithLink {
            world.values[device.key] = value
            world.devices[device.id]?.isConnected = true
            world.devices[device.id]?.servicesResolved = true
            world.startService()
            return
        }
        if situation == .wakesUp {
            world.startService()
            world.advance(.seconds(60))
            world.values[device.key] = value
            world.awake.insert(device.id)
            world.wake(device.id)
            // What it told before it was subscribed to is lost.
            return
        }
        world.awake = [device.id]
        world.startService()
        world.notify(device.key, [0])
        world.advance(.seconds(60))
        if situation != .linkLost { world.notify(device.key, [1]) }
        world.advance(.seconds(1))
        switch situation {
        case .startWithLink, .wakesUp: break
        case .linkLost, .linkLostHeld:
            world.dropLink(device.id)
            world.values[device.key] = value
            world.advance(.seconds(4))
            world.wake(device.id)
        case .serviceKilledHeld:
            world.stopService()
            world.values[device.key] = value
            world.devices[device.id]?.isConnected = true
            world.devices[device.id]?.servicesResolved = true
            world.startService()
        case .serviceHungHeld:
            world.hangs = true
            world.advance(.seconds(3))
            if !held { world.notify(device.key, [0]) }
            world.goOn()
        case .configuredHeld:
            world.send(.configure(kind.configuration))
            if !held { world.notify(device.key, [0]) }
        }
    }

    var isReady: Bool { world.status("b")?.isReady == true }

    var isHeld: Bool { world.status("b")?.isHeld == true }
}

@Suite struct PressEdgeTests {
    /// The heart of it: while the button is still held from before, nothing begins, however often it says so.
    @Test(arguments: Kind.allCases, Situation.allCases)
    fileprivate func aPressFromBeforeBeginsNothing(kind: Kind, situation: Situation) {
        // The one exception is the press that wakes the button.
        guard situation != .wakesUp, situation != .linkLost else { return }
        // One that tells changes only, and cannot be read, says nothing while it is held: there is nothing to be taken for a press.
        guard kind != .tellsChanges else { return }
        var scene = Scene(kind)
        scene.come(about: situation, held: true)
        #expect(!scene.isHeld)
        for _ in 0..<40 {
            scene.world.notify(scene.device.key, [kind == .repeatsAndReads ? 0x81 : 1])
            #expect(!scene.isHeld)
            scene.world.advance(.milliseconds(400))
        }
        #expect(scene.world.status("b")?.problem?.contains("let it go") == true)
        scene.world.notify(scene.device.key, [0])
        #expect(scene.isReady)
        scene.world.notify(scene.device.key, [1])
        #expect(scene.isHeld)
        scene.world.notify(scene.device.key, [0])
        #expect(!scene.isHeld)
    }

    /// A button that is up is pressed: its first press counts, at the latest when it has been silent for as long as none that repeats is.
    @Test(arguments: Kind.allCases, Situation.allCases)
    fileprivate func theFirstPressOfAButtonThatIsUpCounts(kind: Kind, situation: Situation) {
        var scene = Scene(kind)
        scene.come(about: situation, held: false)
        #expect(!scene.isHeld)
        if situation == .serviceHungHeld {
            // What waited comes first.
            #expect(!scene.isReady)
            scene.world.advance(PressDoubt.backlogTime)
        }
        // Only these cannot know at once that it is up.
        let hasToldRelease = situation == .serviceHungHeld || situation == .configuredHeld
        let isDoubtful =
            !kind.isReadable && kind != .tellsChanges && situation != .wakesUp && situation != .linkLost
            && !hasToldRelease
        #expect(scene.isReady == !isDoubtful)
        if isDoubtful { scene.world.advance(PressDoubt.silence) }
        #expect(scene.isReady)
        scene.world.notify(scene.device.key, [1])
        #expect(scene.isHeld)
        scene.world.notify(scene.device.key, [0])
        #expect(!scene.isHeld)
    }

    @Test(arguments: [Kind.repeatsAndReads, .tellsChangesAndReads])
    fileprivate func aPressThatWakesAButtonIsReadWhenItCameBeforeTheSubscription(kind: Kind) {
        var scene = Scene(kind)
        scene.come(about: .wakesUp, held: true)
        #expect(scene.world.reads == [scene.device.key])
        #expect(scene.world.intents == ["began b/ptt"])
        scene.world.notify(scene.device.key, [0])
        #expect(scene.world.intents == ["began b/ptt", "ended b/ptt released"])
        // Again after it slept.
        scene.world.dropLink(scene.device.id)
        scene.world.advance(.seconds(300))
        scene.world.values[scene.device.key] = [1]
        scene.world.wake(scene.device.id)
        #expect(scene.world.intents.last == "began b/ptt")
    }

    @Test(arguments: [true, false]) func anAnswerThatIsAwaitedIsNoSilence(held: Bool) {
        var scene = Scene(.repeatsAndReads)
        scene.world.holdsReads = true
        scene.come(about: .startWithLink, held: held)
        scene.world.advance(PressDoubt.silence + .seconds(1))
        #expect(!scene.isReady && !scene.isHeld)
        scene.world.goOn()
        #expect(!scene.isHeld, "it was held before")
        scene.world.notify(scene.device.key, [0])
        #expect(scene.isReady)
        scene.world.notify(scene.device.key, [1])
        #expect(scene.isHeld)
    }

    @Test func aReadThatFailsLeavesTheSilence() {
        var scene = Scene(.repeatsAndReads)
        scene.world.holdsReads = true
        scene.come(about: .startWithLink, held: false)
        scene.world.waiting = [.completed(.read(characteristic: scene.device.key), .timedOut)]
        scene.world.advance(.seconds(10))
        scene.world.goOn()
        #expect(!scene.isReady)
        scene.world.advance(PressDoubt.silence)
        #expect(scene.isReady)
        scene.world.notify(scene.device.key, [1])
        #expect(scene.isHeld)
    }

    @Test func aButtonThatIsConnectedForTheFirstTimeIsNotRead() {
        // A person presses it in order to add it.
        var scene = Scene(.repeatsAndReads)
        var device = scene.device
        device.isTrusted = false
        scene.world.values[device.key] = [1]
        scene.world.add(device)
        scene.world.send(.radio(.on))
        #expect(scene.world.status("b")?.isReady == true)
        #expect(scene.world.reads.isEmpty && scene.world.intents.isEmpty)
    }

    @Test func whatIsReadLateDoesNotOverwriteWhatWasNotified() {
        var scene = Scene(.repeatsAndReads)
        scene.come(about: .wakesUp, held: false)
        scene.world.notify(scene.device.key, [1])
        scene.world.send(.read(characteristic: scene.device.key, bytes: [0]))
        #expect(scene.isHeld)
        scene.world.notify(scene.device.key, [0])
        scene.world.send(.read(characteristic: scene.device.key, bytes: [1]))
        #expect(!scene.isHeld)
    }

    @Test func clicksAreNeverInDoubt() {
        var tag = DeviceFacts.button("itag", name: "iTAG")
        (tag.isTrusted, tag.isConnected, tag.servicesResolved) = (true, true, true)
        var world = SimulatedBluetooth([
            AccessoryConfiguration(id: AccessoryID("tag"), address: tag.address, profileID: "itag")
        ])
        world.devices[tag.id] = tag
        world.startService()
        world.notify(tag.key, [1])
        #expect(world.intents == ["began tag/ptt"])
    }

    @Test func aLostSecondControlLeavesTheFirstCertain() {
        // Of an AINA only what was held when the link was lost is in doubt.
        var doubt = PressDoubt(retold: [.ptt, .emergency])
        doubt.heard(isKept: false, at: .zero)
        let now = Instant.zero + .seconds(60)
        doubt.lost(down: [.ptt], at: now)
        let unheard = doubt.isPress(.ptt, at: now + .seconds(60))
        #expect(!unheard)
        doubt.heard(isKept: false, at: now + .seconds(60))
        let (emergency, before) = (
            doubt.isPress(.emergency, at: now + .seconds(61)), doubt.isPress(.ptt, at: now + .seconds(61))
        )
        doubt.up(.ptt)
        let after = doubt.isPress(.ptt, at: now + .seconds(62))
        #expect(emergency && !before && after)
    }
}
