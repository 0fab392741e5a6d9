import BusTestSupport
import DBus
import FoundationEssentials
import PTTBus
import PushToTalkCore
import Testing

@testable import pttd

@Suite(.timeLimit(.minutes(1))) struct ForegroundRuleTests {
    private static let session: DBusObjectPath = "/org/freedesktop/login1/session/_31"

    /// What of logind counts: every process belongs to one session.
    private func logind(_ fixture: BusFixture, isActive: Bool) async throws -> DBusConnection {
        let connection = try await fixture.connect()
        let manager = DBusInterface(
            "org.freedesktop.login1.Manager",
            methods: [.init("GetSessionByPID", in: [.init("pid", .uint32)], out: [.init("session", .objectPath)])])
        try await connection.export(
            [DBusExport(manager, methods: ["GetSessionByPID": { _ in [.objectPath(Self.session)] }])],
            at: "/org/freedesktop/login1")
        let session = DBusInterface("org.freedesktop.login1.Session", properties: [.init("Active", .boolean)])
        try await connection.export([DBusExport(session, properties: ["Active": .boolean(isActive)])], at: Self.session)
        try await connection.requestName("org.freedesktop.login1")
        return connection
    }

    @Test func whatAProgramAsksForAtOnceTakesEffectInOrder() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            _ = try await logind(fixture, isActive: true)
            let daemon = try await RunningDaemon(fixture, in: directory)
            let program = try await TestProgram(fixture)
            let uuid = UUID()
            for _ in 1...5 {
                let (joined, left) = await program.client.joinAndLeave(uuid)
                #expect(throws: Never.self) { _ = try joined.get() }
                #expect(throws: Never.self) { try left.get() }
                #expect(try await program.client.active()?.uuid != uuid.uuidString.lowercased())
            }
            _ = try await program.client.joinChannel(uuid, name: "Alpha")
            for _ in 1...5 {
                let stopped = await program.client.beginAndStop(uuid)
                #expect(throws: Never.self) { try stopped.get() }
                let isSilent = try await eventually { try await program.client.active()?.transmitting == false }
                #expect(isSilent)
            }
            try await program.client.requestBeginTransmitting(uuid)
            #expect(try await program.client.active()?.transmitting == true)
            await daemon.stop()
        }
    }

    @Test func aProgramInTheBackgroundNeitherJoinsNorBegins() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let logind = try await logind(fixture, isActive: true)
            let daemon = try await RunningDaemon(fixture, in: directory)
            let program = try await TestProgram(fixture)
            let uuid = try await program.client.joinChannel(UUID(), name: "Alpha")
            try await program.expect(["DidJoinChannel", "ReceivedEphemeralPushToken"])
            program.told.clear()
            // Another user's session comes to the front.
            try await logind.setProperties(
                ["Active": .boolean(false)], of: "org.freedesktop.login1.Session", at: Self.session)
            let isRefused = try await eventually {
                await refusal { try await program.client.requestBeginTransmitting(uuid) } == .appNotForeground
            }
            #expect(isRefused)
            // Its user may talk all the same.
            try await program.client.beginTransmitting(uuid)
            try await program.client.stopTransmitting(uuid)
            try await program.client.leaveChannel(uuid)
            let isKeptOut = try await eventually {
                let code = await refusal { _ = try await program.client.joinChannel(uuid, name: "Alpha") }
                // Where logind did not answer in time it is let in.
                if code == nil { try await program.client.leaveChannel(uuid) }
                return code == .appNotForeground
            }
            #expect(isKeptOut)
            try await program.told.wait { $0.last?.member == "FailedToJoinChannel" }
            #expect(program.told.all.map(\.member).contains("FailedToBeginTransmitting"))
            #expect(program.told.all.last?.member == "FailedToJoinChannel")
            await daemon.stop()
        }
    }
}

extension DaemonClient {
    /// Two requests, the second sent before the first is answered.
    fileprivate func joinAndLeave(_ uuid: UUID) async -> (Result<UUID, any Error>, Result<Void, any Error>) {
        let join = Task { try await self.joinChannel(uuid, name: "Alpha") }
        let leave = Task { try await self.leaveChannel(uuid) }
        return (await join.result, await leave.result)
    }

    /// Likewise; a begin that is stopped before the microphone records may be refused.
    fileprivate func beginAndStop(_ uuid: UUID) async -> Result<Void, any Error> {
        let begin = Task { try await self.requestBeginTransmitting(uuid) }
        let stop = Task { try await self.requestStopTransmitting(uuid) }
        _ = await begin.result
        return await stop.result
    }
}
