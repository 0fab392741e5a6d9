// The service on a real loop, with a Bluetooth that the test plays.
import Logging
import MonotonicTime
import Reactor
import Synchronization
import Testing

@testable import Accessories
@testable import AccessoryTestSupport

/// A Bluetooth that answers every command with success, and lets the test report.
private actor PlayedHost: BluetoothHost {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    private var handler: (@Sendable (BluetoothReport) -> Void)?
    private var device: DeviceFacts

    init(_ device: DeviceFacts, loop: EventLoop) {
        self.device = device
        self.loop = loop
    }

    func start(_ handler: @escaping @Sendable (BluetoothReport) -> Void) {
        self.handler = handler
        handler(.device(device))
        handler(.radio(.on))
    }

    func stop() { handler = nil }

    func perform(_ command: BluetoothCommand) -> BluetoothFailure? {
        if case .connect = command {
            device.isConnected = true
            device.servicesResolved = true
            handler?(.device(device))
        }
        return nil
    }

    func notify(_ bytes: [UInt8], at time: Instant) {
        handler?(.value(characteristic: device.key, bytes: bytes, at: time))
    }

    func report(_ report: BluetoothReport) { handler?(report) }

    /// Presses, releases and rubbish, so many a second.
    func flood(seconds: Int, valuesPerSecond: Int, from begin: Instant) {
        for number in 0..<(seconds * valuesPerSecond) {
            let time = begin + .milliseconds(number * 1000 / valuesPerSecond)
            handler?(.value(characteristic: device.key, bytes: [[1], [0], [9], [1, 2]][number % 4], at: time))
        }
    }
}

/// What the handler was told.
private final class Recorder: Sendable {
    let events = Mutex<[AccessoryEvent]>([])
    var intents: [AccessoryIntent] {
        events.withLock { $0.compactMap { if case .intent(let intent, _) = $0 { intent } else { nil } } }
    }
}

/// Local devices that the test plays.
private actor PlayedInputs: InputHost {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    private var handler: (@Sendable (LocalDeviceReport) -> Void)?
    private(set) var isStopped = false

    init(loop: EventLoop) { self.loop = loop }

    func start(_ handler: @escaping @Sendable (LocalDeviceReport) -> Void) { self.handler = handler }
    func stop() {
        handler = nil
        isStopped = true
    }
    func report(_ report: LocalDeviceReport) { handler?(report) }
}

@Suite struct AccessoryServiceTests {
    private func until(_ condition: () async -> Bool) async throws {
        let limit = Instant.now + .seconds(10)
        while await !condition() {
            try #require(Instant.now < limit, "it did not happen within 10 s")
            try await Task.sleep(for: .milliseconds(2))
        }
    }

    @Test func aPressReachesTheHandlerOnTheLoopWithTheTimeOfItsArrival() async throws {
        let loop = try EventLoop(name: "accessories")
        defer { loop.stop() }
        let button = DeviceFacts.button("ptt-z")
        let host = PlayedHost(button, loop: loop)
        let recorder = Recorder()
        let service = AccessoryService(
            settings: AccessorySettings(accessories: [
                AccessoryConfiguration(id: AccessoryID("vest"), address: button.address)
            ]), host: host, loop: loop, logger: Logger(label: "test")
        ) { event in
            loop.checkIsolated()
            recorder.events.withLock { $0.append(event) }
        }
        try await service.start()
        try await until { await service.statuses.first?.isReady == true }
        let arrival = Instant.now
        await host.notify([1], at: arrival)
        let source = AccessorySource(accessory: AccessoryID("vest"), control: .ptt)
        #expect(recorder.events.withLock { $0.contains(.intent(.transmitBegan(source, .normal), at: arrival)) })
        await service.transmissionEnded()
        await host.notify([1], at: .now)
        #expect(recorder.intents == [.transmitBegan(source, .normal)])
        await host.notify([0], at: .now)
        await host.notify([1], at: .now)
        await service.stop()
        #expect(recorder.intents.suffix(2) == [.transmitBegan(source, .normal), .transmitEnded(source, .stopped)])
        await host.notify([1], at: .now)
        #expect(recorder.intents.count == 3)
    }

