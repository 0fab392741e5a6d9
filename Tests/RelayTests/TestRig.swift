// Relays and clients on loopback sockets, with what they tell recorded.
import Cryptography
import FoundationEssentials
import Logging
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol
import Synchronization
import Vocabulary
import WebSocketClient
import WebSockets

@testable import RelayClient
@testable import RelayServer

/// Something did not happen in time.
struct TimedOut: Error, CustomStringConvertible {
    let description: String
}

/// What was told, in order; waits for what is to come.
final class Recorder<Event: Sendable>: Sendable {
    private struct State {
        var events: [(event: Event, at: Instant)] = []
        var waiters: [@Sendable () -> Void] = []
    }

    private let state = Mutex(State())

    func record(_ event: Event) {
        let waiters = state.withLock { state in
            state.events.append((event, .now))
            defer { state.waiters = [] }
            return state.waiters
        }
        for waiter in waiters { waiter() }
    }

    var events: [Event] { state.withLock { $0.events.map(\.event) } }
    var timed: [(event: Event, at: Instant)] { state.withLock { $0.events } }

    /// The first event from index `start` that `match` takes, and the index after it.
    @discardableResult
    func wait<T: Sendable>(
        _ what: String, from start: Int = 0, within: Duration = .seconds(10), _ match: (Event) -> T?
    ) async throws -> (T, Int) {
        let deadline = ContinuousClock.now + within
        while ContinuousClock.now < deadline {
            let found = state.withLock { state -> (T, Int)? in
                for (index, entry) in state.events.enumerated().dropFirst(start) {
                    if let value = match(entry.event) { return (value, index + 1) }
                }
                return nil
            }
            if let found { return found }
            try await Task.sleep(for: .milliseconds(2))
        }
        throw TimedOut(description: "\(what) did not come within \(within); there were \(events.suffix(12))")
    }
}

/// A relay on 127.0.0.1.
struct TestRelay {
    let server: RelayServer
    let milestones = Recorder<RelayMilestone>()
    let channel: RelayChannelConfiguration
    let configuration: RelayServerConfiguration

    static let identity = try! Identity(generating: "relay")

    init(
        port: UInt16 = 0, channel: RelayChannelConfiguration? = nil,
        keys: RelayTransportKeys = .generate(), _ change: (inout RelayServerConfiguration) -> Void = { _ in }
    ) async throws {
        let channel = channel ?? .yard()
        var configuration = RelayServerConfiguration(
            listenAddress: "127.0.0.1", listenPort: port, identity: Self.identity, channels: [channel],
            transportKeys: keys)
        // Members of all workers, however few they are.
        configuration.spreadFrom = 0
        change(&configuration)
        self.channel = channel
        self.configuration = configuration
        server = try RelayServer(configuration: configuration, logger: quietLogger("relay"))
        let milestones = milestones
        await server.setMilestoneHandler { milestone, _ in milestones.record(milestone) }
        try await server.start()
    }

    func invitation() async throws -> InvitationLink {
        try await server.invitation(for: channel.id, host: "127.0.0.1")
    }
}

/// A client with a loop of its own.
final class TestClient: Sendable {
    let client: RelayClient
    let recorder = Recorder<RelayLinkEvent>()
    let loop: EventLoop

    init(
        _ name: String, _ invitation: InvitationLink, identity: Identity? = nil,
        resumption: ResumptionMemory = ResumptionMemory(), network: RelayNetwork = .automatic,
        resolve: @escaping RelayClient.Resolver = SocketAddress.resolve,
        route: @escaping RelayClient.Router = NetworkRoute.toward,
        openWebSocket: @escaping WebSocketOpener = WebSocketConnection.opener,
        pathTimes: PathChoiceStateMachine.Times = .init()
    ) async throws {
        loop = try EventLoop(name: name)
        client = RelayClient(
            invitation: invitation, identity: try identity ?? Identity(generating: name),
            displayName: DisplayName(name)!, resumption: resumption, network: network,
            openWebSocket: openWebSocket, loop: loop, logger: quietLogger(name), resolve: resolve,
            route: route, pathTimes: pathTimes)
        let recorder = recorder
        await client.setEventHandler { recorder.record($0) }
        await client.join()
    }

    deinit { loop.stop() }

    /// A client that has joined.
    static func joined(_ name: String, _ relay: TestRelay, identity: Identity? = nil) async throws -> TestClient {
        let client = try await TestClient(name, try await relay.invitation(), identity: identity)
        try await client.untilReady()
        return client
    }

    @discardableResult
    func untilReady(from start: Int = 0) async throws -> Int {
        try await recorder.wait("ready", from: start) { if case .state(.ready) = $0 { true } else { nil } }.1
    }

    /// What a frame of a test carries: who says it, in which burst, and its number.
    static func payload(_ burst: Int, _ number: Int) -> [UInt8] {
        [UInt8(truncatingIfNeeded: burst)] + (0..<60).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ number) }
    }

    /// Says `count` frames, one every `spacing`.
    ///
    /// - Parameter start: When the first frame was captured, by a microphone that never paused since; nil: as they are sent.
    func talk(
        _ burst: Int, frames count: Int, spacing: Duration = .milliseconds(4), from start: Instant? = nil
    ) async throws {
        let id = await client.beginBurst(priority: 0)
        for number in 0..<count {
            // A second of speech is held until the grant, which may be no more than 0.2 s of time here.
            if number == 50, spacing < .milliseconds(20) {
                try await recorder.wait("the grant, or the end") { event in
                    switch event {
                    case .floorGranted(id, limit: _), .transmissionEnded(id, _, _): true
                    default: nil
                    }
                }
            }
            let capturedAt = start.map { $0 + .milliseconds(20 * number) } ?? .now
            await client.send(
                OutgoingFrame(payload: Self.payload(burst, number), samples: 960, capturedAt: capturedAt))
            try await Task.sleep(for: spacing)
        }
        await client.endBurst()
    }

    @discardableResult
    func transmissionEnd(from start: Int = 0) async throws -> (TransmissionEnd, TransmissionReport, Int) {
        let (found, index) = try await recorder.wait("the end of the transmission", from: start) {
            if case .transmissionEnded(_, let end, let report) = $0 { (end, report) } else { nil }
        }
        return (found.0, found.1, index)
    }

    @discardableResult
    func heardEnd(from start: Int = 0) async throws -> (ReceptionEnd, ReceptionReport, Int) {
        let (found, index) = try await recorder.wait("the end of the burst", from: start) {
            if case .burstEnded(_, let end, let report) = $0 { (end, report) } else { nil }
        }
        return (found.0, found.1, index)
    }

    /// The payloads of the frames told between two indices.
    func heard(from start: Int = 0, to end: Int? = nil) -> [[UInt8]] {
        let events = recorder.events
        return events[start..<(end ?? events.count)].compactMap {
            if case .frame(let frame) = $0 { frame.payload } else { nil }
        }
    }
}

/// A logger that says nothing unless `PTT_TEST_LOG` is set.
func quietLogger(_ label: String) -> Logger {
    guard ProcessInfoEnvironment.value("PTT_TEST_LOG") != nil else {
        return Logger(label: label) { _ in SwiftLogNoOpLogHandler() }
    }
    var logger = Logger(label: label) { StreamLogHandler.standardError(label: $0) }
    logger.logLevel = .debug
    return logger
}
