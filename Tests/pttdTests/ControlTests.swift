// What the controls of an accessory do, from the notification of a simulated bluetoothd to the relay.
import Accessories
import Audio
import Bridge
import BusTestSupport
import ChannelService
import DBus
import FakeBlueZ
import FoundationEssentials
import Glibc
import Logging
import MonotonicTime
import PTTBus
import PushToTalkCore
import RelayProtocol
import RelayServer
import Testing
import Vocabulary

@testable import pttd

@Suite(.timeLimit(.minutes(2))) struct ControlTests {
    /// The bits of an AINA's controls.
    private enum Bit: String { case ptt = "01", emergency = "02", soft1 = "08", soft2 = "10", call = "20", none = "00" }

    private struct Scene {
        let fixture: BusFixture
        let directory: TemporaryDirectory
        let fake: FakeBlueZ
        let daemon: RunningDaemon
        let client: DaemonClient

        func set(_ bit: Bit) async throws {
            let answer = await fake.perform("vest notify \(bit.rawValue)")
            try #require(answer.hasPrefix("ok"), "\(answer)")
        }

        func click(_ bit: Bit) async throws {
            try await set(bit)
            try await set(.none)
        }

        /// The active channel. Between two of them there is none for a moment.
        func active() async throws -> ChannelProperties {
            let isThere = try await eventually { try await client.active() != nil }
            try #require(isThere)
            return try #require(await client.snapshot.activeChannel?.properties)
        }
    }

    /// A daemon on the channels Local, Workshop and Gate with an AINA that is ready.
    private func withScene(
        runsCommands: Bool = false, command: String = "touch", _ body: (Scene) async throws -> Void
    ) async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let vest = try #require(Peripheral("vest=aina-v2", index: 0))
            let fake = FakeBlueZ(
                on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger, peripherals: [vest])
            try await fake.start()
            let daemon = try await RunningDaemon(
                fixture, in: directory, channels: ["Workshop", "Gate"], runsCommands: runsCommands
            ) { configuration in
                configuration.accessories = AccessorySettings(accessories: [
                    AccessoryConfiguration(
                        id: AccessoryID("vest"), address: "C4:00:00:00:00:00",
                        bindings: [
                            .soft1: .channelUp, .soft2: .replayLast,
                            .call: .command([command, directory.path + "/called"]),
                        ])
                ])
            }
            let client = try await DaemonClient.find(
                on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger)
            let scene = Scene(
                fixture: fixture, directory: directory, fake: fake, daemon: daemon, client: client)
            let isReady = try await eventually {
                let channel = try await client.active()
                let snapshot = await client.snapshot
                return channel?.serviceStatus == "ready" && snapshot.accessories.values.contains { $0.ready }
            }
            try #require(isReady)
            try await body(scene)
            await client.close()
            await daemon.stop()
            await fake.stop()
        }
    }

    @Test func aSoftKeyChangesTheChannelAndTheChoiceOutlivesTheDaemon() async throws {
        try await withScene { scene in
            let snapshot = await scene.client.snapshot
            #expect(snapshot.manager.channels == ["Local", "Workshop", "Gate"])
            try await scene.click(.soft1)
            #expect(try await eventually { try await scene.active().name == "Workshop" })
            // Fast presses: the last one counts.
            for _ in 0..<4 { try await scene.click(.soft1) }
            #expect(try await eventually { try await scene.active().name == "Gate" })
            #expect(try await scene.client.changeChannel("up") == scene.daemon.configured)
            #expect(try await scene.client.changeChannel("Gate") == scene.daemon.channels[2].uuid)
            #expect(await refusal { try await scene.client.changeChannel("Attic") } == .channelNotFound)
            await scene.daemon.parts.stop()
            let again = try await RunningDaemon(scene.fixture, in: scene.directory, like: scene.daemon)
            #expect(try await eventually { (try? await scene.active().name) == "Gate" })
            await again.parts.stop()
        }
    }

    @Test func aTransmissionEndsBeforeTheChannelIsChanged() async throws {
        try await withScene { scene in
            try await scene.set(.ptt)
            #expect(try await eventually { try await scene.active().transmitting })
            // PTT is held on, and the soft key with it.
            let answer = await scene.fake.perform("vest notify 09")
            #expect(answer.hasPrefix("ok"))
            #expect(try await eventually { try await scene.active().name == "Workshop" })
            #expect(try await eventually { try await !scene.active().transmitting })
            #expect(try await eventually { try await scene.active().serviceStatus == "ready" })
            try await scene.set(.none)
            try await scene.set(.ptt)
            #expect(try await eventually { try await scene.active().transmitting }, "a fresh press talks")
            try await scene.set(.none)
            #expect(try await eventually { try await !scene.active().transmitting })
        }
    }

    @Test func whatTheRelayKeepsIsListedAndPlayedAgain() async throws {
        try await withScene { scene in
            #expect(await refusal { _ = try await scene.client.keptMessages() } == .transmissionNotFound)
            let channel = ChannelID(scene.daemon.configured)
            let relay = scene.daemon.relay
            await relay.setRetention(BurstRetention(bursts: 3, time: .seconds(60)), of: channel)
            try await scene.set(.ptt)
            #expect(try await eventually { try await scene.active().transmitting })
            #expect(try await eventually { await relay.counters.packetsForwarded > 20 })
            try await scene.set(.none)
            #expect(
                try await eventually {
                    await relay.statistics?.channels.contains { $0.id == channel && $0.counters.bursts > 0 } == true
                })
            let message = try #require(try await scene.client.keptMessages().first)
            #expect(message.isOwn && message.canBeOpened && !message.isGoingOn && message.milliseconds >= 190)
            let age = Int64(Date().timeIntervalSince1970 * 1_000) - message.beganAt
            #expect((0...60_000).contains(age), "\(age) ms")
            try await scene.client.replayKept(message.id)
            #expect(
                try await eventually {
                    try await scene.active().activeRemoteParticipant == "\(message.talker) (again)"
                })
            #expect(try await eventually { try await scene.active().activeRemoteParticipant == "" })
            let unknown = BurstName(ssrc: SSRC(rawValue: 1), keyID: 1).description
            #expect(await refusal { try await scene.client.replayKept(unknown) } == .transmissionNotFound)
            #expect(await refusal { try await scene.client.replayKept("no name") } == .transmissionNotFound)
        }
    }

    @Test func aSoftKeyReplaysTheLastMessage() async throws {
        try await withScene { scene in
            let service = await scene.daemon.parts.director.channel
            // Nothing was said yet.
            try await scene.click(.soft2)
            #expect(await refusal { try await scene.client.replayLast() } == .transmissionNotFound)
            await service.hear("Ann", packets: 100)
            #expect(try await eventually { try await scene.active().activeRemoteParticipant == "" })
            try await scene.click(.soft2)
            #expect(try await eventually { try await scene.active().activeRemoteParticipant == "Ann (again)" })
            try await scene.set(.ptt)
            #expect(try await eventually { try await scene.active().transmitting }, "a press ends it")
            #expect(try await scene.active().activeRemoteParticipant == "")
            try await scene.set(.none)
        }
    }

    @Test func anEmergencyBeginsAfterItsGuardAndEndsWithTheRelease() async throws {
        try await withScene { scene in
            // Touched: nothing.
            try await scene.click(.emergency)
            try await Task.sleep(for: .milliseconds(1_300))
            #expect(try await !scene.active().transmitting)
            let pressed = Instant.now
            try await scene.set(.emergency)
            #expect(try await eventually { try await scene.active().transmitting })
            #expect(Instant.now - pressed > .milliseconds(900))
            #expect(try await scene.active().transmitSource == "handsfreeButton")
            try await scene.set(.none)
            #expect(try await eventually { try await !scene.active().transmitting })
        }
    }

    @Test func anEmergencyThatJoinsAHeldKeyWhileButtonsAreSwitchedOffEndsWithTheRelease() async throws {
        try await withScene { scene in
            try await scene.set(.ptt)
            #expect(try await eventually { try await scene.active().transmitting })
            try await scene.client.setAccessoryButtonEventsEnabled(false, scene.daemon.configured)
            // PTT is held on, and the emergency key with it.
            let answer = await scene.fake.perform("vest notify 03")
            #expect(answer.hasPrefix("ok"))
            let isDeclared = try await eventually {
                try await scene.client.refresh()
                return await scene.client.snapshot.accessoryManager.emergencyActive
            }
            #expect(isDeclared)
            #expect(try await scene.active().transmitting)
            try await scene.set(.none)
            #expect(try await eventually { try await !scene.active().transmitting })
        }
    }

    @Test(arguments: [true, false])
    func aCommandRunsInAUsersDaemonOnly(isUsers: Bool) async throws {
        try await withScene(runsCommands: isUsers) { scene in
            let file = scene.directory.path + "/called"
            try await scene.click(.call)
            if isUsers {
                #expect(try await eventually { access(file, F_OK) == 0 })
            } else {
                try await scene.click(.soft1)
                #expect(try await eventually { try await scene.active().name == "Workshop" })
                #expect(access(file, F_OK) != 0)
            }
        }
    }
}

extension ChannelService {
    /// Somebody speaks, as if it had come by the relay; the packets are silence.
    fileprivate func hear(_ name: String, packets: Int) {
        burstBegan(PTParticipant(name: name, image: nil))
        for number in 0..<packets {
            received(
                .init(
                    sequence: UInt16(number), timestamp: UInt32(number * 960), marker: number == 0,
                    payload: [0xF8, 0xFF, 0xFE], receivedAt: .now))
        }
        burstEnded(lastSequence: UInt16(packets - 1))
    }
}
