// What asking the daemon costs over D-Bus, again and again, and whether it keeps anything of it: descriptors and memory of the
// daemon after a tenth of the cycles and after all. Started by Benchmarks/cycles, which runs the daemon.
//
//   bus-cycles BUS_ADDRESS DAEMON_PID [JOINS] [TRANSMISSIONS]
import DBus
import FoundationEssentials
import Glibc
import Logging
import MonotonicTime
import PTTBus
import PushToTalkCore
import Reactor
import Synchronization

/// What the daemon holds at one moment.
private struct Holdings: CustomStringConvertible {
    var descriptors: Int
    var anonymousKilobytes: Int

    init(of process: String) throws {
        descriptors = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(process)/fd").count
        let status = try String(contentsOf: URL(filePath: "/proc/\(process)/status"), encoding: .utf8)
        let line = status.split(separator: "\n").first { $0.hasPrefix("RssAnon:") }
        anonymousKilobytes =
            line?.split(whereSeparator: { " \t".contains($0) }).dropFirst().first.flatMap { Int($0) } ?? 0
    }

    var description: String { "\(descriptors) descriptors, \(anonymousKilobytes) kB" }
}

/// Memory that an allocator may have come to keep in between; a transmission that leaves 60 bytes behind is above it.
private let growthKilobytesMax = 512

/// The calls of the delegate that end a cycle, each to be waited for once.
private final class LastCalls: Sendable {
    private let state = Mutex<(came: Int, waiter: CheckedContinuation<Void, Never>?)>((0, nil))

    func note(_ call: DelegateCall) {
        switch call {
        case .callback(.didLeaveChannel, _), .callback(.didDeactivateAudioSession, _): break
        default: return
        }
        let waiter = state.withLock { state in
            defer { state.waiter = nil }
            if state.waiter == nil { state.came += 1 }
            return state.waiter
        }
        waiter?.resume()
    }

    func wait() async {
        await withCheckedContinuation { continuation in
            let came = state.withLock { state in
                guard state.came > 0 else {
                    state.waiter = continuation
                    return false
                }
                state.came -= 1
                return true
            }
            if came { continuation.resume() }
        }
    }
}

@main
struct BusCycles {
    static func main() async throws {
        let arguments = CommandLine.arguments
        guard arguments.count >= 3 else {
            print("usage: bus-cycles BUS_ADDRESS DAEMON_PID [JOINS] [TRANSMISSIONS]")
            exit(64)
        }
        let joins = arguments.count > 3 ? Int(arguments[3]) ?? 1_000 : 1_000
        let transmissions = arguments.count > 4 ? Int(arguments[4]) ?? 10_000 : 10_000
        let loop = try EventLoop(name: "cycles")
        let client = try await DaemonClient.find(
            on: .address(arguments[1]), loop: loop, logger: Logger(label: "cycles") { _ in SwiftLogNoOpLogHandler() })
        let told = LastCalls()
        try await client.serveDelegate { call in
            told.note(call)
            return .done
        }
        _ = try await client.registerApplication()

        let channel = UUID()
        var grew = try await measure("join and leave", joins, arguments[2]) {
            _ = try await client.joinChannel(channel, name: "Cycle", media: .application)
            try await client.leaveChannel(channel)
            // A program that does not take its calls in time counts as gone.
            await told.wait()
        }
        _ = try await client.joinChannel(channel, name: "Cycle", media: .application)
        try await client.setServiceStatus(.ready, channel)
        grew =
            try await measure("begin and stop, the program's sound", transmissions, arguments[2]) {
                try await client.requestBeginTransmitting(channel)
                try await client.requestStopTransmitting(channel)
                await told.wait()
            } || grew
        try await client.leaveChannel(channel)
        try await client.unregisterApplication()
        await client.close()
        exit(grew ? 1 : 0)
    }

    /// Does it `count` times; prints the rate, and what the daemon came to hold. True: it grew.
    private nonisolated(nonsending) static func measure(
        _ what: String, _ count: Int, _ process: String, _ body: nonisolated(nonsending) () async throws -> Void
    ) async throws -> Bool {
        let warmUp = max(1, count / 10)
        for _ in 0..<warmUp { try await body() }
        let before = try Holdings(of: process)
        let begun = Instant.now
        for _ in warmUp..<count { try await body() }
        let seconds = Double((Instant.now - begun).nanoseconds) / 1e9
        var after = try Holdings(of: process)
        // A daemon on a slow machine closes the last ones a moment later.
        let patience = Instant.now + .seconds(5)
        while after.descriptors > before.descriptors, Instant.now < patience {
            try await Task.sleep(for: .milliseconds(50))
            after.descriptors = try Holdings(of: process).descriptors
        }
        let rate = Double(count - warmUp) / seconds
        print("\(what): \(count) cycles, \(Int(rate)) a second; the daemon held \(before), then \(after)")
        return after.descriptors > before.descriptors
            || after.anonymousKilobytes > before.anonymousKilobytes + growthKilobytesMax
    }
}