    @Test func aPressIsHandedOnBeforeItIsLogged() async throws {
        let loop = try EventLoop(name: "accessories")
        defer { loop.stop() }
        let steps = Mutex<[String]>([])
        let button = DeviceFacts.button("ptt-z")
        let host = PlayedHost(button, loop: loop)
        let service = AccessoryService(
            settings: AccessorySettings(accessories: [
                AccessoryConfiguration(id: AccessoryID("vest"), address: button.address)
            ]), host: host, loop: loop,
            logger: Logger(label: "test") { _ in CountingLog { line in steps.withLock { $0.append("log \(line)") } } }
        ) { event in
            guard case .intent(let intent, _) = event else { return }
            steps.withLock { if case .transmitBegan = intent { $0.append("begin") } else { $0.append("end") } }
        }
        try await service.start()
        try await until { await service.statuses.first?.isReady == true }
        steps.withLock { $0 = [] }
        await host.notify([1], at: .now)
        await host.notify([0], at: .now)
        await service.stop()
        #expect(steps.withLock { $0 } == ["begin", "log Press", "end", "log Release"])
    }

    @Test func deadlinesRunOnTheLoop() async throws {
        let loop = try EventLoop(name: "accessories")
        defer { loop.stop() }
        var profile = ProfileLibrary.load(directory: nil).library["ptt-z"]!
        profile.timing.debounce = .milliseconds(500)
        let button = DeviceFacts.button("ptt-z")
        let host = PlayedHost(button, loop: loop)
        let recorder = Recorder()
        let service = AccessoryService(
            settings: AccessorySettings(
                accessories: [AccessoryConfiguration(id: AccessoryID("vest"), address: button.address)],
                library: ProfileLibrary([profile])), host: host, loop: loop, logger: Logger(label: "test")
        ) { event in
            recorder.events.withLock { $0.append(event) }
        }
        try await service.start()
        try await until { await service.statuses.first?.isReady == true }
        await host.notify([1], at: .now)
        await host.notify([0], at: .now)
        #expect(recorder.intents.count == 1)
        try await until { recorder.intents.count == 2 }
        await service.stop()
    }

    @Test func theHandlerMayCallBackIntoTheService() async throws {
        let loop = try EventLoop(name: "accessories")
        defer { loop.stop() }
        let button = DeviceFacts.button("ptt-z")
        let host = PlayedHost(button, loop: loop)
        let recorder = Recorder()
        let box = Mutex<AccessoryService?>(nil)
        let service = AccessoryService(
            settings: AccessorySettings(accessories: [
                AccessoryConfiguration(id: AccessoryID("vest"), address: button.address)
            ]), host: host, loop: loop, logger: Logger(label: "test")
        ) { event in
            recorder.events.withLock { $0.append(event) }
            // As a bridge would, when the channel is busy.
            guard case .intent(.transmitBegan, _) = event else { return }
            box.withLock { $0 }?.assumeIsolated { $0.transmissionEnded() }
        }
        box.withLock { $0 = service }
        try await service.start()
        try await until { await service.statuses.first?.isReady == true }
        for value: UInt8 in [1, 1, 0, 1, 0] { await host.notify([value], at: .now) }
        #expect(recorder.intents.count == 2)
        #expect(await service.statuses.first?.isHeld == false)
        await service.stop()
        box.withLock { $0 = nil }
    }

