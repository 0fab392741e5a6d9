// The rules of scanning, adding and of the link to a device that is learned, without a bus and without waiting.
import BlueZ
import MonotonicTime
import TestSupport
import Testing
import Vocabulary

@testable import Accessories
@testable import AccessorySetup

private func device(
    _ number: Int, name: String? = nil, services: Set<BluetoothUUID> = [], isPaired: Bool = false,
    isConnected: Bool = false, servicesResolved: Bool = false
) -> DeviceFacts {
    let digits = hexadecimal(number, digits: 4)
    let path = "/org/bluez/hci0/dev_C4_00_00_00_\(digits.prefix(2))_\(digits.suffix(2))"
    return DeviceFacts(
        id: DeviceIdentifier(path: path)!, address: "C4:00:00:00:\(digits.prefix(2)):\(digits.suffix(2))".uppercased(),
        name: name,
        services: services, isPaired: isPaired, isTrusted: false, isConnected: isConnected,
        servicesResolved: servicesResolved, battery: nil, characteristics: [])
}

private let library = ProfileLibrary.load(directory: nil).library

@Suite struct ScanRulesTests {
    private func found(_ actions: [ScanStateMachine.Action]) -> [DiscoveredDevice] {
        actions.compactMap { if case .found(let device) = $0 { device } else { nil } }
    }

    @Test func aDeviceIsToldAtOnceAndThenNotTooOften() {
        var scan = ScanStateMachine(library: library)
        var now = Instant.zero + .seconds(1)
        let facts = device(1, name: "PTT-Z")
        #expect(found(scan.handle(.device(facts), at: now)).first?.profile == "ptt-z")
        var told = 0
        for step in 0..<1_000 {
            now = now + .milliseconds(2)
            told += found(scan.handle(.heard(facts.id, signalStrength: -40 - (step * 7) % 50), at: now)).count
        }
        // Two seconds.
        #expect((3...6).contains(told))
    }

    @Test func whatWaitedIsToldWhenItMayBe() {
        var scan = ScanStateMachine(library: library)
        let start = Instant.zero + .seconds(1)
        let facts = device(1, name: "PTT-Z")
        _ = scan.handle(.device(facts), at: start)
        #expect(scan.handle(.heard(facts.id, signalStrength: -60), at: start + .milliseconds(10)).isEmpty)
        #expect(scan.nextDeadline == start + ScanStateMachine.pause)
        #expect(found(scan.handle(.deadline, at: start + ScanStateMachine.pause)).first?.signalStrength == -60)
        // A little stronger or weaker is no news.
        let later = start + .seconds(2)
        #expect(scan.handle(.heard(facts.id, signalStrength: -62), at: later).isEmpty)
        let end = later + ScanStateMachine.sightTime
        #expect(found(scan.handle(.deadline, at: end)).map(\.signalStrength) == [nil])
        #expect(scan.nextDeadline == nil)
        #expect(scan.handle(.deviceRemoved(facts.id), at: end) == [.lost(address: facts.address)])
    }

    @Test func ofTooManyDevicesTheWeakestAreLeftOut() {
        var scan = ScanStateMachine(library: library)
        let now = Instant.zero + .seconds(1)
        for number in 0..<(ScanStateMachine.devicesMax * 3) {
            let facts = device(number, isPaired: number == 0)
            _ = scan.handle(.device(facts), at: now)
            _ = scan.handle(.heard(facts.id, signalStrength: number == 1 ? -30 : -90), at: now)
        }
        #expect(scan.devices.count == ScanStateMachine.devicesMax)
        #expect(scan.device(address: device(0).address) != nil && scan.device(address: device(1).address) != nil)
        #expect(scan.devices.first?.address == device(1).address)
    }

    @Test func whatIsLeftOutOfTooManyDevicesIsToldToBeLost() {
        var scan = ScanStateMachine(library: library)
        var shown: Set<String> = []
        for number in 0..<(ScanStateMachine.devicesMax + 3) {
            for action in scan.handle(.device(device(number)), at: .zero + .seconds(1)) {
                switch action {
                case .found(let device): shown.insert(device.address)
                case .lost(let address): shown.remove(address)
                }
            }
        }
        #expect(shown == Set(scan.devices.map(\.address)))
    }

