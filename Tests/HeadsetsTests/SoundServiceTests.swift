// Headsets as a real PulseAudio and a real bus show them.
import BusTestSupport
import DBus
import Glibc
import MonotonicTime
import Reactor
import Synchronization
import Testing

@testable import Headsets

private let address = "00:AA:01:01:00:02"

/// A PulseAudio of the test's own, whose null sinks stand for a headset.
private final class Server {
    let folder: String
    private var process: ChildProcess?

    var socket: String { "unix:\(folder)/socket" }

    init() throws {
        var template = Array("/tmp/ptt-headsets-XXXXXX".utf8CString)
        try #require(mkdtemp(&template) != nil)
        folder = String(decoding: template.dropLast().map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
    }

    func start() async throws {
        process = try ChildProcess(
            [
                "pulseaudio", "-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no", "--system=false",
                "-L", "module-native-protocol-unix socket=\(folder)/socket auth-anonymous=1",
                "-L", "module-null-sink sink_name=plain",
            ], environment: ["HOME": folder, "XDG_RUNTIME_DIR": folder], package: "pulseaudio")
        for _ in 0..<400 where access(folder + "/socket", F_OK) != 0 { try await Task.sleep(for: .milliseconds(25)) }
    }

    func stop() async throws {
        process?.signal(SIGKILL)
        _ = try await process?.end()
        unlink(folder + "/socket")
    }

    /// What pactl answers.
    @discardableResult func control(_ arguments: String...) async throws -> String {
        let pactl = try ChildProcess(
            ["pactl", "-s", socket] + arguments, environment: ["HOME": folder], package: "pulseaudio-utils")
        #expect(try await pactl.end() == 0, "\(arguments): \(pactl.errors)")
        return pactl.output.split(separator: "\n").first.map(String.init) ?? ""
    }

    deinit { _ = try? ChildProcess(["rm", "-rf", folder]) }
}

/// What was told, from another thread.
private final class Told: Sendable {
    private let reports = Mutex<[PulseReport]>([])
    func add(_ report: PulseReport) { reports.withLock { $0.append(report) } }
    var all: [PulseReport] { reports.withLock { $0 } }
    var last: PulseReport? { all.last }
}

private func eventually(_ condition: () async -> Bool) async -> Bool {
    let limit = Instant.now + .seconds(15)
    while await !condition() {
        guard Instant.now < limit else { return false }
        try? await Task.sleep(for: .milliseconds(10))
    }
    return true
}

@Suite(.serialized) struct PulseServerTests {
    @Test func `a headset comes and goes with its source and sink, and a server that dies is found again`() async throws
    {
        let server = try Server()
        try await server.start()
        let told = Told()
        let pulse = try #require(PulseServer(address: server.socket) { told.add($0) })
        #expect(await eventually { told.last == .listed([]) }, "\(told.all)")
        let name = "bluez_output.00_AA_01_01_00_02.1"
        let sink = try await server.control(
            "load-module", "module-null-sink", "sink_name=\(name)",
            "sink_properties=api.bluez5.address=\(address)")
        // The monitor of its sink is no microphone.
        let ear = HeadsetFacts(address: address, speaker: "pulse:DEVICE=\(name)")
        #expect(await eventually { told.last == .listed([ear]) }, "\(told.all)")
        let source = try await server.control(
            "load-module", "module-remap-source", "source_name=bluez_input.00_AA_01_01_00_02.0", "master=plain.monitor",
            "source_properties=api.bluez5.address=\(address)")
        var whole = ear
        whole.microphone = "pulse:DEVICE=bluez_input.00_AA_01_01_00_02.0"
        #expect(await eventually { told.last == .listed([whole]) }, "\(told.all)")
        try await server.control("unload-module", source)
        #expect(await eventually { told.last == .listed([ear]) }, "\(told.all)")
        try await server.control("unload-module", sink)
        #expect(await eventually { told.last == .listed([]) }, "\(told.all)")

        pulse.setProfile(card: 4_711, "headset-head-unit")
        #expect(
            await eventually {
                if case .profileSet(card: 4_711, let problem?) = told.last { !problem.isEmpty } else { false }
            }, "\(told.all)")