    @Test func keysOfLocalDevicesHaveTheKernelsTimeAndObserversAreToldEverything() async throws {
        let loop = try EventLoop(name: "accessories")
        defer { loop.stop() }
        let button = DeviceFacts.button("ptt-z")
        let host = PlayedHost(button, loop: loop)
        let inputs = PlayedInputs(loop: loop)
        let recorder = Recorder()
        let service = AccessoryService(
            settings: AccessorySettings(), host: host, inputs: inputs, loop: loop, logger: Logger(label: "test")
        ) { event in
            loop.checkIsolated()
            recorder.events.withLock { $0.append(event) }
        }
        try await service.start()
        let pedal = LocalDeviceFacts.keys("/dev/input/event7", accessory: "pedal")
        await inputs.report(.added(pedal))
        let told = Mutex<[String]>([])
        let known = await service.observe { report in
            loop.checkIsolated()
            told.withLock { $0.append("\(report)") }
        }
        #expect(known.count == 3, "the radio, the button, the pedal")
        let seen = Instant.now
        await inputs.report(.key(pedal.id, code: 183, isDown: true, at: seen))
        let source = AccessorySource(accessory: AccessoryID("pedal"), control: .ptt)
        #expect(recorder.events.withLock { $0.contains(.intent(.transmitBegan(source, .normal), at: seen)) })
        #expect(told.withLock { $0.last?.contains("183") } == true)
        await service.observe(nil)
        await inputs.report(.key(pedal.id, code: 183, isDown: false, at: .now))
        #expect(told.withLock { $0.count } == 1)
        #expect(await service.perform(.trust(device: button.id)) == nil)
        await service.stop()
        #expect(await inputs.isStopped)
    }

    @Test func aFloodStarvesNobodyAndItsLogStaysShort() async throws {
        let loop = try EventLoop(name: "accessories")
        defer { loop.stop() }
        let lines = Mutex(0)
        let written = Mutex<[String]>([])
        let button = DeviceFacts.button("ptt-z")
        let host = PlayedHost(button, loop: loop)
        let inputs = PlayedInputs(loop: loop)
        let recorder = Recorder()
        var logger = Logger(label: "test") { _ in
            CountingLog { line in
                lines.withLock { $0 += 1 }
                written.withLock { $0.append(line) }
            }
        }
        logger.logLevel = .info
        let service = AccessoryService(
            settings: AccessorySettings(accessories: [
                AccessoryConfiguration(id: AccessoryID("vest"), address: button.address),
                AccessoryConfiguration(id: AccessoryID("knob"), bindings: [.ptt: .replayLast]),
            ]), host: host, inputs: inputs, loop: loop, logger: logger
        ) { event in
            recorder.events.withLock { $0.append(event) }
        }
        try await service.start()
        try await until { await service.statuses.first?.isReady == true }
        let pedal = LocalDeviceFacts.keys("/dev/input/event7", accessory: "pedal")
        await inputs.report(.added(pedal))
        let began = Instant.now
        // One line more, so that the limit falls between a press and its release.
        let knob = LocalDeviceFacts.keys("/dev/input/event8", accessory: "knob")
        await inputs.report(.added(knob))
        await inputs.report(.key(knob.id, code: 183, isDown: true, at: began))
        await host.flood(seconds: 10, valuesPerSecond: 1000, from: began)
        let took = Instant.now - began
        print("10,000 notifications took \(took), \(lines.withLock { $0 }) log lines")
        #expect(took < .seconds(5), "a flood of 1,000 a second leaves most of each second to others")
        #expect(lines.withLock { $0 } < 10 * (AccessoryService.logLinesPerSecondMax + 10) + 50)
        // Whoever reads the log sees that the last press ended.
        let edges = written.withLock { $0.filter { $0 == "Press" || $0 == "Release" } }
        #expect(edges.last == "Release" && edges.count { $0 == "Press" } == edges.count { $0 == "Release" })
        let before = recorder.intents.count
        await inputs.report(.key(pedal.id, code: 183, isDown: true, at: .now))
        await inputs.report(.key(pedal.id, code: 183, isDown: false, at: .now))
        #expect(recorder.intents.count == before + 2)
        await service.stop()
    }
}

/// Counts lines.
private struct CountingLog: LogHandler {
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.info
    let count: @Sendable (String) -> Void

    init(_ count: @escaping @Sendable (String) -> Void) { self.count = count }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) { count("\(event.message)") }
}
