// A machine of Tests/Nearby/network: announces and lists channels as standard input says, and answers probes as a relay does.
// Commands, one a line, fields separated by tabs:
//   announce NAME CHANNEL MEMBERS    withdraw CHANNEL    browse on|off    stop
// Each line of standard output begins with the monotonic time in nanoseconds:
//   TIME ready PORT    TIME asked CHANNEL    TIME announced CHANNEL    TIME problem [WHY]    TIME stopped
//   TIME list NUMBER, and then for each channel: TIME item NAME CHANNEL MEMBERS own|foreign PLACE…
import Cryptography
import DBus
import Glibc
import Logging
import MonotonicTime
import Nearby
import QUIC
import Reactor
import RelayProtocol

@Sendable func say(_ fields: String...) {
    let bytes = Array((["\(Instant.now.nanoseconds)"] + fields).joined(separator: "\t").utf8) + [UInt8(ascii: "\n")]
    _ = write(1, bytes, bytes.count)
}

/// Takes nobody in: it answers those who ask for versions.
final class Door: QUICEndpointDelegate {}

/// This machine, as the host of what it announces.
let host = HostID()

@Sendable func obey(_ line: String, _ network: NearbyNetwork, _ pin: PublicKeyPin, _ port: UInt16) async {
    let words = line.split(separator: "\t").map(String.init)
    switch words.first {
    case "announce" where words.count == 4:
        guard let name = DisplayName(words[1]), let channel = ChannelID(words[2]), let members = Int(words[3]) else {
            return
        }
        say("asked", words[2])
        await network.announce(
            NearbyAnnouncement(
                channel: channel, name: name, creator: DisplayName(cleaning: "Ann", fallback: "?"), pin: pin,
                members: members, admission: .open, host: host), port: port)
    case "withdraw" where words.count == 2:
        guard let channel = ChannelID(words[1]) else { return }
        await network.withdraw(channel)
    case "browse" where words.count == 2: await network.browse(words[1] == "on")
    case "stop":
        await network.stop()
        say("stopped")
        exit(0)
    default: say("unknown", line)
    }
}

try EventLoop.runProgram(named: "nearby-prove") { loop in
    var logger = Logger(label: "nearby-prove") { StreamLogHandler.standardError(label: $0) }
    logger.logLevel = .debug
    let quiet = logger
    let identity = try Identity(generating: "nearby-prove")
    let endpoint = try await loop.run {
        let configuration = QUICConfiguration(
            applicationProtocol: "none",
            identity: QUICIdentity(
                certificate: identity.certificateDER, privateKey: identity.privateKeyDER, encoding: .der),
            server: QUICServerOptions(keys: .generate()))
        let endpoint = try QUICEndpoint(loop: loop, bind: .any(), configuration: configuration, logger: quiet)
        let door = Door()
        endpoint.delegate = door
        return Held(endpoint: endpoint, door: door, port: endpoint.localAddress.port)
    }
    let bus = DBusConnection(to: .system, on: loop, logger: logger)
    try? await bus.connect(retrying: true)
    let network = NearbyNetwork(bus: bus, logger: logger) { channels in
        say("list", "\(channels.count)")
        for channel in channels {
            let one = channel.announcement
            say(
                "item", one.name.text, "\(one.channel)", "\(one.members)", channel.isOwn ? "own" : "foreign",
                channel.places.map { "\($0)" }.joined(separator: "\t"))
        }
    }
    await network.onProblem { say("problem", $0.map { "\($0)" } ?? "") }
    await network.onAnnounced { say("announced", "\($0)") }
    await network.start()
    let lines = AsyncStream<String> { continuation in
        let input = Lines()
        loop.execute {
            input.watch = try? loop.watch(0, for: .readable) { _ in
                for line in input.read() { continuation.yield(line) }
                if input.isAtEnd {
                    input.watch?.cancel()
                    continuation.finish()
                }
            }
        }
    }
    say("ready", "\(endpoint.port)")
    for await line in lines { await obey(line, network, identity.pin, endpoint.port) }
    await network.stop()
}

/// An endpoint that lives as long as the program.
struct Held: @unchecked Sendable {
    var endpoint: QUICEndpoint
    var door: Door
    var port: UInt16
}

/// Standard input, line by line. Used on the loop only.
final class Lines: @unchecked Sendable {
    var watch: EventLoop.Watch?
    private(set) var isAtEnd = false
    private var rest: [UInt8] = []

    func read() -> [String] {
        var buffer = [UInt8](repeating: 0, count: 4_096)
        let count = Glibc.read(0, &buffer, buffer.count)
        guard count > 0 else {
            isAtEnd = true
            return []
        }
        rest += buffer.prefix(count)
        var lines: [String] = []
        while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
            lines.append(String(decoding: rest[..<end], as: UTF8.self))
            rest.removeSubrange(...end)
        }
        return lines
    }
}
