// A process that changes a relay's records is killed at random instants: nothing that it confirmed is lost, nothing comes back.
import Cryptography
import Glibc
import RelayProtocol
import SQLite
import TestSupport
import Testing

@testable import RelayStore

@Suite struct KilledTests {
    /// What the records have to say, by what was confirmed.
    private struct Model {
        /// Members, and whether they are removed.
        var members: [String: Bool] = [:]
        var invitations: Set<Int64> = [1]
        var withdrawn: Set<Int64> = []
        var channels: Set<String> = ["Yard"]
        /// What had begun when the process ended: it may have happened or not.
        var open: [Substring]?
        var confirmed = 0
    }

    @Test func `a kill at any instant loses no member, channel, invitation or removal, and brings none back`() throws {
        let rounds = getenv("PTT_KILLS").flatMap { Int(String(cString: $0)) } ?? 200
        var random = SeededGenerator()
        let folder = try Folder()
        let store = try RelayStore.open(path: folder.file)
        try store.addChannel(DisplayName("Yard")!, now: 0)
        try store.database.close()
        var model = Model()
        for round in 0..<rounds {
            let microseconds = UInt32.random(in: 0...60_000, using: &random)
            try run(folder.file, seed: random.next(), killedAfter: microseconds, &model)
            try check(&model, folder, "round \(round)")
        }
        #expect(model.confirmed > rounds / 10, "\(model.confirmed) changes were confirmed")
    }

    /// Runs the writer, kills it that long after its first word, and follows what it confirmed.
    private func run(_ file: String, seed: UInt64, killedAfter microseconds: UInt32, _ model: inout Model) throws {
        var pipe: [Int32] = [0, 0]
        try #require(Glibc.pipe(&pipe) == 0)
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO)
        posix_spawn_file_actions_addclose(&actions, pipe[0])
        let program = try program()
        var arguments: [UnsafeMutablePointer<CChar>?] = [strdup(program), strdup(file), strdup("\(seed)"), nil]
        defer { for argument in arguments { free(argument) } }
        var process: pid_t = 0
        let result = posix_spawn(&process, program, &actions, nil, &arguments, environ)
        close(pipe[1])
        defer { close(pipe[0]) }
        try #require(result == 0)
        var text: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        var isKilled = false
        while true {
            let count = read(pipe[0], &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { break }
            text += buffer.prefix(count)
            guard !isKilled else { continue }
            isKilled = true
            usleep(microseconds)
            kill(process, SIGKILL)
        }
        var status: Int32 = 0
        while waitpid(process, &status, 0) < 0, errno == EINTR {}
        // What was written before the kill is in the pipe, whole lines but for the last.
        for line in String(decoding: text, as: UTF8.self).split(separator: "\n", omittingEmptySubsequences: true) {
            try follow(line.split(separator: " ", maxSplits: 3), &model)
        }
    }

    private func follow(_ words: [Substring], _ model: inout Model) throws {
        switch words.first {
        case "do": model.open = Array(words.dropFirst(2))
        case "done":
            guard let open = model.open, let what = open.first else { return }
            model.open = nil
            model.confirmed += 1
            switch what {
            case "invite": model.invitations.insert(Int64(words[2])!)
            case "revoke": model.members[String(open[1])] = true
            case "readmit": model.members[String(open[1])] = false
            case "withdraw": model.withdrawn.insert(Int64(open[1])!)
            case "channel": model.channels.insert(open.dropFirst().joined(separator: " "))
            case "enrol": if words[2] == "in" { model.members[String(open[1])] = false }
            default: break
            }
        case "failed": #expect(Bool(false), "the writer: \(words.joined(separator: " "))")
        default: break
        }
    }

    /// Compares the records with what was confirmed, takes what was under way as the records have it, and goes on from there.
    private func check(_ model: inout Model, _ folder: Folder, _ place: String) throws {
        let store = try RelayStore.open(path: folder.file, mayMake: false)
        let open = model.open ?? []
        model.open = nil
        let channel = try store.channel(named: "Yard")
        var members: [String: Bool] = [:]
        for member in try store.members(of: channel.id, limit: 1_000_000) {
            members[member.id.description] = member.revokedAt != nil
        }
        var expected = model.members
        if ["enrol", "revoke", "readmit"].contains(open.first ?? ""), open.count > 1 {
            expected[String(open[1])] = members[String(open[1])]
        }
        #expect(members == expected, "\(place), under way: \(open)")
        model.members = members
        let invitations = try store.invitations(to: channel.id, limit: 1_000_000)
        let numbers = Set(invitations.map(\.number))
        #expect(model.invitations.isSubset(of: numbers), "\(place): an invitation is lost")
        #expect(
            invitations.allSatisfy { !model.withdrawn.contains($0.number) || $0.withdrawnAt != nil },
            "\(place): a withdrawn invitation is back")
        #expect(invitations.count { $0.standingToken != nil } == 1, "\(place): one standing invitation")
        // A removal withdraws an invitation, too.
        model.withdrawn = Set(invitations.filter { $0.withdrawnAt != nil }.map(\.number))
        model.invitations = numbers
        // The uses counted are the members that came by each.
        let used = Dictionary(uniqueKeysWithValues: invitations.map { ($0.number, $0.used) })
        var counted: [Int64: Int] = [:]
        for member in try store.members(of: channel.id, limit: 1_000_000) {
            counted[member.invitation, default: 0] += 1
        }
        #expect(used.allSatisfy { counted[$0.key, default: 0] == $0.value }, "\(place): uses and members differ")
        let channels = Set(try store.channels().map(\.name.text))
        let made = open.first == "channel" ? [open.dropFirst().joined(separator: " ")] : []
        #expect(channels == model.channels || channels == model.channels.union(made), "\(place)")
        model.channels = channels
        try store.database.close()
    }

    /// The writer, which is built beside the tests.
    private func program() throws -> String {
        for path in CommandLine.arguments + [executablePath()] {
            let folder = path.split(separator: "/", omittingEmptySubsequences: false).dropLast()
            for depth in 0..<min(5, folder.count) {
                let candidate = folder.dropLast(depth).joined(separator: "/") + "/records-writer"
                if access(candidate, X_OK) == 0 { return candidate }
            }
        }
        throw RelayStoreError.unusable(path: "records-writer", why: "it is not built beside the tests")
    }

    private func executablePath() -> String {
        var buffer = [CChar](repeating: 0, count: 4_096)
        let length = readlink("/proc/self/exe", &buffer, buffer.count)
        return String(decoding: buffer.prefix(max(0, length)).map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
    }
}