    @Test func whatIsKnownAnewIsShownWithIt() {
        var scan = ScanStateMachine(library: ProfileLibrary([]))
        #expect(found(scan.handle(.device(device(1, name: "PTT-Z")), at: .zero)).map(\.profile) == [nil])
        #expect(found(scan.handle(.library(library), at: .zero + .seconds(1))).map(\.profile) == ["ptt-z"])
    }

    @Test func whatItIsAlreadyIsShown() {
        var scan = ScanStateMachine(library: library)
        let now = Instant.zero + .seconds(1)
        let facts = device(1)
        _ = scan.handle(.device(facts), at: now)
        let actions = scan.handle(.accessories([facts.address: AccessoryID("vest")]), at: now + .seconds(1))
        #expect(found(actions).first?.accessory == "vest")
        #expect(scan.handle(.reset, at: now + .seconds(2)) == [.lost(address: facts.address)])
        #expect(scan.devices.isEmpty)
    }
}

@Suite struct LearnedProfileTests {
    @Test(arguments: [nil, "Strange Button 3", String(repeating: "無", count: 82)])
    func aLearnedProfileCanBeReadWhateverTheDeviceIsCalled(name: String?) {
        let words = DecodeRule.TextControl(control: .ptt, pressed: ["+PTT=P"], released: ["+PTT=R"])
        let rule = LearnedRule(
            source: .stream(.serialPort), rule: .text(.init(controls: [words])), isToggleOnly: false, bounces: false)
        let profile = AccessoryProfile(
            rule, id: "x", title: AccessoryNames.title(from: name), device: device(1, name: name), local: nil,
            date: "2026-11-21")
        #expect((try? AccessoryProfile(bytes: Array(profile.text.utf8), file: "x")) == profile)
    }
}

@Suite struct AddRulesTests {
    private func machine(_ addition: AccessoryAddition) -> AddStateMachine {
        AddStateMachine(addition, library: library, at: .zero) {
            AccessoryNames.name(from: $0.name, fallback: "button")
        }
    }

    private func failure(_ actions: [AddStateMachine.Action]) -> AccessoryError? {
        for case .finished(.failure(let error)) in actions { return error }
        return nil
    }

    @Test func whatIsNotFoundIsGivenUpInTime() {
        var add = machine(AccessoryAddition(address: device(1).address))
        #expect(add.firstActions == [.progress(.searching), .scan(true)])
        let end = add.nextDeadline ?? .zero
        #expect(failure(add.handle(.deadline, at: end))?.code == .notFound)
        #expect(add.isOver && add.nextDeadline == nil)
        #expect(add.handle(.device(device(1)), at: end).isEmpty)
    }

