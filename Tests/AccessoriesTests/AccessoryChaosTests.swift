// Random lives from a seed: whatever happens, begins and ends alternate, nothing sticks, and nothing runs in a circle.
import BlueZ
import MonotonicTime
import TestSupport
import Testing

@testable import Accessories
@testable import AccessoryTestSupport

@Suite struct AccessoryChaosTests {
    @Test func aRandomLifeNeverStrandsATransmission() {
        var seeds = SeededGenerator()
        for _ in 0..<100 {
            let seed = seeds.next()
            var random = SeededGenerator(seed: seed)
            let devices = (1...3).map { DeviceFacts.button("ptt-z", number: $0) }
            var bluetooth = SimulatedBluetooth(
                devices.map { AccessoryConfiguration(id: AccessoryID($0.address), address: $0.address) })
            bluetooth.undiscovered = devices
            bluetooth.awake = Set(devices.map(\.id))
            bluetooth.send(.radio(.on))
            for _ in 0..<300 { step(&bluetooth, devices, &random) }
            check(bluetooth, seed)
            // Whatever the state, the end of Bluetooth releases everything …
            bluetooth.stopService()
            let isStuck = isTransmitting(bluetooth)
            #expect(!isStuck, "seed \(seed)")
            // … and afterwards every button works again.
            bluetooth.failures = []
            bluetooth.holdsConnects = false
            for device in devices {
                bluetooth.devices[device.id] = bluetooth.devices[device.id] ?? device
                bluetooth.devices[device.id]?.characteristics = device.characteristics
            }
            bluetooth.awake = Set(devices.map(\.id))
            bluetooth.startService()
            bluetooth.advance(.seconds(400))
            for device in devices {
                #expect(bluetooth.status(device.address)?.isReady == true, "seed \(seed) \(bluetooth.machine.statuses)")
                let before = bluetooth.intents.count
                bluetooth.notify(device.key, [0])
                bluetooth.notify(device.key, [1])
                bluetooth.notify(device.key, [0])
                #expect(bluetooth.intents.count == before + 2, "seed \(seed)")
            }
        }
    }

    private func step(
        _ bluetooth: inout SimulatedBluetooth, _ devices: [DeviceFacts], _ random: inout SeededGenerator
    ) {
        let device = devices.randomElement(using: &random)!
        switch Int.random(in: 0..<100, using: &random) {
        case 0..<35: bluetooth.notify(device.key, [UInt8.random(in: 0...1, using: &random)])
        case 35..<45:
            let garbage = (0..<Int.random(in: 0...4, using: &random)).map { _ in
                UInt8.random(in: 0...255, using: &random)
            }
            bluetooth.notify(device.key, garbage)
        case 45..<55: bluetooth.dropLink(device.id)
        case 55..<65: bluetooth.wake(device.id)
        case 65..<68: bluetooth.remove(device.id)
        case 68..<72: bluetooth.add(device)
        case 72..<75: bluetooth.send(.radio(.off))
        case 75..<79: bluetooth.send(.radio(.on))
        case 79..<81: bluetooth.stopService()
        case 81..<84: bluetooth.startService()
        case 84..<87: bluetooth.change(device.id) { $0.servicesResolved.toggle() }
        case 87..<89: bluetooth.send(.transmissionEnded)
        case 89..<92:
            let failures: [BluetoothFailure] = [
                .inProgress, .abortedLocally, .timedOut, .notReady, .notConnected, .notPermitted, .doesNotExist,
                .serviceGone, .other("?"),
            ]
            bluetooth.failures.append(({ _ in true }, failures.randomElement(using: &random)!))
        default: bluetooth.advance(.milliseconds(Int.random(in: 1...20_000, using: &random)))
        }
    }

    private func isTransmitting(_ bluetooth: SimulatedBluetooth) -> Bool {
        var transmitting = false
        for case .intent(let intent, _) in bluetooth.events {
            if case .transmitBegan = intent { transmitting = true } else { transmitting = false }
        }
        // An end from elsewhere is not told back, so what counts then is what is held.
        return transmitting && bluetooth.machine.statuses.contains(where: \.isHeld)
    }

    private func check(_ bluetooth: SimulatedBluetooth, _ seed: UInt64) {
        var last: Instant?
        for case .intent(_, let time) in bluetooth.events {
            #expect(last.map { $0 <= time } ?? true, "seed \(seed)")
            last = time
        }
        #expect(bluetooth.commands.count < 5_000, "seed \(seed): \(bluetooth.commands.count) commands")
    }
}
