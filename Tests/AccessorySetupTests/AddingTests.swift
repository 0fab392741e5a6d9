// Adding an accessory, as its rules see it.
import BlueZ
import MonotonicTime
import Testing
import Vocabulary

@testable import Accessories
@testable import AccessorySetup
@testable import AccessoryTestSupport

@Suite struct AddingTests {
    /// What has to be bonded and is not, nobody connects: pairing does.
    @Test func anAccessoryThatHasToBeBondedIsPairedAtOnceAndThenUsed() {
        let aina = DeviceFacts.button("aina-v2", name: "APTT12")
        var world = SimulatedBluetooth([])
        world.add(aina)
        world.send(.radio(.on))
        var adding = AddStateMachine(
            AccessoryAddition(address: aina.address, isBondedOnly: true),
            library: ProfileLibrary.load(directory: nil).library, at: .zero
        ) { _ in "a" }
        var actions = adding.firstActions + adding.handle(.device(aina), at: .zero)
        var saved: AccessoryConfiguration?
        while saved == nil, !actions.isEmpty {
            var next: [AddStateMachine.Action] = []
            for action in actions {
                switch action {
                case .configure(let configuration): world.send(.configure(configuration))
                case .command(.pair(let id)):
                    world.change(id) { ($0.isConnected, $0.servicesResolved, $0.isPaired) = (true, true, true) }
                    next += adding.handle(.device(world.devices[id]!), at: .zero)
                    next += adding.handle(.completed(.pair(device: id), nil), at: .zero)
                case .save(let configuration): saved = configuration
                case .progress, .scan, .unconfigure, .command, .finished: break
                }
            }
            if let status = world.status("a") { next += adding.handle(.status(status), at: .zero) }
            actions = next
        }
        #expect(saved?.isBondedOnly == true)
        #expect(world.status("a")?.isReady == true && world.status("a")?.isBonded == true)
    }

    // MARK: What goes wrong while it is being paired

    /// An addition with pairing, up to the `Pair`.
    private func pairing(_ device: DeviceFacts) -> AddStateMachine {
        var adding = AddStateMachine(
            AccessoryAddition(address: device.address, pairs: true),
            library: ProfileLibrary.load(directory: nil).library, at: .zero
        ) { _ in "a" }
        _ = adding.handle(.device(device), at: .zero)
        var connected = device
        (connected.isConnected, connected.servicesResolved) = (true, true)
        let actions = adding.handle(.device(connected), at: .zero)
        #expect(actions.contains(.command(.pair(device: device.id))))
        return adding
    }

    private func failure(_ actions: [AddStateMachine.Action]) -> AccessoryError? {
        for case .finished(.failure(let error)) in actions { return error }
        return nil
    }

    private let aina = DeviceFacts.button("aina-v2", name: "APTT12")

    /// What the fleet says of a device that is not there.
    private var asleep: AccessoryStatus {
        var world = SimulatedBluetooth([AccessoryConfiguration(id: AccessoryID("a"), address: aina.address)])
        world.add(aina, awake: false)
        world.send(.radio(.on))
        world.advance(.seconds(5))
        return world.status("a")!
    }

    @Test(arguments: ["answered", "unanswered"]) func aDeviceThatHangsUpWhileItIsPairedIsSaidTo(how: String) {
        var adding = pairing(aina)
        _ = adding.handle(.status(asleep), at: .zero)
        #expect(adding.handle(.device(aina), at: .zero + .seconds(1)).isEmpty)
        let actions: [AddStateMachine.Action]
        if how == "answered" {
            actions = adding.handle(.completed(.pair(device: aina.id), .authentication), at: .zero + .seconds(2))
        } else {
            #expect(adding.nextDeadline == Instant.zero + (.seconds(1) + AddStateMachine.hangUpTime))
            actions = adding.handle(.deadline, at: .zero + .seconds(4))
            // Nobody waits for the answer any more.
            #expect(actions.contains(.command(.cancelPairing(device: aina.id))))
        }
        let error = failure(actions)
        #expect(error?.code == .notConnected)
        #expect(error?.description.contains("hung up") == true, "\(error?.description ?? "")")
        #expect(error?.description.contains("press its button") == false)
    }

    @Test func aDeviceThatVanishesWhileItIsPairedIsSaidTo() {
        var adding = pairing(aina)
        _ = adding.handle(.status(asleep), at: .zero)
        _ = adding.handle(.deviceRemoved, at: .zero + .seconds(1))
        let error = failure(adding.handle(.deadline, at: .zero + .seconds(4)))
        #expect(error?.code == .notConnected)
        #expect(error?.description.contains("went away while it was being paired") == true)
    }

    @Test func aDeviceThatIsBackAtOnceGoesOnBeingPaired() {
        var adding = pairing(aina)
        _ = adding.handle(.device(aina), at: .zero + .seconds(1))
        var back = aina
        back.isConnected = true
        _ = adding.handle(.device(back), at: .zero + .seconds(2))
        #expect(adding.handle(.deadline, at: .zero + .seconds(5)).isEmpty)
        back.isPaired = true
        #expect(adding.handle(.device(back), at: .zero + .seconds(6)).contains(.progress(.recognising)))
    }

    @Test func aPairingThatIsNotAnsweredIsGivenUpInTimeAndNotBlamedOnDistance() {
        var adding = pairing(aina)
        _ = adding.handle(.status(asleep), at: .zero)
        let actions = adding.handle(.deadline, at: .zero + .seconds(30))
        #expect(actions.contains(.command(.cancelPairing(device: aina.id))))
        let error = failure(actions)
        #expect(error?.code == .pairingFailed)
        #expect(error?.description.contains("not paired in time") == true)
    }

    @Test func aDeviceThatCouldNotBeLookedForIsNotCalledTooFar() {
        for hasScanned in [false, true] {
            var adding = AddStateMachine(
                AccessoryAddition(address: aina.address), library: ProfileLibrary.load(directory: nil).library,
                at: .zero
            ) { _ in "a" }
            if hasScanned { _ = adding.handle(.scanned, at: .zero) }
            let error = failure(adding.handle(.deadline, at: .zero + .seconds(30)))
            #expect(error?.code == .notFound)
            #expect(error?.description.contains("bring it near") == hasScanned)
            #expect(error?.description.contains("no scan") == !hasScanned)
        }
    }
}
