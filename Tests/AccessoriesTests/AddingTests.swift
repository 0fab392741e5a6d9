// Adding an accessory, as its rules see it.
import BlueZ
import MonotonicTime
import Testing

@testable import Accessories

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
}
