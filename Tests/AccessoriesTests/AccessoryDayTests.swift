// Many presses and many losses on accessories of all transports at once: none lost, none extra, none stuck.
import BlueZ
import MonotonicTime
import TestSupport
import Testing

@testable import Accessories
@testable import AccessoryTestSupport

/// A button by Bluetooth LE, a microphone with a serial stream, and a pedal, each with what is physically so.
private struct Workplace {
    let puck = DeviceFacts.button("ptt-z")
    let aina = DeviceFacts.button("aina-v2", number: 2, name: "APTT12")
    let pedal = LocalDeviceFacts.keys("/dev/input/event7", accessory: "pedal")
    var mic = DeviceFacts.button("ptt-z", number: 3, name: "Microphone")
    var world: SimulatedBluetooth
    /// Who is held, as far as it can be heard.
    var down: Set<String> = []
    var isPlugged = true
    var delivered = 0

    static let names = ["puck", "aina", "mic", "pedal"]

    init() {
        mic.services = []
        mic.characteristics = []
        mic.isPaired = true
        world = SimulatedBluetooth([])
        for name in Self.names { world.send(.configure(configuration(name))) }
        for device in [puck, aina, mic] { world.add(device) }
        world.send(.local(.added(pedal)))
        world.send(.radio(.on))
    }

    func configuration(_ name: String) -> AccessoryConfiguration {
        switch name {
        case "puck": AccessoryConfiguration(id: AccessoryID(name), address: puck.address)
        case "aina": AccessoryConfiguration(id: AccessoryID(name), address: aina.address)
        case "mic": AccessoryConfiguration(id: AccessoryID(name), address: mic.address, profileID: "common-spp")
        default: AccessoryConfiguration(id: AccessoryID(name), profileID: "foot-switch")
        }
    }

    func device(_ name: String) -> DeviceFacts? {
        switch name {
        case "puck": puck
        case "aina": aina
        case "mic": mic
        default: nil
        }
    }

    /// Whether a press would arrive.
    func isHeard(_ name: String) -> Bool {
        switch name {
        case "mic": world.streams.contains(mic.id)
        case "pedal": isPlugged
        default:
            device(name).map { world.devices[$0.id]?.isConnected == true && world.notifying.contains($0.key) } ?? false
        }
    }

    mutating func set(_ name: String, isDown: Bool) {
        guard isHeard(name) else { return }
        if isDown, down.insert(name).inserted { delivered += 1 }
        if !isDown { down.remove(name) }
        switch name {
        case "puck": world.notify(puck.key, [isDown ? 1 : 0])
        case "aina": world.notify(aina.key, [isDown ? 1 : 0])
        case "mic": world.stream(mic.id, Array((isDown ? "+PTT=P" : "+PTT=R").utf8))
        default: world.key(pedal, 183, isDown)
        }
    }

    mutating func lose(_ name: String) {
        down.remove(name)
        if let device = device(name) {
            world.dropLink(device.id)
            // It is let go while it is away.
            if let characteristic = device.characteristics.first { world.values[characteristic.id] = [0] }
        } else if isPlugged {
            isPlugged = false
            world.send(.local(.removed(pedal.id)))
        }
    }

    mutating func bringBack(_ name: String) {
        if let device = device(name) {
            world.wake(device.id)
        } else if !isPlugged {
            isPlugged = true
            world.send(.local(.added(pedal)))
        }
    }

}

@Suite struct AccessoryDayTests {
    @Test func aDayOfPressesLosesNoneAddsNoneAndStrandsNone() throws {
        var seeds = SeededGenerator()
        let seed = seeds.next()
        var random = SeededGenerator(seed: seed)
        print("a day in a minute: seed \(seed)")
        var place = Workplace()
        let names = ["puck", "mic", "pedal"]
        var transmissions = 0
        var drops = 0
        var check = IntentCheck()
        while place.delivered < 1000 {
            let name = names.randomElement(using: &random)!
            let wasIdle = place.down.isEmpty
            switch Int.random(in: 0..<100, using: &random) {
            case 0..<45: place.set(name, isDown: true)
            case 45..<90: place.set(name, isDown: false)
            default:
                drops += 1
                place.lose(name)
                place.world.advance(.milliseconds(Int.random(in: 1...5000, using: &random)))
                place.bringBack(name)
            }
            if wasIdle, !place.down.isEmpty { transmissions += 1 }
            check.follow(place.world.events)
            place.world.events = []
            let statuses = place.world.machine.statuses
            try #require(check.isTransmitting == !place.down.isEmpty, "seed \(seed) \(place.down) \(statuses)")
            try #require(check.problem == nil, "seed \(seed) press \(place.delivered)")
            place.world.advance(.milliseconds(Int.random(in: 20...3000, using: &random)))
        }
        for name in names { place.set(name, isDown: false) }
        check.follow(place.world.events)
        print(
            "\(place.delivered) presses, \(drops) drops: \(check.downs) down, \(check.ups) up, "
                + "\(check.begins) of \(transmissions) transmissions began, \(check.ends) ended")
        #expect(check.downs == place.delivered && check.ups == place.delivered, "seed \(seed)")
        #expect(check.begins == transmissions && check.ends == transmissions, "seed \(seed)")
        #expect(!check.isTransmitting, "seed \(seed)")
    }

