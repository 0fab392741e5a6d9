// Counts what a relay's threads allocate while one member talks, in a process of its own, for the count stands in for malloc.
//
//   RelayProbe LISTENERS [WORKERS [HELPERS]]
//
// prints "allocations=N packets=N out=N helped=N": by the relay's threads, packets that came, packets that went out, and for how many
// nanoseconds its helpers have run
import CAllocationCounter
import CLinux
import Cryptography
import Glibc
import Logging
import MonotonicTime
import Reactor
import RelayClient
import RelayProtocol
import RelayServer
import Synchronization
import Vocabulary

/// Packets before the count, which fill pools; packets counted. Both together are over before the relay looks for silent
/// listeners, which it does every second.
private let warmUp = 20
private let counted = 50

private let listeners = CommandLine.arguments.dropFirst().first.flatMap { Int($0) } ?? 1
private let workers = CommandLine.arguments.dropFirst(2).first.flatMap { Int($0) } ?? 1
private let helpers = CommandLine.arguments.dropFirst(3).first.flatMap { Int($0) } ?? 0
private let quiet = Logger(label: "probe") { _ in SwiftLogNoOpLogHandler() }
private let channel = RelayChannelConfiguration(
    id: ChannelID(), name: DisplayName(cleaning: "Yard", fallback: "Yard"), token: InvitationToken())
private var configuration = RelayServerConfiguration(
    listenAddress: "127.0.0.1", listenPort: 0, identity: try Identity(generating: "relay"), channels: [channel])
configuration.workers = workers
configuration.spreadFrom = 0
configuration.helpers = helpers
private let server = try RelayServer(configuration: configuration, logger: quiet)
try await server.start()
private let link = try await server.invitation(for: channel.id, host: "127.0.0.1")
// A thread has its maker's name until it has given itself its own.
private let relayThreads = threads { $0 == "relay" || $0.hasPrefix("relay-") }
guard relayThreads.count == workers + helpers else {
    print("there are \(relayThreads.count) threads of the relay, not \(workers + helpers)")
    exit(1)
}

private let heard = Atomic<Int>(0)
/// Members that clients have been told of, themselves included; each client's are counted.
private let known = Atomic<Int>(0)
private let loop = try EventLoop(name: "clients")
private var clients: [RelayClient] = []
for number in 0...listeners {
    let name = DisplayName(cleaning: "Member \(number)", fallback: "Member")
    let client = RelayClient(
        invitation: link, identity: try Identity(generating: name.text), displayName: name, openWebSocket: nil,
        loop: loop, logger: quiet)
    await client.setEventHandler { event in
        switch event {
        case .frame: heard.add(1, ordering: .relaxed)
        case .members(let members, _): known.add(members.count, ordering: .relaxed)
        case .memberJoined: known.add(1, ordering: .relaxed)
        default: break
        }
    }
    await client.join()
    clients.append(client)
}

/// This process's threads whose names are wanted.
private func threads(named isWanted: (String) -> Bool) -> [Int32] {
    guard let folder = opendir("/proc/self/task") else { return [] }
    defer { closedir(folder) }
    var found: [Int32] = []
    while let entry = readdir(folder) {
        let text = withUnsafePointer(to: entry.pointee.d_name) { name in
            name.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        guard let id = Int32(text), let file = fopen("/proc/self/task/\(id)/comm", "r") else { continue }
        var line = [CChar](repeating: 0, count: 64)
        _ = fgets(&line, Int32(line.count), file)
        fclose(file)
        if isWanted(String(decoding: line.prefix { $0 > 10 }.map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)) {
            found.append(id)
        }
    }
    return found
}

/// Nanoseconds for which the relay's helpers have run.
private func helped() -> Int {
    threads { $0.hasPrefix("relay-help") }.reduce(0) { sum, id in
        guard let file = fopen("/proc/self/task/\(id)/schedstat", "r") else { return sum }
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 128)
        _ = fgets(&line, Int32(line.count), file)
        return sum + Int(strtoll(line, nil, 10))
    }
}

private func allocations() -> Int { relayThreads.reduce(0) { $0 + ptt_allocations($1) } }

/// Waits without asking the relay, whose thread would allocate for the answer.
private func wait(_ what: String, until condition: () async -> Bool) async throws {
    let deadline = Instant.now + .seconds(60)
    while await !condition() {
        guard Instant.now < deadline else {
            print("\(what) did not happen")
            exit(1)
        }
        try await Task.sleep(for: .milliseconds(5))
    }
}

// Who has come is told together when many do, some time later.
try await wait("joining") { known.load(ordering: .relaxed) == (listeners + 1) * (listeners + 1) }
private let talker = clients[0]
await talker.beginBurst(priority: 0)

private func talk(_ packets: Int) async throws {
    for _ in 0..<packets {
        let frame = OutgoingFrame(payload: [UInt8](repeating: 1, count: 60), samples: 480, capturedAt: .now)
        await talker.send(frame)
        try await Task.sleep(for: .milliseconds(3))
    }
}

try await talk(warmUp)
try await wait("the beginning") { heard.load(ordering: .relaxed) >= warmUp * listeners }
private let (before, helpedBefore) = (allocations(), helped())
private let heardBefore = heard.load(ordering: .relaxed)
try await talk(counted)
try await wait("the rest") { heard.load(ordering: .relaxed) >= heardBefore + counted * listeners }
private let after = allocations()
print(
    "allocations=\(after - before) packets=\(counted) out=\(heard.load(ordering: .relaxed) - heardBefore)",
    "helped=\(helped() - helpedBefore)")
exit(0)
