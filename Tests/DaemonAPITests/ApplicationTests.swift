// Programs with a channel manager: registering, being called, leaving, being started.
import BusTestSupport
import DBus
import DaemonAPI
import FoundationEssentials
import PTTBus
import PushToTalkCore
import Reactor
import Testing
import Vocabulary

/// A program: a client with a delegate that notes its calls.
private struct Program {
    let client: DaemonClient
    let calls = Recorder<DelegateCall>()
    let busName: String

    init(_ fixture: BusFixture, name: String = "", answer: DelegateHandler? = nil) async throws {
        client = try await Served.client(fixture)
        busName = try #require(await client.uniqueName)
        try await client.serveDelegate { [calls] call in
            calls.record(call)
            return try await answer?(call) ?? .done
        }
        if !name.isEmpty { try await client.takeName(name) }
    }
}

@Suite(.timeLimit(.minutes(1))) struct ApplicationTests {
    private static let name = "org.example.Radio"
    private static let token = PushToken([UInt8](repeating: 7, count: 100))!
    private static let session = AudioSessionDescription(
        inputDevice: "plughw:1", outputDevice: "default", sampleRateHertz: 48_000)
    private static let descriptor = PTChannelDescriptor(name: "Dispatch", image: PTImage(data: pngBytes))

    private static func every(_ uuid: UUID) -> [DelegateCall] {
        let error = PTChannelError(.callActive, explanation: "a call is active")
        return [
            .callback(.didJoinChannel(uuid, reason: .channelRestoration)),
            .callback(.failedToJoinChannel(uuid, error)), .callback(.didLeaveChannel(uuid, reason: .systemPolicy)),
            .callback(.failedToLeaveChannel(uuid, error)),
            .callback(.didBeginTransmitting(uuid, source: .handsfreeButton)),
            .callback(.failedToBeginTransmitting(uuid, error)),
            .callback(.didEndTransmitting(uuid, source: .unknown)),
            .callback(.failedToStopTransmitting(uuid, error)), .callback(.receivedEphemeralPushToken(token)),
            .callback(.didActivateAudioSession, session: session), .callback(.didDeactivateAudioSession),
            .audioSessionChanged(.interruptionBegan(reason: "sleep")),
            .audioSessionChanged(.interruptionEnded(reason: "")), .audioSessionChanged(.routeChanged(session)),
            .incomingPush(uuid, payload: "{}"), .channelDescriptor(uuid),
            // The last one: nothing waits for its answer, so a later call could be served before it.
            .incomingServiceUpdatePush(
                uuid, payload: "{}", isHighPriority: true, remainingHighPriorityBudget: 5),
        ]
    }

    @Test func `a service update that takes its time holds no other call up`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let program = try await Program(fixture) { call in
                if case .incomingServiceUpdatePush = call { try await Task.sleep(for: .seconds(2)) }
                return .done
            }
            _ = try await program.client.registerApplication()
            let delegate = try #require(await served.controls.delegate(of: program.busName))
            let answers = Recorder<DelegateCall>()
            let update = DelegateCall.incomingServiceUpdatePush(
                Served.uuid, payload: "{}", isHighPriority: false, remainingHighPriorityBudget: 6)
            let calls = [update, .callback(.didBeginTransmitting(Served.uuid, source: .developerRequest))]
            try await fixture.loop.run {
                delegate.assumeIsolated { delegate in
                    for call in calls { delegate.tell(call) { _ in answers.record(call) } }
                }
            }
            let answered = try await answers.wait(for: 2)
            #expect(Set(program.calls.all) == Set(calls))
            #expect(answered == calls.reversed())
            await served.close()
        }
    }

    @Test func `every call reaches the program in order and its answer comes back`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let speaker = PTParticipant(name: "Jane", image: PTImage(named: "user-available"))
            let program = try await Program(fixture) { call in
                switch call {
                case .incomingPush: .pushResult(.activeRemoteParticipant(speaker))
                case .channelDescriptor: .descriptor(Self.descriptor)
                default: .done
                }
            }
            #expect(try await program.client.registerApplication() == nil)
            let delegate = try #require(await served.controls.delegate(of: program.busName))
            let answers = Recorder<ApplicationDelegate.Outcome>()
            let calls = Self.every(Served.uuid)
            try await fixture.loop.run {
                delegate.assumeIsolated { delegate in
                    for call in calls { delegate.tell(call) { answers.record($0) } }
                }
            }
            let outcomes = try await answers.wait(for: calls.count)
            #expect(program.calls.all == calls)
            #expect(
                outcomes
                    == [ApplicationDelegate.Outcome](repeating: .success(.done), count: 14) + [
                        .success(.pushResult(.activeRemoteParticipant(speaker))),
                        .success(.descriptor(Self.descriptor)), .success(.done),
                    ])
            #expect(
                try await delegate.incomingPush(Served.uuid, payload: "{}") == .activeRemoteParticipant(speaker))
            #expect(try await delegate.channelDescriptor(Served.uuid) == Self.descriptor)
            await program.client.close()
            await served.close()
        }
    }

    @Test func `every method of the declaration has a call`() throws {
        let declared = try PTTBus.declaration(of: PTTBus.delegateInterface)
        let calls = Self.every(UUID())
        #expect(Set(calls.map(\.member)) == Set(declared.methods.map(\.name)))
        for call in calls {
            #expect(
                call.arguments.signature.rawValue == declared.method(call.member)?.input.map(\.type.code).joined())
            #expect(try DelegateCall(member: call.member, arguments: call.arguments) == call)
        }
    }

    @Test func `restoration is told before the registration is answered`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            await served.controls.restore { application in
                _ = try? await application.delegate.ask(
                    .callback(.didJoinChannel(Served.uuid, reason: .channelRestoration)))
            }
            let program = try await Program(fixture, name: Self.name)
            let uuid = try await program.client.registerApplication(name: Self.name)
            #expect(uuid == Served.uuid)
            #expect(program.calls.all == [.callback(.didJoinChannel(Served.uuid, reason: .channelRestoration))])
            #expect(
                served.controls.asked.all == [.register(ApplicationID(busName: program.busName, name: Self.name))])
            await program.client.close()
            await served.close()
        }
    }

    @Test func `a program changes the channel it joined by either name`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let program = try await Program(fixture, name: Self.name)
            let id = ApplicationID(busName: program.busName, name: Self.name)
            _ = try await program.client.registerApplication(name: Self.name)
            await served.joined(by: id.owner)
            try await program.client.setServiceStatus(.connecting)
            try await program.client.requestBeginTransmitting()
            try await program.client.joinChannel(Served.uuid, name: "A", media: .application)
            let caller = BusCaller(busName: program.busName, application: id)
            #expect(
                served.controls.asked.all.suffix(3) == [
                    .status(Served.uuid, .connecting), .begin(Served.uuid, caller),
                    .join(
                        JoinRequest(
                            channel: Served.uuid, descriptor: PTChannelDescriptor(name: "A", image: nil),
                            media: .application, caller: caller)),
                ])
            // Who only owns the name, and has not registered, is not that program.
            try await program.client.unregisterApplication()
            #expect(
                await errorOf { try await program.client.setServiceStatus(.ready) }?.name
                    == "org.freedesktop.DBus.Error.AccessDenied")
            await program.client.close()
            await served.close()
        }
    }

    @Test func `a name that the caller does not own is refused`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let owner = try await Program(fixture, name: Self.name)
            let other = try await Program(fixture)
            for name in [Self.name, "org.example.Nobody", PTTBus.name] {
                do throws(DaemonClientError) {
                    _ = try await other.client.registerApplication(name: name)
                    Issue.record("registered")
                } catch {
                    #expect(error.instantiationError?.code == .missingEntitlement)
                    #expect(error.instantiationError?.explanation.contains(name) == true)
                }
            }
            #expect(served.controls.asked.all.isEmpty)
            await owner.client.close()
            await other.client.close()
            await served.close()
        }
    }

    @Test(arguments: PTInstantiationError.Code.allCases)
    func `a refused registration comes back as the instantiation error`(_ code: PTInstantiationError.Code) async throws
    {
        try await withBus { fixture in
            let served = try await Served(fixture)
            await served.controls.refuseInstantiation(PTInstantiationError(code, explanation: "words"))
            let program = try await Program(fixture)
            do throws(DaemonClientError) {
                _ = try await program.client.registerApplication()
                Issue.record("registered")
            } catch {
                #expect(error.instantiationError == PTInstantiationError(code, explanation: "words"))
            }
            await program.client.close()
            // Nobody is told that it left: it never came.
            _ = try await served.client.inhibitors()
            #expect(served.controls.asked.all.count == 1)
            await served.close()
        }
    }

    @Test func `registering twice at once is refused and once more starts over`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let program = try await Program(fixture)
            let (gate, open) = AsyncStream.makeStream(of: Void.self)
            await served.controls.restore { _ in for await _ in gate { break } }
            let first = Task { try await program.client.registerApplication() }
            try await served.controls.asked.wait(for: 1)
            do throws(DaemonClientError) {
                _ = try await program.client.registerApplication()
                Issue.record("registered")
            } catch {
                #expect(error.instantiationError?.code == .instantiationAlreadyInProgress)
            }
            open.yield()
            _ = try await first.value
            await served.controls.restore(nil)
            _ = try await program.client.registerApplication()
            let id = ApplicationID(busName: program.busName, name: "")
            #expect(served.controls.asked.all == [.register(id), .left(id), .register(id)])
            await program.client.close()
            #expect(try await served.controls.asked.wait(for: 4).last == .left(id))
            await served.close()
        }
    }

    @Test func `a program that takes over the name takes the place`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let old = try await fixture.connect()
            try await old.requestName(Self.name, allowingReplacement: true)
            _ = try await old.call(
                destination: PTTBus.name, path: "/org/pttd", interface: PTTBus.managerInterface,
                method: "RegisterApplication",
                arguments: [.string(Self.name), .objectPath("/a"), .properties([:])])
            let new = try await fixture.connect()
            try await new.requestName(Self.name, replacing: true)
            _ = try await new.call(
                destination: PTTBus.name, path: "/org/pttd", interface: PTTBus.managerInterface,
                method: "RegisterApplication",
                arguments: [.string(Self.name), .objectPath("/a"), .properties([:])])
            let oldID = ApplicationID(busName: try #require(await old.uniqueName), name: Self.name)
            let newID = ApplicationID(busName: try #require(await new.uniqueName), name: Self.name)
            #expect(served.controls.asked.all == [.register(oldID), .left(oldID), .register(newID)])
            await old.close()
            await new.close()
            await served.close()
        }
    }

    @Test func `a program that leaves ends its calls at once`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let program = try await Program(fixture) { call in
                try await Task.sleep(for: .seconds(60))
                return .done
            }
            _ = try await program.client.registerApplication()
            let delegate = try #require(await served.controls.delegate(of: program.busName))
            let answers = Recorder<ApplicationDelegate.Outcome>()
            for _ in 0..<3 { await delegate.tell(.callback(.didDeactivateAudioSession)) { answers.record($0) } }
            try await program.calls.wait(for: 1)
            let start = ContinuousClock.now
            await program.client.close()
            #expect(try await answers.wait(for: 3) == [.failure(.gone), .failure(.gone), .failure(.gone)])
            #expect(ContinuousClock.now - start < .seconds(5))
            #expect(program.calls.all.count == 1, "one call at a time")
            await #expect(throws: DelegateFailure.gone) {
                try await delegate.ask(.callback(.didDeactivateAudioSession))
            }
            #expect(
                try await served.controls.asked.wait(for: 2).last
                    == .left(ApplicationID(busName: program.busName, name: "")))
            await served.close()
        }
    }

    @Test func `a program that leaves during its restoration is over after it`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let failures = Recorder<DelegateFailure>()
            await served.controls.restore { application in
                do throws(DelegateFailure) {
                    _ = try await application.delegate.ask(.channelDescriptor(Served.uuid))
                } catch {
                    failures.record(error)
                }
            }
            let program = try await Program(fixture) { _ in
                try await Task.sleep(for: .seconds(60))
                return .done
            }
            let registering = Task { try? await program.client.registerApplication() }
            try await program.calls.wait(for: 1)
            await program.client.close()
            _ = await registering.value
            let id = ApplicationID(busName: program.busName, name: "")
            #expect(try await served.controls.asked.wait(for: 2) == [.register(id), .left(id)])
            #expect(failures.all == [.gone])
            await served.close()
        }
    }

    @Test func `a delegate that does not answer is passed over after its time`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture, delegateLimit: .seconds(1))
            let program = try await Program(fixture) { call in
                if case .incomingPush = call { try await Task.sleep(for: .seconds(60)) }
                if case .incomingServiceUpdatePush = call { try await Task.sleep(for: .milliseconds(1_500)) }
                return .done
            }
            _ = try await program.client.registerApplication()
            let delegate = try #require(await served.controls.delegate(of: program.busName))
            await #expect(throws: DelegateFailure.timedOut) {
                try await delegate.incomingPush(Served.uuid, payload: "{}")
            }
            // A service update has a limit of its own.
            let update = DelegateCall.incomingServiceUpdatePush(
                Served.uuid, payload: "{}", isHighPriority: false, remainingHighPriorityBudget: 6)
            #expect(try await delegate.ask(update) == .done)
            #expect(try await delegate.ask(.callback(.didDeactivateAudioSession)) == .done)
            await program.client.close()
            await served.close()
        }
    }

    @Test func `an answer that means nothing is a failure and the next call goes on`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let raw = try await fixture.connect()
            let interface = try PTTBus.declaration(of: PTTBus.delegateInterface)
            var methods: [String: DBusMethodHandler] = [:]
            for method in interface.methods { methods[method.name] = { _ in [] } }
            methods["IncomingPush"] = { _ in
                [.properties(["Action": .string("activeRemoteParticipant"), "Name": .int32(3)])]
            }
            methods["ChannelDescriptor"] = { _ in
                [.string(String(repeating: "x", count: 300)), .properties([:])]
            }
            methods["DidJoinChannel"] = { _ in throw DBusErrorReply.failed("out of order") }
            try await raw.export([try DBusExport(interface, methods: methods)], at: "/raw")
            _ = try await raw.call(
                destination: PTTBus.name, path: "/org/pttd", interface: PTTBus.managerInterface,
                method: "RegisterApplication", arguments: [.string(""), .objectPath("/raw"), .properties([:])])
            let busName = try #require(await raw.uniqueName)
            let delegate = try #require(await served.controls.delegate(of: busName))
            for (call, words) in [
                (DelegateCall.incomingPush(Served.uuid, payload: "{}"), "'Name'"),
                (.channelDescriptor(Served.uuid), "256"),
                (.callback(.didJoinChannel(Served.uuid, reason: .developerRequest)), "out of order"),
            ] {
                do throws(DelegateFailure) {
                    _ = try await delegate.ask(call)
                    Issue.record("accepted")
                } catch {
                    #expect("\(error)".contains(words), "\(error)")
                }
            }
            #expect(try await delegate.ask(.callback(.didDeactivateAudioSession)) == .done)
            await raw.close()
            await served.close()
        }
    }

    @Test func `a program that lets too many calls wait is over`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let program = try await Program(fixture) { _ in
                try await Task.sleep(for: .seconds(60))
                return .done
            }
            _ = try await program.client.registerApplication()
            let delegate = try #require(await served.controls.delegate(of: program.busName))
            let answers = Recorder<ApplicationDelegate.Outcome>()
            await delegate.tell(.callback(.didDeactivateAudioSession))
            try await program.calls.wait(for: 1)
            for _ in 0..<PTTBusLimits.delegateQueue {
                await delegate.tell(.callback(.didDeactivateAudioSession)) { answers.record($0) }
            }
            #expect(answers.all.isEmpty)
            await delegate.tell(.callback(.didDeactivateAudioSession)) { answers.record($0) }
            #expect(
                answers.all
                    == [ApplicationDelegate.Outcome](
                        repeating: .failure(.gone), count: PTTBusLimits.delegateQueue + 1))
            #expect(
                try await served.controls.asked.wait(for: 2).last
                    == .left(ApplicationID(busName: program.busName, name: "")))
            await program.client.close()
            await served.close()
        }
    }

    @Test func `a program whose registration has ended is told so behind the calls that it has not answered`()
        async throws
    {
        try await withBus { fixture in
            let served = try await Served(fixture, delegateLimit: .seconds(600))
            let program = try await fixture.connect()
            let other = try await fixture.connect()
            let told = Recorder<String>()
            for (connection, name) in [(program, "program"), (other, "other")] {
                try await connection.addMatch(
                    DBusMatchRule(
                        sender: PTTBus.name, interface: PTTBus.managerInterface, member: PTTBus.registrationEnded)
                ) { _ in told.record(name) }
            }
            let declaration = try PTTBus.declaration(of: PTTBus.delegateInterface)
            var methods: [String: DBusMethodHandler] = [:]
            for method in declaration.methods {
                methods[method.name] = { call in
                    told.record(call.member)
                    try await Task.sleep(for: .seconds(60))
                    return []
                }
            }
            try await program.export([try DBusExport(declaration, methods: methods)], at: "/delegate")
            func register() async throws {
                _ = try await program.call(
                    destination: PTTBus.name, path: "/org/pttd", interface: PTTBus.managerInterface,
                    method: "RegisterApplication",
                    arguments: [.string(""), .objectPath("/delegate"), .properties([:])])
            }
            try await register()
            let id = ApplicationID(busName: try #require(await program.uniqueName), name: "")
            let delegate = try #require(await served.controls.delegate(of: id.busName))
            await delegate.tell(.callback(.didDeactivateAudioSession))
            try await told.wait(for: 1)
            for _ in 0...PTTBusLimits.delegateQueue { await delegate.tell(.callback(.didDeactivateAudioSession)) }
            #expect(try await told.wait(for: 2) == ["DidDeactivateAudioSession", "program"])
            // It registers again, and nobody else has been told.
            try await register()
            #expect(served.controls.asked.all == [.register(id), .left(id), .register(id)])
            _ = try await other.owner(of: PTTBus.name)
            #expect(told.all.count == 2)
            await program.close()
            await other.close()
            await served.close()
        }
    }

    @Test func `a program that completes no service update is over`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let program = try await Program(fixture) { _ in
                try await Task.sleep(for: .seconds(60))
                return .done
            }
            _ = try await program.client.registerApplication()
            let delegate = try #require(await served.controls.delegate(of: program.busName))
            let update = DelegateCall.incomingServiceUpdatePush(
                Served.uuid, payload: "{}", isHighPriority: false, remainingHighPriorityBudget: 6)
            for _ in 0..<PTTBusLimits.delegateQueue { await delegate.tell(update) }
            try await program.calls.wait(for: PTTBusLimits.delegateQueue)
            let answers = Recorder<ApplicationDelegate.Outcome>()
            await delegate.tell(update) { answers.record($0) }
            #expect(answers.all == [.failure(.gone)])
            #expect(
                try await served.controls.asked.wait(for: 2).last
                    == .left(ApplicationID(busName: program.busName, name: "")))
            await program.client.close()
            await served.close()
        }
    }

    @Test func `a stranger may not call a programs delegate`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let program = try await Program(fixture)
            let stranger = try await fixture.connect()
            let error = await errorOf {
                try await stranger.call(
                    destination: program.busName, path: DaemonClient.delegatePath,
                    interface: PTTBus.delegateInterface, method: "DidDeactivateAudioSession")
            }
            #expect(error?.name == "org.freedesktop.DBus.Error.AccessDenied")
            #expect(program.calls.all.isEmpty)
            await stranger.close()
            await program.client.close()
            await served.close()
        }
    }

    @Test(.enabled(if: PrivateBus.startsServices, "dbus-broker leaves the start of services to systemd"))
    func `a program that is not running is started by its name`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let folder = fixture.bus.directory
            try fixture.bus.addService(
                Self.name,
                command: "/bin/sh -c \"touch \(folder)/started; while [ ! -e \(folder)/stop ]; do sleep 0.02; done\"")
            defer {
                for name in ["started", "stop"] { try? FileManager.default.removeItem(atPath: "\(folder)/\(name)") }
            }
            let starting = Task { try await served.api.startApplication(Self.name) }
            #expect(try await eventually { FileManager.default.fileExists(atPath: "\(folder)/started") })
            let program = try await Program(fixture, name: Self.name)
            try await starting.value
            _ = try await program.client.registerApplication(name: Self.name)
            #expect(
                served.controls.asked.all == [.register(ApplicationID(busName: program.busName, name: Self.name))])
            // Running already: nothing to do.
            try await served.api.startApplication(Self.name)
            #expect(FileManager.default.createFile(atPath: "\(folder)/stop", contents: nil))
            #expect(
                await errorOf { try await served.api.startApplication("org.example.Nobody") }?.name
                    == "org.freedesktop.DBus.Error.ServiceUnknown")
            await program.client.close()
            await served.close()
            try await Task.sleep(for: .milliseconds(60))
        }
    }
}
