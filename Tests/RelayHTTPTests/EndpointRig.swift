// A relay with its HTTP endpoint and a client of pushes on loopback, and curl to push with.
import Cryptography
import Foundation
import Glibc
import Logging
import MonotonicTime
import Reactor
import RelayClient
import RelayHTTP
import RelayProtocol
import RelayServer
import Synchronization
import Vocabulary

/// Something did not happen in time.
struct TimedOut: Error, CustomStringConvertible {
    let description: String
}

/// What a program printed, and how it ended.
struct Output: Sendable {
    let text: String
    let status: Int32

    /// Runs a line of the shell in `directory`.
    static func of(_ line: String, in directory: String, environment: [String: String] = [:]) async throws -> Output {
        let path = directory + "/output-\(UInt64.random(in: 0...UInt64.max))"
        defer { unlink(path) }
        let process = try start(line, in: directory, environment, output: path)
        let status: Int32 = await withCheckedContinuation { continuation in
            Thread.detachNewThread {
                var status: Int32 = 0
                while waitpid(process, &status, 0) < 0, errno == EINTR {}
                continuation.resume(returning: status)
            }
        }
        return Output(
            text: String(decoding: try Data(contentsOf: URL(fileURLWithPath: path)), as: UTF8.self), status: status)
    }

    private static func start(
        _ line: String, in directory: String, _ environment: [String: String], output: String
    ) throws -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
        posix_spawn_file_actions_adddup2(&actions, 1, 2)
        // Threads of this process block signals, which a shell waits for.
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
        let arguments = ["/bin/sh", "-c", "cd '\(directory)'\n\(line)"]
        var texts: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) }
        let variables = ProcessInfo.processInfo.environment.merging(environment) { $1 }
        let lines = variables.map { name, value in "\(name)=\(value)" }
        var settings: [UnsafeMutablePointer<CChar>?] = lines.map { strdup($0) }
        defer { for text in texts + settings { free(text) } }
        texts.append(nil)
        settings.append(nil)
        var process: pid_t = 0
        let code = posix_spawn(&process, "/bin/sh", &actions, &attributes, texts, settings)
        guard code == 0 else { throw TimedOut(description: "the shell does not start: \(code)") }
        return process
    }
}

/// What curl says of one response.
struct Answer: Sendable, Equatable {
    let status: Int
    let version: String
    let body: String
    let messageID: String

    /// The `reason` in the body.
    var reason: String { body.split(separator: "\"").dropFirst(3).first.map(String.init) ?? "" }
}

/// What a client was told of pushes.
final class PushRecorder: Sendable {
    private let events = Mutex<[PushLinkEvent]>([])
    private let states = Mutex<[RelayLinkEvent]>([])

    func record(_ event: PushLinkEvent) { events.withLock { $0.append(event) } }
    func record(_ event: RelayLinkEvent) { states.withLock { $0.append(event) } }
    var all: [PushLinkEvent] { events.withLock { $0 } }
    var pushes: [RelayPush] { all.compactMap { if case .push(let push) = $0 { push } else { nil } } }
    var isReady: Bool {
        states.withLock { $0.last { if case .state = $0 { true } else { false } } }
            .map { if case .state(.ready) = $0 { true } else { false } } ?? false
    }
}

/// Waits until `condition` holds.
func wait(_ what: String, _ time: Duration = .seconds(20), until condition: () async -> Bool) async throws {
    let deadline = ContinuousClock.now + time
    while ContinuousClock.now < deadline {
        if await condition() { return }
        try await Task.sleep(for: .milliseconds(2))
    }
    throw TimedOut(description: "\(what) did not happen")
}

/// All of it. `stop` ends it.
final class EndpointRig: Sendable {
    let relay: RelayServer
    let port: UInt16
    let directory: String
    let client: RelayClient
    let recorder = PushRecorder()
    private let handedBox = Box()
    let service: PushEndpoint
    private let endpoint: Task<Void, any Error>
    private let loop: EventLoop

    static let quiet = Logger(label: "relay") { _ in SwiftLogNoOpLogHandler() }
    static let topic = PushTopic("org.example.radio.voip-ptt")!
    static let other = PushTopic("org.example.other.voip-ptt")!