        try await server.stop()
        #expect(await eventually { if case .lost = told.last { true } else { false } }, "\(told.all)")
        pulse.setProfile(card: 1, "x")
        #expect(
            await eventually { told.last == .profileSet(card: 1, problem: "the sound server cannot be reached") })
        try await server.start()
        #expect(await eventually { told.last == .listed([]) }, "\(told.all)")
        let losses = told.all.count { if case .lost = $0 { true } else { false } }
        #expect(losses == 1, "a loss is told once, whatever is tried meanwhile")
        pulse.close()
        try await server.stop()
    }

    @Test(arguments: ["unix:/nonexistent/socket", "tcp:127.0.0.1:1", "{odd", ""])
    func `where no server is, that is told once and tried again`(address: String) async throws {
        let told = Told()
        let pulse = try #require(PulseServer(address: address) { told.add($0) })
        #expect(await eventually { told.all.count == 1 }, "\(told.all)")
        try await Task.sleep(for: .milliseconds(2_500))
        guard case .lost(let reason) = told.last else {
            Issue.record("\(told.all)")
            return
        }
        #expect(told.all.count == 1 && !reason.isEmpty)
        pulse.close()
    }

    @Test func `names that would end ALSA's argument are no devices`() async throws {
        let server = try Server()
        try await server.start()
        let told = Told()
        let pulse = try #require(PulseServer(address: server.socket) { told.add($0) })
        try await server.control(
            "load-module", "module-null-sink", "sink_name=bluez_output.odd,name",
            "sink_properties=api.bluez5.address=\(address)")
        try await server.control(
            "load-module", "module-null-sink", "sink_name=bluez_output.00_AA_01_01_00_03")
        let known = HeadsetFacts(
            address: "00:AA:01:01:00:03", speaker: "pulse:DEVICE=bluez_output.00_AA_01_01_00_03")
        #expect(
            await eventually {
                guard case .listed(let facts) = told.last else { return false }
                return facts.contains(known) && facts.allSatisfy { $0.speaker?.contains(",") != true }
            }, "\(told.all)")
        pulse.close()
        try await server.stop()
    }
}

@Suite struct BlueALSATests {
    private static let pcm = DBusInterface(
        "org.bluealsa.PCM1",
        properties: [.init("Device", .objectPath), .init("Transport", .string), .init("Mode", .string)])

    private func export(_ service: DBusConnection, _ place: String, _ transport: String, _ mode: String) async throws {
        let device: DBusObjectPath = "/org/bluez/hci0/dev_00_AA_01_01_00_02"
        try await service.export(
            [
                DBusExport(
                    Self.pcm,
                    properties: ["Device": .objectPath(device), "Transport": .string(transport), "Mode": .string(mode)])
            ], at: try DBusObjectPath("/org/bluealsa/hci0/dev_00_AA_01_01_00_02/\(place)"))
    }

    @Test func `a headset's two directions make one, and BlueALSA's end takes it away`() async throws {
        try await withBus { fixture in
            let told = Mutex<[HeadsetFacts]?>(nil)
            let listener = try await fixture.connect()
            let pcms = BlueALSAPCMs(on: listener) { facts in told.withLock { $0 = facts } }
            try await pcms.start()
            let service = try await fixture.connect()
            await service.exportObjectManager(at: "/org/bluealsa")
            try await service.requestName("org.bluealsa")
            #expect(await eventually { told.withLock { $0 } == [] })
            try await export(service, "a2dpsrc/sink", "A2DP-source", "sink")
            let name = "bluealsa:DEV=\(address)"
            #expect(
                await eventually {
                    told.withLock { $0 } == [HeadsetFacts(address: address, speaker: name + ",PROFILE=a2dp")]
                })
            try await export(service, "hfpag/source", "HFP-AG", "source")
            try await export(service, "hfpag/sink", "HFP-AG", "sink")
            let whole = HeadsetFacts(
                address: address, microphone: name + ",PROFILE=sco", speaker: name + ",PROFILE=sco")
            #expect(await eventually { told.withLock { $0 } == [whole] }, "\(String(describing: told.withLock { $0 }))")
            await service.close()
            #expect(await eventually { told.withLock { $0 } == [] })
            await listener.close()
        }
    }

    @Test(arguments: [
        [], [DBusValue.string("x")], [.dictionary(key: .string, value: .string, [:])],
    ])
    func `an answer of a wrong shape has no headsets`(arguments: [DBusValue]) {
        #expect(BlueALSAPCMs.facts(arguments).isEmpty)
    }
}