    /// 100,000 steps of everything that can happen. All controls hold here, so that a transmission with nothing down is stuck.
    @Test func aRandomLifeOfAllTransportsKeepsIntentsPairedAndStrandsNothing() {
        var seeds = SeededGenerator()
        var steps = 0
        for _ in 0..<125 {
            let seed = seeds.next()
            var random = SeededGenerator(seed: seed)
            var place = Workplace()
            var check = IntentCheck()
            for _ in 0..<800 {
                steps += 1
                step(&place, &check, &random)
                check.follow(place.world.events)
                place.world.events = []
                if check.isTransmitting, place.down.isEmpty { check.problem = "stuck" }
                if let problem = check.problem {
                    Issue.record("\(problem): seed \(seed) step \(steps)")
                    return
                }
            }
            place.world.stopService()
            if place.isPlugged { place.world.send(.local(.removed(place.pedal.id))) }
            check.follow(place.world.events)
            #expect(!check.isTransmitting && check.alerts.isEmpty && check.down.isEmpty, "seed \(seed)")
            #expect(place.world.machine.isIdle, "seed \(seed)")
        }
        print("\(steps) steps")
        #expect(steps >= 100_000)
    }

    private func step(_ place: inout Workplace, _ check: inout IntentCheck, _ random: inout SeededGenerator) {
        let name = Workplace.names.randomElement(using: &random)!
        let id = AccessoryID(name)
        switch Int.random(in: 0..<100, using: &random) {
        case 0..<28: place.set(name, isDown: true)
        case 28..<50: place.set(name, isDown: false)
        case 50..<55: place.lose(name)
        case 55..<65: place.bringBack(name)
        case 65..<68:
            place.down.remove("mic")
            place.world.closeStream(place.mic.id)
        case 68..<72:
            place.world.send(.transmissionEnded)
            check.endedFromElsewhere()
        case 72..<74: place.world.send(.test(id, Bool.random(using: &random)))
        case 74..<76: place.world.send(.quiet(Bool.random(using: &random)))
        case 76..<78:
            place.world.send(.configure(place.configuration(name)))
        case 78..<79:
            place.world.send(.unconfigure(id))
        case 79..<81:
            place.world.send(.radio(.off))
            for name in ["puck", "aina", "mic"] { place.lose(name) }
            place.world.send(.radio(.on))
        case 81..<83:
            place.world.stopService()
            place.down.formIntersection(["pedal"])
            place.world.values = [:]
            place.world.startService()
        case 83..<84: place.world.send(.releaseAll(.suspended))
        case 84..<86: place.world.notify(place.puck.key, [UInt8.random(in: 2...255, using: &random)])
        case 86..<88 where place.isHeard("aina"):
            // Emergency and talk together, then all up.
            place.down.insert("aina")
            place.world.notify(place.aina.key, [3])
            place.world.advance(.seconds(2))
            place.down.remove("aina")
            place.world.notify(place.aina.key, [0])
        case 88..<90: place.world.send(.feedback(AccessoryFeedback.allCases.randomElement(using: &random)!))
        default: place.world.advance(.milliseconds(Int.random(in: 1...5000, using: &random)))
        }
    }
}

/// Follows events, and sees what does not pair.
private struct IntentCheck {
    var isTransmitting = false
    var isUrgent = false
    var alerts: Set<AccessorySource> = []
    var down: Set<AccessorySource> = []
    var problem: String?
    var (begins, ends, downs, ups) = (0, 0, 0, 0)

    mutating func endedFromElsewhere() {
        isTransmitting = false
        isUrgent = false
    }

    mutating func follow(_ events: [AccessoryEvent]) {
        for event in events {
            switch event {
            case .intent(.transmitBegan(_, let urgency), _):
                if isTransmitting { problem = "began twice" }
                begins += 1
                isTransmitting = true
                isUrgent = urgency == .emergency
            case .intent(.transmitEscalated, _):
                if !isTransmitting || isUrgent { problem = "escalated out of turn" }
                isUrgent = true
            case .intent(.transmitEnded, _):
                if !isTransmitting { problem = "ended twice" }
                ends += 1
                endedFromElsewhere()
            case .emergency(let source, let isActive, _):
                let isNews = isActive ? alerts.insert(source).inserted : alerts.remove(source) != nil
                if !isNews { problem = "emergency told twice" }
            case .control(let source, let isDown, _):
                let isNews = isDown ? down.insert(source).inserted : down.remove(source) != nil
                if !isNews { problem = "an edge told twice" }
                if isDown { downs += 1 } else { ups += 1 }
            case .action, .changed, .removed:
                break
            }
        }
    }
}