    init(
        _ change: (inout PushEndpointConfiguration) -> Void = { _ in },
        relay changeRelay: (inout RelayServerConfiguration) -> Void = { _ in }
    ) async throws {
        let channel = RelayChannelConfiguration(id: ChannelID(), name: DisplayName("Yard")!, token: InvitationToken())
        var configuration = RelayServerConfiguration(
            listenAddress: "127.0.0.1", listenPort: 0, identity: try Identity(generating: "relay"), channels: [channel])
        configuration.acceptsPushes = true
        configuration.limits.pushGraceTime = .zero
        changeRelay(&configuration)
        let quiet = Self.quiet
        let relay = try RelayServer(configuration: configuration, logger: quiet)
        try await relay.start()
        self.relay = relay

        // What the seed's line needs: certificates in files.
        directory = FileManager.default.temporaryDirectory.path + "/pttd-push-\(UInt64.random(in: 0...UInt64.max))"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        let server = try Identity(
            generating: "localhost", serverNames: [.host("localhost"), .address([127, 0, 0, 1])])
        let (app, both, stranger) = (
            try Identity(generating: "app"), try Identity(generating: "both"), try Identity(generating: "stranger")
        )
        for (name, text) in [
            ("relay", server.certificatePEM), ("app", app.pem), ("both", both.pem), ("stranger", stranger.pem),
        ] {
            try text.write(toFile: "\(directory)/\(name).pem", atomically: true, encoding: .utf8)
        }
        var push = PushEndpointConfiguration(
            listenAddress: "127.0.0.1", listenPort: 0, certificatePEM: server.certificatePEM,
            privateKeyPEM: server.privateKeyPEM,
            clients: [
                PushClient(pin: app.pin, topics: [Self.topic])!,
                PushClient(pin: both.pin, topics: [Self.topic, Self.other])!,
            ])
        change(&push)
        let (ports, found) = AsyncStream.makeStream(of: UInt16.self)
        let handed = handedBox
        let service = try PushEndpoint(
            configuration: push, logger: quiet, onListening: { found.yield($0) },
            deliver: { request in
                handed.times.withLock { $0.append(.now) }
                return await relay.push(request)
            })
        self.service = service
        endpoint = Task { try await service.run() }
        port = await ports.first { _ in true } ?? 0

        loop = try EventLoop(name: "client")
        client = RelayClient(
            invitation: try await relay.invitation(for: channel.id, host: "127.0.0.1"),
            identity: try Identity(generating: "client"), displayName: DisplayName("Cab")!, mode: .pushOnly,
            openWebSocket: nil, loop: loop, logger: quiet)
        let recorder = recorder
        await client.setEventHandler { recorder.record($0) }
        await client.setPushHandler { recorder.record($0) }
        await client.join()
        try await wait("joining") { recorder.isReady }
    }

    /// Shared with the endpoint.
    private final class Box: Sendable {
        let times = Mutex<[Instant]>([])
    }

    /// When each push was handed to the relay.
    var handedAt: [Instant] { handedBox.times.withLock { $0 } }

    func stop() async throws {
        await client.leave()
        endpoint.cancel()
        _ = await endpoint.result
        await relay.stop()
        loop.stop()
        try FileManager.default.removeItem(atPath: directory)
    }

    // MARK: Use

    /// Makes a token and registers it.
    func registeredToken(_ byteCount: Int = 32, topic: PushTopic = topic) async throws -> PushToken {
        let token = PushToken(SecureRandom.bytes(byteCount))!
        await client.register(token: token, topic: topic)
        try await wait("the registration") { recorder.all.contains(.registered(token)) }
        return token
    }

    /// Runs a line with the relay's certificate trusted as curl and OpenSSL are told to.
    func run(_ line: String) async throws -> Output {
        try await Output.of(
            line, in: directory,
            environment: ["CURL_CA_BUNDLE": directory + "/relay.pem", "SSL_CERT_FILE": directory + "/relay.pem"])
    }

    /// Pushes as `arguments` of curl say.
    func curl(_ arguments: String, path: String) async throws -> Answer {
        let output = try await run(
            "curl -sS -m 20 -D head.txt -o body.txt -w '%{http_code} %{http_version}' \(arguments) 'https://localhost:\(port)\(path)'; "
                + "echo; grep -i '^apns-id:' head.txt | tr -d '\\r'; cat body.txt; rm -f head.txt body.txt")
        let lines = output.text.split(separator: "\n", omittingEmptySubsequences: false)
        let first = lines.first?.split(separator: " ") ?? []
        return Answer(
            status: Int(first.first ?? "") ?? 0, version: first.last.map(String.init) ?? "",
            body: lines.dropFirst(2).joined(),
            messageID: lines.dropFirst().first?.split(separator: " ").last.map(String.init) ?? "")
    }

    /// The headers and the body of the seed's line, and what comes besides.
    static func arguments(
        type: String? = "pushtotalk", topic: String? = topic.text, priority: String? = "10", expiration: String? = "0",
        certificate: String? = "app", body: String? = #"{"activeSpeaker":"The name of the active speaker"}"#,
        _ more: String = ""
    ) -> String {
        var parts = ["--http2"]
        for (name, value) in [
            ("apns-push-type", type), ("apns-topic", topic), ("apns-priority", priority),
            ("apns-expiration", expiration),
        ] {
            if let value { parts.append("-H '\(name): \(value)'") }
        }
        if let body { parts.append("-d '\(body)'") }
        if let certificate { parts.append("--cert \(certificate).pem") }
        return (parts + [more]).joined(separator: " ")
    }
}
