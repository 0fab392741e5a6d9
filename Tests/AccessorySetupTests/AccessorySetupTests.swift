// Scanning, adding, changing, learning and removing accessories, against a bluetoothd that behaves as BlueZ does, and over restarts.
import BlueZ
import BusTestSupport
import DBus
import FakeBlueZ
import FoundationEssentials
import Glibc
import Logging
import MonotonicTime
import Reactor
import Synchronization
import Testing
import Vocabulary

@testable import Accessories
@testable import AccessorySetup
@testable import AccessoryTestSupport

/// A directory that is gone afterwards.
final class StateDirectory: Sendable {
    let path: String

    init() throws {
        path = FileManager.default.temporaryDirectory.path + "/pttd-state-\(UInt64.random(in: 0...UInt64.max))"
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }
}

/// A daemon's accessories: the service and setting up, with what a file keeps.
private struct Daemon {
    /// Files are written on a loop of their own, as in life: a busy disk takes its time.
    private static let disk = Result { try EventLoop(name: "disk", mayWait: true) }

    let service: AccessoryService
    let setup: AccessorySetup
    let events = Recorder<AccessoryEvent>()
    let told = Recorder<AccessorySetupEvent>()
    let problems: [String]

    init(
        _ fixture: BusFixture, _ directory: String, settings: AccessorySettings = AccessorySettings(),
        disk: EventLoop? = nil
    ) async throws {
        let store = AccessoryStore(directory: directory)
        let restored = store.restore(settings)
        problems = restored.problems
        let (events, told) = (events, told)
        let forwarder = Forwarder()
        service = AccessoryService(
            settings: restored.settings, bus: try await fixture.connect(), logger: fixture.logger
        ) { event in
            events.record(event)
            forwarder.forward(event)
        }
        let setup = AccessorySetup(
            service: service, restored: restored, store: store, disk: try disk ?? Self.disk.get(),
            logger: fixture.logger
        ) {
            told.record($0)
        }
        self.setup = setup
        forwarder.set { event in setup.assumeIsolated { $0.happened(event) } }
        try await service.start()
    }

    var intents: [String] {
        events.all.compactMap {
            guard case .intent(let intent, _) = $0 else { return nil }
            return switch intent {
            case .transmitBegan(let source, _): "began \(source)"
            case .transmitEscalated(let source): "escalated \(source)"
            case .transmitEnded(let source, _): "ended \(source)"
            }
        }
    }

    /// Waits for so many.
    func intents(_ count: Int) async throws -> [String] {
        try await events.wait { $0.count { if case .intent = $0 { true } else { false } } == count }
        return intents
    }

    func stop() async {
        await setup.stop()
        await service.stop()
    }
}

/// Hands events to whoever comes later.
private final class Forwarder: Sendable {
    private let target = Mutex<(@Sendable (AccessoryEvent) -> Void)?>(nil)

    func set(_ new: @escaping @Sendable (AccessoryEvent) -> Void) { target.withLock { $0 = new } }
    func forward(_ event: AccessoryEvent) { target.withLock { $0 }?(event) }
}

private struct Scene {
    let fixture: BusFixture
    let fake: FakeBlueZ
    let state: StateDirectory

    func command(_ line: String) async throws {
        let answer = await fake.perform(line)
        try #require(answer.hasPrefix("ok"), "\(line): \(answer)")
    }

    func daemon(_ settings: AccessorySettings = AccessorySettings()) async throws -> Daemon {
        try await Daemon(fixture, state.path, settings: settings)
    }
}

private let strange = PeripheralProfile(
    "strange", "7d5a0001-1f2e-4b6a-9d3c-0a1b2c3d4e5f", "7d5a0002-1f2e-4b6a-9d3c-0a1b2c3d4e5f", pressed: [0xA5, 0x01],
    released: [0x5A, 0x01], flags: ["notify"], advertisedName: "Strange Button 3")

