import Accessories
import Bridge
import BusTestSupport
import DBus
import DaemonAPI
import FoundationEssentials
import Glibc
import PTTBus
import PushToTalkCore
import Reactor
import RelayProtocol
import RelayServer
import SystemUI
import Testing

@testable import pttd

@Suite(.timeLimit(.minutes(1))) struct ChannelDirectorTests {
    private let name = "org.example.Talk"

    @Test func `changes of one turn of the loop are looked at once`() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory)
            let publisher = daemon.parts.publisher
            await publisher.published()
            let before = await publisher.looks
            try await fixture.loop.run { publisher.assumeIsolated { for _ in 0..<1_000 { $0.changed() } } }
            await publisher.published()
            // One for the turn, one for the wait, and a few for what the daemon itself does meanwhile.
            #expect((1...20).contains(await publisher.looks - before))
            await daemon.stop()
        }
    }

    // MARK: One active channel

    @Test func theConfiguredChannelYieldsToAProgramAndReturns() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory)
            let program = try await TestProgram(fixture, name: name)
            #expect(program.channel == nil)
            #expect(try await program.client.active()?.uuid == daemon.configured.uuidString.lowercased())
            let uuid = try await program.client.joinChannel(UUID(), name: "Alpha")
            try await program.expect(["DidJoinChannel", "ReceivedEphemeralPushToken"])
            #expect(program.told.all.first == .callback(.didJoinChannel(uuid, reason: .developerRequest)))
            let active = try #require(await program.client.active())
            #expect(active.uuid == uuid.uuidString.lowercased())
            #expect(active.owner == name)
            #expect(active.media == .application)
            #expect(
                await refusal { _ = try await program.client.joinChannel(UUID(), name: "B") } == .channelLimitReached)
            try await program.expect(["DidJoinChannel", "ReceivedEphemeralPushToken", "FailedToJoinChannel"])
            program.told.clear()
            try await program.client.leaveChannel(uuid)
            try await program.expect(["DidLeaveChannel"])
            #expect(try await program.client.active()?.uuid == daemon.configured.uuidString.lowercased())
            #expect(try await program.client.active()?.owner == "")
            await daemon.stop()
        }
    }

    @Test func aFailedRequestIsToldToTheDelegateAsWell() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory)
            let program = try await TestProgram(fixture)
            #expect(await refusal { try await program.client.leaveChannel(UUID()) } == .channelNotFound)
            try await program.expect(["FailedToLeaveChannel"])
            await daemon.stop()
        }
    }

    @Test func `a begin and a stop of a channel that was the active one are told to the delegate as well`() async throws
    {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory)
            let program = try await TestProgram(fixture, name: name)
            let busName = try #require(await program.client.uniqueName)
            let caller = BusCaller(
                busName: busName, application: ApplicationID(busName: busName, name: name))
            let director = daemon.parts.director
            let begin = await #expect(throws: PTChannelError.self) {
                try await director.requestBeginTransmitting(UUID(), by: caller)
            }
            let stop = await #expect(throws: PTChannelError.self) {
                try await director.requestStopTransmitting(UUID(), by: caller)
            }
            #expect(begin?.code == .channelNotFound && stop?.code == .channelNotFound)
            try await program.expect(["FailedToBeginTransmitting", "FailedToStopTransmitting"])
            await daemon.stop()
        }
    }

    @Test func `a failed join by invitation is told with the channel of the invitation`() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory)
            let program = try await TestProgram(fixture, name: name)
            _ = try await program.client.joinChannel(UUID(), name: "Alpha")
            try await program.expect(["DidJoinChannel", "ReceivedEphemeralPushToken"])
            program.told.clear()
            // It names no channel that could be told.
            #expect(await program.refusalToJoin(by: "ptt://") == .unknown)
            #expect(await program.refusalToJoin(by: daemon.invitation.text) == .channelLimitReached)
            try await program.expect(["FailedToJoinChannel"])
            let channels = program.told.all.compactMap { call -> UUID? in
                if case .callback(.failedToJoinChannel(let uuid, _), _) = call { uuid } else { nil }
            }
            #expect(channels == [daemon.configured])
            await daemon.stop()
        }
    }

    @Test func aProgramTakesTheConfiguredChannelOverWithTheDaemonsSound() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory)
            let program = try await TestProgram(fixture, name: name)
            let uuid = try await program.client.joinChannel(daemon.configured, name: "Mine")
            #expect(try await program.client.active()?.media == .pttd)
            #expect(try await eventually { try await program.client.active()?.serviceStatus == "ready" })
            try await program.expect(["DidJoinChannel", "ReceivedEphemeralPushToken"])
            program.told.clear()
            try await program.client.requestBeginTransmitting(uuid)
            #expect(try await program.client.active()?.transmitSource == "developerRequest")
            try await program.client.requestStopTransmitting(uuid)
            try await program.expect([
                "DidBeginTransmitting", "DidActivateAudioSession", "DidEndTransmitting", "DidDeactivateAudioSession",
            ])
            await daemon.stop()
        }
    }

    @Test func aUserJoinsByInvitationAndLeaves() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory)
            let client = try await DaemonClient.find(
                on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger)
            let other = try InvitationLink(
                host: "127.0.0.1", port: daemon.invitation.port, channelName: daemon.invitation.channelName,
                channel: ChannelID(), token: InvitationToken(), pin: daemon.invitation.pin)
            let uuid = try await client.joinChannel(nil, name: "", link: other.text)
            #expect(uuid == other.channel.uuid)
            #expect(try await client.active()?.name == daemon.invitation.channelName.text)
            // The relay does not know it: the service tells.
            #expect(try await eventually { try await client.active()?.serviceStatus == "unavailable" })
            try await client.leaveChannel()
            #expect(try await client.active()?.uuid == daemon.configured.uuidString.lowercased())
            await daemon.stop()
        }
    }

    @Test func theAdministratorsPolicyHolds() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory) { $0.policy.allowsJoining = false }
            let program = try await TestProgram(fixture)
            let code = await refusal { _ = try await program.client.joinChannel(UUID(), name: "A") }
            #expect(code == .deviceManagementRestriction)
            try await program.expect(["FailedToJoinChannel"])
            await daemon.stop()
        }
    }

    // MARK: Restoration

    @Test func aChannelSurvivesTheDaemonAndItsProgramIsToldBeforeItsRegistrationReturns() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            var daemon = try await RunningDaemon(fixture, in: directory)
            let program = try await TestProgram(fixture, name: name)
            let uuid = try await program.client.joinChannel(UUID(), name: "Alpha", image: PTImage(named: "call-start"))
            try await program.client.setTransmissionMode(.listenOnly, uuid)
            try await program.client.setAccessoryButtonEventsEnabled(false, uuid)
            try await program.expect(["DidJoinChannel", "ReceivedEphemeralPushToken"])
            let token = program.token
            await program.client.close()
            await daemon.stop()

            daemon = try await RunningDaemon(fixture, in: directory)
            let again = try await TestProgram(fixture, name: name)
            #expect(again.channel == uuid)
            #expect(again.told.all.first == .callback(.didJoinChannel(uuid, reason: .channelRestoration)))
            try await again.expect(["DidJoinChannel", "ReceivedEphemeralPushToken"])
            #expect(again.token == token)
            let active = try #require(await again.client.active())
            #expect(active.name == "Alpha")
            #expect(active.image == PTImage(named: "call-start"))
            #expect(active.transmissionMode == "listenOnly")
            #expect(!active.accessoryButtonEventsEnabled)
            try await again.client.leaveChannel(uuid)
            await again.client.close()
            await daemon.stop()

            daemon = try await RunningDaemon(fixture, in: directory)
            let third = try await TestProgram(fixture, name: name)
            #expect(third.channel == nil)
            await daemon.stop()
        }
    }

    @Test func aNamelessProgramThatOutlivesTheDaemonGetsItsChannelBack() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            var daemon = try await RunningDaemon(fixture, in: directory)
            let program = try await TestProgram(fixture)
            let uuid = try await program.client.joinChannel(UUID(), name: "Alpha")
            await daemon.stop()
            daemon = try await RunningDaemon(fixture, in: directory)
            #expect(try await program.client.registerApplication() == uuid)
            await daemon.stop()
        }
    }

    @Test func aProgramThatComesBackIsToldOfItsChannelAndOthersAreNot() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory)
            let program = try await TestProgram(fixture, name: name)
            let uuid = try await program.client.joinChannel(UUID(), name: "Alpha")
            try await program.client.requestBeginTransmitting(uuid)
            await program.client.close()
            let other = try await TestProgram(fixture, name: "org.example.Other")
            #expect(other.channel == nil)
            // Its death ends its transmission, not its membership.
            #expect(try await eventually { try await other.client.active()?.transmitting == false })
            #expect(try await other.client.active()?.uuid == uuid.uuidString.lowercased())
            let again = try await TestProgram(fixture, name: name)
            #expect(again.channel == uuid)
            try await again.expect(["DidJoinChannel", "ReceivedEphemeralPushToken"])
            #expect(other.told.all.isEmpty)
            await daemon.stop()
        }
    }

    @Test(.enabled(if: PrivateBus.startsServices, "dbus-broker leaves the start of services to systemd"))
    func aProgramIsStartedForItsPushAndThePushWaits() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let marker = directory.path + "/started"
            try fixture.bus.addService(name, command: "/bin/sh -c 'touch \(marker); sleep 5'")
            let daemon = try await RunningDaemon(fixture, in: directory)
            let ann = PTParticipant(name: "Ann", image: nil)
            let program = try await TestProgram(fixture, name: name)
            let uuid = try await program.client.joinChannel(UUID(), name: "Alpha")
            try await program.expect(["DidJoinChannel", "ReceivedEphemeralPushToken"])
            let token = try #require(program.token)
            await program.client.close()
            #expect(try await eventually { await daemon.parts.director.machine.owner == nil })
            // By the relay, as the HTTP endpoint does it.
            let topic = try #require(PushTopic(application: name))
            let payload = Array(#"{"speaker":"Ann"}"#.utf8)
            let push = try #require(
                PushRequest(token: token, topic: topic, payload: payload, priority: 10, lifetime: .zero))
            #expect(try await eventually { await daemon.relay.push(push) == .accepted(.sent) })
            #expect(try await eventually { access(marker, F_OK) == 0 })
            let again = try await TestProgram(fixture, name: name, answer: .activeRemoteParticipant(ann))
            try await again.told.wait { $0.contains { $0.member == "DidActivateAudioSession" } }
            #expect(
                again.told.all.map(\.member) == [
                    "DidJoinChannel", "ReceivedEphemeralPushToken", "IncomingPush", "DidActivateAudioSession",
                ])
            #expect(try await again.client.active()?.activeRemoteParticipant == "Ann")
            try await again.client.setActiveRemoteParticipant(nil, uuid)
            try await again.told.wait { $0.contains { $0.member == "DidDeactivateAudioSession" } }
            await daemon.stop()
        }
    }

    @Test func aChannelWhoseNameIsLostIsNamedByItsProgram() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            var daemon = try await RunningDaemon(fixture, in: directory)
            let program = try await TestProgram(fixture, name: name)
            let uuid = try await program.client.joinChannel(UUID(), name: "Alpha")
            try await program.client.setDescriptor(PTChannelDescriptor(name: "", image: nil), uuid)
            await program.client.close()
            await daemon.stop()
            daemon = try await RunningDaemon(fixture, in: directory)
            let again = try await TestProgram(fixture, name: name)
            #expect(
                again.told.all.prefix(2) == [
                    .channelDescriptor(uuid), .callback(.didJoinChannel(uuid, reason: .channelRestoration)),
                ])
            #expect(try await eventually { try await again.client.active()?.name == "named by its program" })
            await daemon.stop()
        }
    }

    // MARK: Transmissions, pushes, calls

    @Test func buttonsThatAreSwitchedOffBeginNothingAndTheirReleaseIsNotLost() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory)
            let director = daemon.parts.director
            let program = try await TestProgram(fixture, name: name)
            let uuid = try await program.client.joinChannel(UUID(), name: "Alpha")
            let source = AccessorySource(accessory: AccessoryID("vest"), control: .ptt)
            try await program.client.setAccessoryButtonEventsEnabled(false, uuid)
            await director.accessoryWants(.transmitBegan(source, .normal))
            #expect(try await program.client.active()?.transmitting == false)
            try await program.client.setAccessoryButtonEventsEnabled(true, uuid)
            await director.accessoryWants(.transmitBegan(source, .normal))
            #expect(try await program.client.active()?.transmitSource == "handsfreeButton")
            try await program.client.setAccessoryButtonEventsEnabled(false, uuid)
            #expect(try await program.client.active()?.transmitting == true)
            await director.accessoryWants(.transmitEnded(source, .released))
            #expect(try await program.client.active()?.transmitting == false)
            await daemon.stop()
        }
    }

    @Test func theDesktopTalksEndsWhatAnybodyBeganAndLeaves() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory)
            let director = daemon.parts.director
            let program = try await TestProgram(fixture, name: name)
            let uuid = try await program.client.joinChannel(UUID(), name: "Alpha")
            await director.desktopWants(.talkPressed)
            #expect(try await program.client.active()?.transmitSource == "userRequest")
            await director.desktopWants(.talkReleased)
            #expect(try await program.client.active()?.transmitting == false)
            try await program.client.requestBeginTransmitting(uuid)
            await director.desktopWants(.talkReleased)
            #expect(try await program.client.active()?.transmitting == false)
            await director.desktopWants(.leave)
            try await program.told.wait { $0.contains(.callback(.didLeaveChannel(uuid, reason: .userRequest))) }
            #expect(program.told.all.contains(.callback(.didLeaveChannel(uuid, reason: .userRequest))))
            await daemon.stop()
        }
    }

    @Test func whenTheHoursEndTheProgramIsToldSystemPolicy() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory)
            let program = try await TestProgram(fixture, name: name)
            let uuid = try await program.client.joinChannel(UUID(), name: "Alpha")
            await daemon.parts.director.hoursChanged(isOpen: false)
            try await program.told.wait { $0.contains(.callback(.didLeaveChannel(uuid, reason: .systemPolicy))) }
            #expect(program.told.all.last == .callback(.didLeaveChannel(uuid, reason: .systemPolicy)))
            #expect(try await program.client.active() == nil)
            let code = await refusal { _ = try await program.client.joinChannel(uuid, name: "Alpha") }
            #expect(code == .screenTimeRestriction)
            #expect(await refusal { try await program.client.beginTransmitting() } == .channelNotFound)
            await daemon.stop()
        }
    }

    @Test func theServiceIsNoBetterThanTheProgramSays() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory)
            let program = try await TestProgram(fixture, name: name)
            let uuid = try await program.client.joinChannel(daemon.configured, name: "Mine")
            #expect(try await eventually { try await program.client.active()?.serviceStatus == "ready" })
            try await program.client.setServiceStatus(.unavailable, uuid)
            let active = try #require(await program.client.active())
            #expect(active.serviceStatus == "unavailable")
            #expect(!active.serviceStatusDetail.isEmpty)
            #expect(
                await refusal { try await program.client.requestBeginTransmitting(uuid) } == .transmissionNotAllowed)
            try await program.client.setServiceStatus(.ready, uuid)
            try await program.client.requestBeginTransmitting(uuid)
            await daemon.stop()
        }
    }

    @Test func whileAUserTalksAProgramMayNotBeginButEndsIt() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory)
            let program = try await TestProgram(fixture, name: name)
            let user = try await DaemonClient.find(
                on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger)
            let uuid = try await program.client.joinChannel(UUID(), name: "Alpha")
            try await user.refresh()
            try await program.expect(["DidJoinChannel", "ReceivedEphemeralPushToken"])
            program.told.clear()
            try await user.beginTransmitting()
            #expect(try await user.active()?.transmitSource == "userRequest")
            #expect(
                await refusal { try await program.client.requestBeginTransmitting(uuid) } == .transmissionInProgress)
            try await program.client.requestStopTransmitting(uuid)
            try await program.told.wait { $0.contains { $0.member == "DidDeactivateAudioSession" } }
            #expect(
                program.told.all.map(\.member) == [
                    "DidBeginTransmitting", "DidActivateAudioSession", "FailedToBeginTransmitting",
                    "DidEndTransmitting",
                    "DidDeactivateAudioSession",
                ])
            // The user's finger did not move: a fresh press is needed.
            #expect(await refusal { try await user.beginTransmitting() } == .transmissionNotFound)
            try await user.beginTransmitting()
            #expect(try await user.active()?.transmitting == true)
            await daemon.stop()
        }
    }

    @Test func `a press of a channel that is not the active one begins nothing`() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory)
            let director = daemon.parts.director
            let error = await #expect(throws: PTChannelError.self) {
                try await director.pressTalkKey(UUID(), caller: ":1.7")
            }
            #expect(error?.code == .channelNotFound)
            #expect(await !director.releaseTalkKey(caller: ":1.7"), "nothing is held")
            let client = try await DaemonClient.find(
                on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger)
            #expect(try await eventually { try await client.active()?.serviceStatus == "ready" })
            try await director.pressTalkKey(daemon.configured, caller: ":1.7")
            #expect(await director.releaseTalkKey(caller: ":1.7"))
            await daemon.stop()
        }
    }

    @Test func anotherProgramDoesNotChangeTheChannel() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory)
            let program = try await TestProgram(fixture, name: name)
            let uuid = try await program.client.joinChannel(UUID(), name: "Alpha")
            let other = try await TestProgram(fixture)
            try await other.client.refresh()
            await #expect(throws: DaemonClientError.self) {
                try await other.client.setTransmissionMode(.fullDuplex, uuid)
            }
            #expect(try await other.client.active()?.transmissionMode == "halfDuplex")
            // Leaving is everybody's.
            try await other.client.leaveChannel(uuid)
            try await program.told.wait { $0.contains(.callback(.didLeaveChannel(uuid, reason: .userRequest))) }
            #expect(program.told.all.last == .callback(.didLeaveChannel(uuid, reason: .userRequest)))
            await daemon.stop()
        }
    }

    @Test func aReportedPushMayLeaveTheChannel() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory)
            let program = try await TestProgram(fixture, name: name, answer: .leaveChannel)
            let uuid = try await program.client.joinChannel(UUID(), name: "Alpha")
            try await program.client.reportPushToTalkMessage(#"{"over":true}"#, uuid)
            try await program.expect([
                "DidJoinChannel", "ReceivedEphemeralPushToken", "IncomingPush", "DidLeaveChannel",
            ])
            let configured = daemon.configured.uuidString.lowercased()
            #expect(try await eventually { try await program.client.active()?.uuid == configured })
            #expect(daemon.configured != uuid)
            await daemon.stop()
        }
    }

    @Test func aCallEndsTheTransmissionAndRefusesTheNext() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory)
            let program = try await TestProgram(fixture, name: name)
            let uuid = try await program.client.joinChannel(UUID(), name: "Alpha")
            try await program.client.requestBeginTransmitting(uuid)
            try await program.told.wait { $0.contains { $0.member == "DidActivateAudioSession" } }
            program.told.clear()
            var lock: DBusDescriptor? = try await program.client.inhibit(who: "Linphone", why: "a call")
            try await program.expect(["AudioSessionChanged", "DidEndTransmitting", "DidDeactivateAudioSession"])
            #expect(await refusal { try await program.client.requestBeginTransmitting(uuid) } == .callActive)
            try await program.client.refresh()
            #expect(await program.client.snapshot.manager.call == "Linphone: a call")
            _ = lock
            lock = nil
            #expect(
                try await eventually {
                    try await program.client.refresh()
                    return await program.client.snapshot.manager.call.isEmpty
                })
            try await program.client.requestBeginTransmitting(uuid)
            await daemon.stop()
        }
    }

    @Test func aProgramThatDoesNotServeItsDelegateIsNotWaitedForForever() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory)
            let program = try await TestProgram(fixture, name: name)
            let uuid = try await program.client.joinChannel(UUID(), name: "Alpha")
            await program.client.unserveDelegate()
            #expect(try await program.client.registerApplication(name: name) == uuid)
            await daemon.stop()
        }
    }
}
