// Streams on a real bus, against a bluetoothd that hands descriptors over as BlueZ does, and a BlueALSA: from the bytes to the reports.
import BlueZ
import BusTestSupport
import DBus
import FakeBlueZ
import MonotonicTime
import Reactor
import TestSupport
import Testing

@testable import Accessories

/// A headset "one" that BlueZ knows, and the host.
private final class Scene: Sendable {
    let fixture: BusFixture
    let fake: FakeBlueZ
    let host: BlueZHost
    let reports = Recorder<BluetoothReport>()
    let device = DeviceIdentifier(path: "/org/bluez/hci0/dev_C4_00_00_00_00_00")!

    init(_ fixture: BusFixture) async throws {
        self.fixture = fixture
        var configuration = FakeBlueZ.Configuration()
        configuration.linkDelay = .milliseconds(2)
        configuration.connectTimeout = .milliseconds(300)
        fake = FakeBlueZ(
            on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger,
            peripherals: [try #require(Peripheral("one=aina-v1", index: 0))], configuration: configuration)
        try await fake.start()
        host = BlueZHost(on: try await fixture.connect(), logger: fixture.logger)
        let reports = reports
        try await host.start { reports.record($0) }
        _ = try await reports.wait { $0.contains { if case .radio(.on) = $0 { true } else { false } } }
        #expect(await host.perform(.startDiscovery) == nil)
        _ = try await reports.wait { $0.contains { if case .device = $0 { true } else { false } } }
        #expect(await host.perform(.stopDiscovery) == nil)
    }

    func open(_ kind: StreamKind = .serialPort) async -> BluetoothFailure? {
        await host.perform(.openStream(device: device, kind))
    }

    var bytes: [UInt8] { chunks.flatMap { $0 } }

    var chunks: [[UInt8]] {
        reports.all.compactMap { if case .streamBytes(_, _, let bytes, _) = $0 { bytes } else { nil } }
    }

    var closings: Int { reports.all.count { if case .streamClosed = $0 { true } else { false } } }

    var offers: Int { reports.all.count { if case .streamOffered = $0 { true } else { false } } }

    func say(_ text: String) async { #expect(await fake.sendSerial("one", Array(text.utf8))) }

    func hears(_ text: String, _ location: SourceLocation = #_sourceLocation) async throws {
        _ = try await reports.wait { _ in self.bytes.count >= text.utf8.count }
        #expect(String(decoding: bytes, as: UTF8.self) == text, sourceLocation: location)
    }

    func command(_ line: String) async throws {
        let answer = await fake.perform(line)
        try #require(answer.hasPrefix("ok"), "\(line): \(answer)")
    }
}

private func withScene(_ body: (Scene) async throws -> Void) async throws {
    try await withBus { fixture in
        let scene = try await Scene(fixture)
        try await body(scene)
        await scene.host.stop()
        await scene.fake.stop()
    }
}

@Suite struct StreamHostTests {
    @Test func wordsAreReportedWithTheirTimeAndTheEndToo() async throws {
        try await withScene { scene in
            #expect(await scene.open() == nil)
            let before = Instant.now
            try await scene.command("one press")
            try await scene.command("one release")
            try await scene.hears("+PTT=P+PTT=R")
            for case .streamBytes(let device, let kind, _, let time) in scene.reports.all {
                #expect(device == scene.device)
                #expect(kind == .serialPort)
                #expect(time >= before && time <= .now)
            }
            // Opening what is open is no error and changes nothing.
            #expect(await scene.open() == nil)
            try await scene.command("one hangup")
            _ = try await scene.reports.wait { _ in scene.closings == 1 }
            #expect(scene.closings == 1)
            #expect(await scene.open() == nil)
            await scene.say("again")
            try await scene.hears("+PTT=P+PTT=Ragain")
        }
    }

    @Test func whatWasSaidBeforeTheAnswerIsNotLost() async throws {
        try await withScene { scene in
            // It is wanted from its first opening on.
            #expect(await scene.open() == nil)
            try await scene.command("one hangup")
            _ = try await scene.reports.wait { _ in scene.closings == 1 }
            try await scene.command("one dial")
            #expect(scene.offers == 1)
            await scene.say("+PTT=P")
            try await Task.sleep(for: .milliseconds(20))
            #expect(scene.bytes.isEmpty)
            #expect(await scene.open() == nil)
            try await scene.hears("+PTT=P")
        }
    }

    @Test func aDeviceThatNobodyAskedForIsNotTaken() async throws {
        try await withScene { scene in
            // The profile is registered for another one.
            let other = DeviceIdentifier(path: "/org/bluez/hci0/dev_C4_00_00_00_00_01")!
            #expect(await scene.host.perform(.openStream(device: other, .serialPort)) != nil)
            #expect(await scene.fake.perform("one dial").hasPrefix("err"))
            #expect(scene.offers == 0)
            // And one that is asked for no more.
            #expect(await scene.open() == nil)
            #expect(await scene.host.perform(.closeStream(device: scene.device, .serialPort)) == nil)
            let isHungUp = try await eventually { await !scene.fake.hasSerial("one") }
            #expect(isHungUp)
            #expect(await scene.fake.perform("one dial").hasPrefix("err"))
            #expect(scene.closings == 0)
        }
    }

    @Test func closingHangsUpThoughBluetoothdKeepsADescriptor() async throws {
        try await withScene { scene in
            #expect(await scene.open() == nil)
            #expect(await scene.fake.hasSerial("one"))
            #expect(await scene.host.perform(.closeStream(device: scene.device, .serialPort)) == nil)
            let isHungUp = try await eventually { await !scene.fake.hasSerial("one") }
            #expect(isHungUp)
            #expect(scene.closings == 0)
        }
    }

    @Test func aMissingRecordIsToldAlsoWhenBluetoothdSaysThatAllIsWell() async throws {
        try await withScene { scene in
            await scene.fake.setMissingRecords(1, of: "one")
            #expect(await scene.open() == .notSupported)
            await scene.fake.setMissingRecords(1, of: "one", silently: true)
            #expect(await scene.open() == .notSupported)
            #expect(await scene.open() == nil)
        }
    }

    @Test func anAbsentDeviceAndABondThatIsMissingAreTold() async throws {
        try await withScene { scene in
            try await scene.command("one adv off")
            #expect(await scene.open() == .timedOut)
            try await scene.command("one adv on")
            await scene.fake.setNeedsBond(true, of: "one")
            #expect(await scene.open() == .authentication)
            #expect(await scene.host.perform(.pair(device: scene.device)) == nil)
            #expect(await scene.open() == nil)
        }
    }

    @Test func twoAttemptsAtOnceAreOneConnection() async throws {
        try await withScene { scene in
            async let first = scene.open()
            async let second = scene.open()
            let answers = await [first, second]
            #expect(answers.contains(nil))
            #expect(answers.allSatisfy { $0 == nil || $0 == .inProgress })
            await scene.say("x")
            try await scene.hears("x")
        }
    }

    @Test func theStartCommandReachesTheDevice() async throws {
        try await withScene { scene in
            let write = BluetoothCommand.writeStream(device: scene.device, .serialPort, [1])
            #expect(await scene.host.perform(write) == .notConnected)
            #expect(await scene.open() == nil)
            #expect(await scene.host.perform(write) == nil)
            let isReceived = try await eventually { await scene.fake.receivedSerial("one") == [1] }
            #expect(isReceived)
            let long = BluetoothCommand.writeStream(device: scene.device, .serialPort, Array(repeating: 1, count: 513))
            #expect(await scene.host.perform(long) != nil)
        }
    }

    @Test func aFloodComesWholeInBoundedPiecesAndOthersHaveTheirTurns() async throws {
        try await withScene { scene in
            #expect(await scene.open() == nil)
            var flood = Array(repeating: Array("+PTT=P\0rubbish\u{FF}+PTT=R".utf8), count: 4000).flatMap { $0 }
            flood = Array(flood.prefix(100_000))
            let turns = Recorder<Int>()
            let scene = scene
            try await scene.fixture.loop.run {
                func turn(_ number: Int) {
                    turns.record(scene.bytes.count)
                    guard number < 20 else { return }
                    scene.fixture.loop.schedule(at: .now) { turn(number + 1) }
                }
                scene.fixture.loop.schedule(at: .now) { turn(0) }
            }
            #expect(await scene.fake.sendSerial("one", flood))
            let sent = flood
            _ = try await scene.reports.wait { _ in scene.bytes.count >= sent.count }
            #expect(scene.bytes == sent)
            #expect(scene.chunks.allSatisfy { $0.count <= StreamReader.reportMax })
            // Between two turns of others at most so much is read.
            let read = turns.all
            let most = zip(read, read.dropFirst()).map { $1 - $0 }.max() ?? 0
            #expect(most <= 2 * StreamReader.reportMax * StreamReader.reportsPerTurn, "\(most) bytes in a turn")
        }
    }

    @Test(arguments: ["drop", "adapter off", "daemon stop"])
    func everyLossEndsTheStream(loss: String) async throws {
        try await withScene { scene in
            #expect(await scene.open() == nil)
            try await scene.command("one press")
            try await scene.hears("+PTT=P")
            try await scene.command(loss == "drop" ? "one drop" : loss)
            // With bluetoothd the radio's end says it all; else the stream's end is told.
            _ = try await scene.reports.wait { reports in
                reports.contains {
                    switch $0 {
                    case .streamClosed: true
                    case .radio(.noService): loss == "daemon stop"
                    default: false
                    }
                }
            }
            #expect(scene.closings <= 1)
            #expect(loss == "daemon stop" || scene.closings == 1)
            if loss == "drop" { #expect(await scene.open() == nil) } else { #expect(await scene.open() != nil) }
        }
    }

    @Test func aRestartedBluetoothdHasThePortOpenedAgain() async throws {
        try await withScene { scene in
            #expect(await scene.open() == nil)
            scene.reports.clear()
            try await scene.command("daemon restart")
            _ = try await scene.reports.wait { $0.contains { if case .radio(.on) = $0 { true } else { false } } }
            #expect(try await eventually { await scene.open() == nil })
            await scene.say("+PTT=P")
            try await scene.hears("+PTT=P")
        }
    }

    @Test func handsFreeCommandsComeThroughBlueALSA() async throws {
        try await withScene { scene in
            guard case .other(let words)? = await scene.open(.handsFree) else {
                Issue.record("opened without a service")
                return
            }
            #expect(words == BlueALSAError.notRunning.description)
            let service = FakeBlueALSA(
                on: .address(scene.fixture.bus.address), loop: scene.fixture.loop, logger: scene.fixture.logger,
                headset: "/org/bluealsa/hci0/dev_C4_00_00_00_00_00/rfcomm")
            try await service.start()
            #expect(await scene.open(.handsFree) == nil)
            for command in ["AT+XEVENT=TALK,1\r", "AT+XEVENT=TALK,0\r"] { #expect(await service.command(command)) }
            try await scene.hears("AT+XEVENT=TALK,1\rAT+XEVENT=TALK,0\r")
            #expect(scene.chunks.count == 2)
            await service.hangUp()
            _ = try await scene.reports.wait { _ in scene.closings == 1 }
            #expect(await scene.open(.handsFree) == nil)
            await service.stop()
            _ = try await scene.reports.wait { _ in scene.closings == 2 }
            #expect(scene.closings == 2)
        }
    }
}