private func withScene(_ body: (Scene) async throws -> Void) async throws {
    try await withBus { fixture in
        let button = try #require(PeripheralProfile.named("ptt-z"))
        let tag = PeripheralProfile(
            "itag", "0000ffe0-0000-1000-8000-00805f9b34fb", "0000ffe1-0000-1000-8000-00805f9b34fb",
            advertisedName: "iTAG            ")
        let fake = FakeBlueZ(
            on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger,
            peripherals: [
                Peripheral(name: "one", profile: button, address: "C4:00:00:00:00:01"),
                Peripheral(name: "tag", profile: tag, address: "C4:00:00:00:00:02"),
                Peripheral(name: "strange", profile: strange, address: "C4:00:00:00:00:03"),
                Peripheral(
                    name: "aina", profile: try #require(PeripheralProfile.named("aina-v2")),
                    address: "C4:00:00:00:00:04"),
            ])
        try await fake.start()
        try await body(Scene(fixture: fixture, fake: fake, state: try StateDirectory()))
        await fake.stop()
    }
}

/// Why `body` did not work; nil when it did.
private func refusal(_ body: () async throws(AccessoryError) -> Void) async -> AccessoryError? {
    do throws(AccessoryError) {
        try await body()
        return nil
    } catch {
        return error
    }
}