    @Test func everyStepHasAnEndAndAllIsTakenBack() {
        let facts = device(1, name: "PTT-Z")
        var add = machine(AccessoryAddition(address: facts.address))
        let configuration = AccessoryConfiguration(id: AccessoryID("ptt-z"), address: facts.address)
        #expect(
            add.handle(.device(facts), at: .zero) == [.scan(false), .configure(configuration), .progress(.connecting)])
        let actions = add.handle(.deadline, at: add.nextDeadline ?? .zero)
        #expect(failure(actions)?.code == .notConnected)
        #expect(
            actions.contains(.unconfigure(configuration.id)) && actions.contains(.command(.remove(device: facts.id))))
    }

    @Test func whatWasKnownBeforeIsNotForgotten() {
        let facts = device(1, name: "PTT-Z", isPaired: true)
        var add = machine(AccessoryAddition(address: facts.address))
        _ = add.handle(.device(facts), at: .zero)
        let actions = add.handle(.cancelled, at: .zero + .seconds(1))
        #expect(failure(actions)?.code == .notConnected)
        #expect(!actions.contains { if case .command(.remove) = $0 { true } else { false } })
    }

    @Test func bondedOnlyPairsAndARefusalIsTold() {
        let facts = device(1, name: "APTT00001", isConnected: true)
        var add = machine(AccessoryAddition(address: facts.address, isBondedOnly: true))
        #expect(add.handle(.device(facts), at: .zero).contains(.command(.pair(device: facts.id))))
        let actions = add.handle(.completed(.pair(device: facts.id), .authentication), at: .zero + .seconds(1))
        #expect(failure(actions)?.code == .pairingFailed)
    }

    @Test func whatHasToBeBondedIsNotAddedWithoutPairing() {
        let facts = device(1, name: "APTT00001")
        var add = machine(AccessoryAddition(address: facts.address, isBondedOnly: true, pairs: false))
        let actions = add.handle(.device(facts), at: .zero)
        #expect(failure(actions)?.code == .refused)
        #expect(!actions.contains(.command(.pair(device: facts.id))))
    }

    @Test func anInputDeviceIsPairedTrustedAndItsRuleIsInTheNotes() {
        let facts = device(1, name: "Clicker", services: ["1812"])
        var add = machine(AccessoryAddition(address: facts.address))
        #expect(add.handle(.device(facts), at: .zero).contains(.command(.pair(device: facts.id))))
        var paired = facts
        (paired.isPaired, paired.isConnected) = (true, true)
        _ = add.handle(.device(paired), at: .zero + .seconds(1))
        let actions =
            add.handle(.completed(.pair(device: facts.id), nil), at: .zero + .seconds(2))
            + add.handle(.saved(nil), at: .zero + .seconds(3))
        guard case .finished(.success(let notes))? = actions.last else {
            Issue.record("\(actions)")
            return
        }
        #expect(actions.contains(.command(.trust(device: facts.id))))
        #expect(
            notes.contains {
                $0.contains("ATTRS{uniq}==\"\(facts.address.lowercased())\"") && $0.contains("TAG+=\"pttd\"")
            })
    }

    @Test func whatCannotBeKeptIsTakenBack() {
        let facts = device(1, name: "Clicker", services: ["1812"], isPaired: true, isConnected: true)
        var add = machine(AccessoryAddition(address: facts.address))
        let begun = add.handle(.device(facts), at: .zero)
        #expect(begun.contains { if case .save = $0 { true } else { false } })
        #expect(failure(add.handle(.saved("the disk is full"), at: .zero))?.code == .notSaved)
    }
}

@Suite struct LearningLinkRulesTests {
    @Test func everythingIsOpenedAndALostLinkIsMadeAgain() {
        var link = LearningLinkStateMachine(address: device(1).address)
        #expect(link.firstActions == [.scan(true)])
        var facts = device(1, services: ["1101"])
        #expect(
            link.handle(.device(facts), at: .zero) == [.scan(false), .command(.connect(device: facts.id))])
        (facts.isConnected, facts.servicesResolved) = (true, true)
        #expect(link.handle(.device(facts), at: .zero).isEmpty)
        let open = BluetoothCommand.openStream(device: facts.id, .serialPort)
        #expect(link.handle(.deadline, at: link.nextDeadline ?? .zero) == [.command(open)])
        #expect(link.handle(.completed(open, nil), at: .zero + .seconds(2)) == [.listening])
        facts.isConnected = false
        #expect(link.handle(.device(facts), at: .zero + .seconds(3)) == [.lost])
        let again = link.handle(.deadline, at: link.nextDeadline ?? .zero)
        #expect(again == [.command(.connect(device: facts.id))])
    }

    @Test func aDeviceThatSaysNothingIsGivenUp() {
        var link = LearningLinkStateMachine(address: device(1).address)
        let facts = device(1, isConnected: true, servicesResolved: true)
        _ = link.handle(.device(facts), at: .zero)
        guard case .failed? = link.handle(.deadline, at: link.nextDeadline ?? .zero).first else {
            Issue.record("not given up")
            return
        }
    }

    @Test func whoWantsPairingIsPairedOnce() {
        var link = LearningLinkStateMachine(address: device(1).address)
        let facts = device(1, services: ["1101"], isConnected: true, servicesResolved: true)
        _ = link.handle(.device(facts), at: .zero)
        _ = link.handle(.deadline, at: link.nextDeadline ?? .zero)
        let open = BluetoothCommand.openStream(device: facts.id, .serialPort)
        let pair = BluetoothCommand.pair(device: facts.id)
        #expect(link.handle(.completed(open, .authentication), at: .zero) == [.command(pair)])
        #expect(link.handle(.completed(pair, nil), at: .zero) == [.command(open)])
        guard case .failed? = link.handle(.completed(open, .authentication), at: .zero).first else {
            Issue.record("asked again and again")
            return
        }
    }
}