@Suite(.timeLimit(.minutes(2))) struct AccessorySetupTests {
    @Test func aScanShowsWhatIsThereAndWhatItCanBe() async throws {
        try await withScene { scene in
            let daemon = try await scene.daemon()
            let setup = daemon.setup
            #expect(try await eventually { await (try? setup.setScanning(true)) != nil })
            #expect(try await eventually { await setup.devices.count == 4 })
            let devices = await setup.devices
            let one = devices.first { $0.address == "C4:00:00:00:00:01" }
            #expect(one?.profile == "ptt-z" && one?.refusal == nil && one?.accessory == nil)
            let tag = devices.first { $0.address == "C4:00:00:00:00:02" }
            #expect(tag?.profile == nil && tag?.refusal?.isEmpty == false)
            #expect(devices.first { $0.address == "C4:00:00:00:00:03" }?.profile == nil)
            try await daemon.told.wait { told in
                Set(told.compactMap { if case .found(let device) = $0 { device.address } else { nil } }).count == 4
            }
            try await setup.setScanning(false)
            await #expect(setup.devices.isEmpty)
            await daemon.stop()
        }
    }

    @Test func thereIsNoScanWithoutBluetooth() async throws {
        try await withScene { scene in
            try await scene.command("adapter off")
            let daemon = try await scene.daemon()
            let error = await refusal { () throws(AccessoryError) in try await daemon.setup.setScanning(true) }
            #expect(error?.code == .notFound)
            await daemon.stop()
        }
    }

    @Test func anAddedButtonWorksAndIsRememberedUntilItIsRemoved() async throws {
        try await withScene { scene in
            var daemon = try await scene.daemon()
            try await bluetooth(daemon)
            let added = try await daemon.setup.add(AccessoryAddition(address: "c4:00:00:00:00:01"))
            #expect(added.id.text == "ptt-z")
            #expect(added.notes.contains { $0.contains("not bonded") })
            await #expect(daemon.setup.origin(of: added.id) == .added)
            let steps = daemon.told.all.compactMap { if case .progress(_, let step) = $0 { step } else { nil } }
            #expect(steps.first == .searching && steps.contains(.connecting))
            try await scene.command("one press")
            try await scene.command("one release")
            _ = try await daemon.intents(2)
            #expect(daemon.intents == ["began ptt-z/ptt", "ended ptt-z/ptt"])

            await daemon.stop()
            daemon = try await scene.daemon()
            #expect(daemon.problems.isEmpty)
            let service = daemon.service
            #expect(try await eventually { await service.statuses.first?.isReady == true })
            await #expect(daemon.service.statuses.map(\.id.text) == ["ptt-z"])

            try await daemon.setup.remove(added.id)
            await #expect(daemon.service.statuses.isEmpty)
            await daemon.stop()
            daemon = try await scene.daemon()
            await #expect(daemon.service.configurations.isEmpty)
            await daemon.stop()
        }
    }

    @Test func whatCannotBeATalkButtonIsRefusedAndTakenBack() async throws {
        try await withScene { scene in
            let daemon = try await scene.daemon()
            try await bluetooth(daemon)
            let setup = daemon.setup
            func kind(_ addition: AccessoryAddition) async -> AccessoryError.Code? {
                await refusal { () throws(AccessoryError) in _ = try await setup.add(addition) }?.code
            }
            await #expect(kind(AccessoryAddition(address: "C4:00:00:00:00:02")) == .refused)
            await #expect(kind(AccessoryAddition(address: "C4:00:00:00:00:03")) == .notRecognised)
            await #expect(kind(AccessoryAddition(address: "C4:00:00:00:00:01", isBondedOnly: true)) == .refused)
            await #expect(kind(AccessoryAddition(address: "C4:00:00:00:00:01", profileID: "nothing")) == .invalid)
            await #expect(kind(AccessoryAddition(address: "C4:00:00:00:00:01", name: "my button")) == .invalid)
            await #expect(daemon.service.statuses.isEmpty)
            #expect(!fileExists(scene.state.path + "/accessories.toml"))
            _ = try await setup.add(AccessoryAddition(address: "C4:00:00:00:00:01", name: "vest"))
            await #expect(kind(AccessoryAddition(address: "C4:00:00:00:00:01")) == .alreadyConfigured)
            await #expect(kind(AccessoryAddition(address: "C4:00:00:00:00:02", name: "vest")) == .alreadyConfigured)
            await daemon.stop()
        }
    }

    @Test func whoLeavesInTheMiddleLeavesNothingBehind() async throws {
        try await withScene { scene in
            try await scene.command("one adv off")
            let daemon = try await scene.daemon()
            try await bluetooth(daemon)
            let setup = daemon.setup
            async let result = refusal { () throws(AccessoryError) in
                _ = try await setup.add(AccessoryAddition(address: "C4:00:00:00:00:01"))
            }
            try await daemon.told.wait { !$0.isEmpty }
            let second = await refusal { () throws(AccessoryError) in
                _ = try await setup.add(AccessoryAddition(address: "C4:00:00:00:00:01"))
            }
            #expect(second?.code == .busy)
            await setup.cancelAdding(address: "C4:00:00:00:00:01")
            #expect(await result?.code == .notConnected)
            await #expect(daemon.service.statuses.isEmpty)
            await daemon.stop()
        }
    }

    @Test func changesAreRememberedAndAccessoriesOfTheConfigurationStay() async throws {
        try await withScene { scene in
            let settings = AccessorySettings(accessories: [
                AccessoryConfiguration(id: AccessoryID("vest"), address: "C4:00:00:00:00:01"),
                AccessoryConfiguration(id: AccessoryID("away"), address: "C4:00:00:00:00:09"),
            ])
            var daemon = try await scene.daemon(settings)
            let vest = AccessoryID("vest")
            let service = daemon.service
            func configuration(_ id: AccessoryID) async -> AccessoryConfiguration? {
                await daemon.service.configurations.first { $0.id == id }
            }
            #expect(try await eventually { await service.statuses.contains { $0.isReady } })
            let setup = daemon.setup
            #expect(
                await refusal { () throws(AccessoryError) in try await setup.setBondedOnly(true, of: vest) }?.code
                    == .refused)
            #expect(
                await refusal { () throws(AccessoryError) in try await setup.bind(.soft1, to: .channelUp, of: vest)
                }?
                .code == .invalid)
            #expect(
                await refusal { () throws(AccessoryError) in
                    try await setup.bind(.ptt, to: .command(["/bin/true"]), of: vest)
                }?.code == .refused)
            try await daemon.setup.bind(.ptt, to: .emergency, of: vest)
            try await daemon.setup.setGesture(.toggle, of: vest)
            try await daemon.setup.setBondedOnly(true, of: AccessoryID("away"))
            #expect(await refusal { () throws(AccessoryError) in try await setup.remove(vest) }?.code == .refused)
            await daemon.stop()

            daemon = try await scene.daemon(settings)
            #expect(daemon.problems.isEmpty)
            let kept = await configuration(vest)
            #expect(kept?.bindings == [.ptt: .emergency] && kept?.gesture == .toggle && kept?.isBondedOnly == false)
            await #expect(configuration(AccessoryID("away"))?.isBondedOnly == true)
            try await daemon.setup.bind(.ptt, to: nil, of: vest)
            await #expect(configuration(vest)?.bindings == [:])
            await daemon.stop()
        }
    }

    @Test func noAddedAccessoryIsExemptFromABondThatTheConfigurationAsksOfAll() async throws {
        try await withScene { scene in
            var daemon = try await scene.daemon()
            try await bluetooth(daemon)
            let id = try await daemon.setup.add(AccessoryAddition(address: "C4:00:00:00:00:01")).id
            try await daemon.setup.bind(.ptt, to: .emergency, of: id)
            await daemon.stop()

            daemon = try await scene.daemon(AccessorySettings(isBondedOnly: true))
            try await bluetooth(daemon)
            await #expect(daemon.service.configurations.map(\.isBondedOnly) == [true])
            try await daemon.setup.setGesture(.toggle, of: id)
            await #expect(daemon.service.configurations.map(\.isBondedOnly) == [true])
            let setup = daemon.setup
            #expect(
                await refusal { () throws(AccessoryError) in try await setup.setBondedOnly(false, of: id) }?.code
                    == .refused)
            await daemon.stop()

            daemon = try await scene.daemon()
            await #expect(daemon.service.configurations.map(\.isBondedOnly) == [false])
            await daemon.stop()
        }
    }

    @Test func whatCannotBeBondedIsNotAddedWhereTheConfigurationAsksForBonds() async throws {
        try await withScene { scene in
            let daemon = try await scene.daemon(AccessorySettings(isBondedOnly: true))
            try await bluetooth(daemon)
            let setup = daemon.setup
            #expect(
                await refusal { () throws(AccessoryError) in
                    _ = try await setup.add(AccessoryAddition(address: "C4:00:00:00:00:01"))
                }?.code == .refused)
            await #expect(daemon.service.statuses.isEmpty)
            await daemon.stop()
        }
    }

    @Test func changesThatWaitForTheDiskKeepTheirOrderAndHoldUpNothing() async throws {
        try await withScene { scene in
            let vest = AccessoryID("vest")
            let settings = AccessorySettings(accessories: [
                AccessoryConfiguration(id: vest, address: "C4:00:00:00:00:01")
            ])
            let disk = try EventLoop(name: "disk", mayWait: true)
            var daemon = try await Daemon(scene.fixture, scene.state.path, settings: settings, disk: disk)
            let (service, setup, watched) = (daemon.service, daemon.setup, daemon)
            #expect(try await eventually { await service.statuses.contains { $0.isReady } })
            var gate: [Int32] = [-1, -1]
            #expect(pipe(&gate) == 0)
            disk.execute { [gate] in
                var byte: UInt8 = 0
                _ = read(gate[0], &byte, 1)
            }
            let changes = Task {
                async let first: Void = setup.bind(.ptt, to: .emergency, of: vest)
                async let second: Void = setup.setGesture(.toggle, of: vest)
                async let third: Void = setup.bind(.soft1, to: ControlAction.none, of: vest)
                try? await third
                _ = try await (first, second)
            }
            // The disk stands still, and a press is answered.
            try await scene.command("one press")
            #expect(try await eventually { watched.intents.count == 1 })
            try await scene.command("one release")
            #expect(try await eventually { watched.intents.count == 2 })
            #expect(await service.configurations.first { $0.id == vest }?.bindings == [:])
            #expect(write(gate[1], "x", 1) == 1)
            try await changes.value
            for descriptor in gate { close(descriptor) }
            await daemon.stop()

            daemon = try await scene.daemon(settings)
            let kept = await daemon.service.configurations.first { $0.id == vest }
            #expect(kept?.bindings[.ptt] == .emergency && kept?.gesture == .toggle)
            await daemon.stop()
            disk.stop()
        }
    }

    @Test func whatIsRemovedWhileTheDiskIsBusyStaysRemoved() async throws {
        try await withScene { scene in
            let disk = try EventLoop(name: "disk", mayWait: true)
            let daemon = try await Daemon(scene.fixture, scene.state.path, disk: disk)
            try await bluetooth(daemon)
            let setup = daemon.setup
            let id = try await setup.add(AccessoryAddition(address: "c4:00:00:00:00:01")).id
            var gate: [Int32] = [-1, -1]
            #expect(pipe(&gate) == 0)
            disk.execute { [gate] in
                var byte: UInt8 = 0
                _ = read(gate[0], &byte, 1)
            }
            let removal = Task { try await setup.remove(id) }
            #expect(try await eventually { await setup.editsWaiting != nil })
            let change = Task {
                await refusal { () throws(AccessoryError) in try await setup.bind(.ptt, to: .emergency, of: id) }
            }
            #expect(try await eventually { await setup.editsWaiting?.count == 1 })
            #expect(write(gate[1], "x", 1) == 1)
            try await removal.value
            #expect(await change.value?.code == .notFound)
            for descriptor in gate { close(descriptor) }
            await #expect(daemon.service.configurations.isEmpty)
            #expect(AccessoryStore(directory: scene.state.path).load().contents.accessories.isEmpty)
            await daemon.stop()
            disk.stop()
        }
    }

    @Test func anAccessoryThatIsTriedTransmitsNothing() async throws {
        try await withScene { scene in
            let daemon = try await scene.daemon()
            try await bluetooth(daemon)
            let added = try await daemon.setup.add(AccessoryAddition(address: "C4:00:00:00:00:01"))
            try await daemon.setup.setTesting(added.id, true)
            try await scene.command("one press")
            try await scene.command("one release")
            try await daemon.events.wait { $0.count { if case .control = $0 { true } else { false } } == 2 }
            #expect(daemon.intents.isEmpty)
            try await daemon.setup.setTesting(added.id, false)
            try await scene.command("one press")
            _ = try await daemon.intents(1)
            #expect(daemon.intents == ["began ptt-z/ptt"])
            let setup = daemon.setup
            #expect(
                await refusal { () throws(AccessoryError) in
                    try await setup.setTesting(AccessoryID("nothing"), true)
                }?.code == .notFound)
            await daemon.stop()
        }
    }

    @Test func anUnknownButtonIsLearnedAndWorksAfterARestart() async throws {
        try await withScene { scene in
            var daemon = try await scene.daemon()
            try await bluetooth(daemon)
            let person = person(scene, daemon)
            try await daemon.setup.startLearning(LearningRequest(address: "C4:00:00:00:00:03", name: "Crane"))
            let setup = daemon.setup
            #expect(
                await refusal { () throws(AccessoryError) in
                    try await setup.startLearning(LearningRequest(address: nil))
                }?.code == .busy)
            // A scan that is on shows what has been learned.
            try await daemon.told.wait {
                $0.contains { if case .learning(let report) = $0 { report.step == .quiet } else { false } }
            }
            try await setup.setScanning(true)
            let told = try await daemon.told.wait(.seconds(60)) { told in
                told.contains {
                    guard case .learning(let report) = $0 else { return false }
                    return report.step == .done || report.step == .failed
                }
            }
            person.cancel()
            let report = try #require(
                told.reversed().lazy.compactMap { if case .learning(let report) = $0 { report } else { nil } }.first)
            #expect(report.step == .done, "\(report.problem)")
            #expect(report.profile == "crane" && report.problem.isEmpty)
            await #expect(setup.devices.first { $0.address == "C4:00:00:00:00:03" }?.profile == "crane")
            let accessory = AccessoryID(try #require(report.accessory))
            #expect(report.text.contains("pressed"))
            #expect(fileExists(report.file))
            try await scene.command("strange press")
            try await scene.command("strange release")
            _ = try await daemon.intents(2)
            #expect(daemon.intents == ["began \(accessory)/ptt", "ended \(accessory)/ptt"])

            await daemon.stop()
            daemon = try await scene.daemon()
            #expect(daemon.problems.isEmpty, "\(daemon.problems)")
            let service = daemon.service
            #expect(try await eventually { await service.statuses.first?.isReady == true })
            try await scene.command("strange press")
            _ = try await daemon.intents(1)
            #expect(daemon.intents == ["began \(accessory)/ptt"])
            await daemon.stop()
        }
    }

    /// Who does what the session asks.
    private func person(_ scene: Scene, _ daemon: Daemon) -> Task<Void, any Error> {
        Task { [told = daemon.told] in
            var seen = 0
            while !Task.isCancelled {
                let all = told.all
                for event in all[seen...] {
                    guard case .learning(let report) = event else { continue }
                    if report.step == .press { _ = await scene.fake.perform("strange press") }
                    if report.step == .release { _ = await scene.fake.perform("strange release") }
                }
                seen = all.count
                try await Task.sleep(for: .milliseconds(20))
            }
        }
    }

    /// What pttd.toml leaves open counts at once, and after a restart; what it says stays, and that is said.
    @Test(arguments: [nil, "a-strange-one"]) func anAccessoryOfTheConfigurationIsTaughtAnew(profile: String?)
        async throws
    {
        try await withScene { scene in
            // An administrator's file that fits it, too.
            var settings = AccessorySettings(accessories: [
                AccessoryConfiguration(id: AccessoryID("vest"), address: "C4:00:00:00:00:03", profileID: profile)
            ])
            settings.library.add(
                .read(
                    """
                    id = "a-strange-one"
                    title = "Strange"
                    confidence = "capture"
                    sources = ["test"]
                    bonding = "never"
                    [match]
                    names = ["Strange*"]
                    [[input]]
                    service = "7d5a0001-1f2e-4b6a-9d3c-0a1b2c3d4e5f"
                    characteristic = "7d5a0002-1f2e-4b6a-9d3c-0a1b2c3d4e5f"
                    decode = "value"
                    size = 2
                    [[input.control]]
                    name = "emergency"
                    pressed = 0xEE
                    released = 0xEF
                    """))
            var daemon = try await scene.daemon(settings)
            let service = daemon.service
            if profile == nil {
                try #require(try await eventually { await service.statuses.first?.profileID == "a-strange-one" })
            }
            try await bluetooth(daemon)
            let person = person(scene, daemon)
            try await daemon.setup.startLearning(LearningRequest(address: "C4:00:00:00:00:03", name: "Crane"))
            let told = try await daemon.told.wait(.seconds(60)) { told in
                told.contains {
                    guard case .learning(let report) = $0 else { return false }
                    return report.step == .done || report.step == .failed
                }
            }
            person.cancel()
            let report = try #require(
                told.reversed().lazy.compactMap { if case .learning(let report) = $0 { report } else { nil } }.first)
            #expect(report.step == .done && report.profile == "crane", "\(report.problem)")
            if profile != nil {
                // Nothing would be different: that is an error, with what to do.
                #expect(report.accessory == nil)
                #expect(report.problem.contains("write profile = \"crane\""))
                #expect(await daemon.service.configurations.first?.profileID == profile)
                await daemon.stop()
                return
            }
            #expect(report.accessory == "vest" && report.problem.isEmpty)
            for isRestarted in [false, true] {
                if isRestarted {
                    await daemon.stop()
                    daemon = try await scene.daemon(settings)
                    #expect(daemon.problems.isEmpty)
                }
                let service = daemon.service
                #expect(
                    try await eventually {
                        await service.statuses.first.map { $0.isReady && $0.profileID == "crane" } ?? false
                    })
                try await scene.command("strange release")
                try await scene.command("strange press")
                _ = try await daemon.intents(1)
                #expect(daemon.intents == ["began vest/ptt"])
                try await scene.command("strange release")
            }
            await daemon.stop()
        }
    }

    // MARK: Pairing

    private func pair(
        _ scene: Scene, _ daemon: Daemon, _ how: String
    ) async throws -> (error: AccessoryError?, took: Duration) {
        try await scene.command("aina pairing \(how)")
        let setup = daemon.setup
        let begin = Instant.now
        let error = await refusal { () throws(AccessoryError) in
            _ = try await setup.add(AccessoryAddition(address: "C4:00:00:00:00:04", pairs: true))
        }
        return (error, .now - begin)
    }

    /// BlueZ 5.66 may owe the answer to `Pair` for ever.
    @Test func aPairingThatIsNeverAnsweredThoughItIsDoneKeepsNobodyFromScanning() async throws {
        try await withScene { scene in
            let daemon = try await scene.daemon()
            try await bluetooth(daemon)
            let (error, took) = try await pair(scene, daemon, "unanswered")
            #expect(error == nil)
            #expect(took < .seconds(20))
            await #expect(daemon.service.statuses.first?.isBonded == true)
            try await daemon.setup.setScanning(true)
            #expect(try await eventually(.seconds(15)) { await scene.fake.isDiscovering })
            await daemon.stop()
        }
    }

    @Test(arguments: ["hangup", "vanish"])
    func aDeviceThatIsLostWhileItIsPairedIsSaidToAndScansGoOn(how: String) async throws {
        try await withScene { scene in
            let daemon = try await scene.daemon()
            try await bluetooth(daemon)
            let (error, took) = try await pair(scene, daemon, how)
            let words = error?.description ?? "none"
            #expect(error?.code == .notConnected, "\(words)")
            #expect(words.contains(how == "hangup" ? "hung up" : "went away") && !words.contains("press its button"))
            #expect(took < .seconds(20))
            await #expect(daemon.service.statuses.isEmpty)
            try await daemon.setup.setScanning(true)
            #expect(try await eventually(.seconds(15)) { await scene.fake.isDiscovering })
            await daemon.stop()
        }
    }

    @Test func aSessionThatIsLeftEndsAndTheNextOneBegins() async throws {
        try await withScene { scene in
            let daemon = try await scene.daemon()
            try await bluetooth(daemon)
            let setup = daemon.setup
            try await setup.startLearning(LearningRequest(address: "C4:00:00:00:00:03"))
            try await daemon.told.wait {
                $0.contains { if case .learning(let report) = $0 { report.step == .quiet } else { false } }
            }
            await setup.cancelLearning()
            try await setup.startLearning(LearningRequest(address: "C4:00:00:00:00:03"))
            await setup.cancelLearning()
            await #expect(daemon.service.statuses.isEmpty)
            #expect(
                await refusal { () throws(AccessoryError) in
                    try await setup.startLearning(LearningRequest(address: nil))
                }?.code == .notFound)
            await daemon.stop()
        }
    }

    private func bluetooth(_ daemon: Daemon) async throws {
        let setup = daemon.setup
        try #require(try await eventually { await (try? setup.setScanning(true)) != nil })
        try await setup.setScanning(false)
        daemon.told.clear()
    }
}
