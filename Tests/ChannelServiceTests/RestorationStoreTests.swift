// The file of the active channel: the old record or the new one, whenever the process or the machine ends.

import FoundationEssentials
import Glibc
import MonotonicTime
import PushToTalkCore
import TestSupport
import Testing
import Vocabulary

@testable import ChannelService

@Suite struct RestorationStoreTests {
    func record(_ number: Int, image: PTImage? = nil) -> RestorationRecord {
        RestorationRecord(
            channelUUID: UUID(), descriptor: PTChannelDescriptor(name: "\(number)", image: image),
            application: "org.example.Talk", token: PushToken([UInt8](repeating: UInt8(number % 256), count: 32)))
    }

    func write(_ bytes: [UInt8], to path: String) throws { try Data(bytes).write(to: URL(filePath: path)) }
    func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }

    @Test func `what was saved is there afterwards`() throws {
        let directory = try TemporaryDirectory()
        let store = RestorationStore(path: directory.file("channel"))
        #expect(store.load().record == nil)
        #expect(store.load().problem == nil)
        let (first, second) = (record(1), record(2))
        try store.save(first)
        #expect(store.load().record == first)
        try store.save(second)
        #expect(store.load().record == second)
        #expect(!exists(directory.file("channel.new")))
        var status = stat()
        #expect(stat(directory.file("channel"), &status) == 0)
        #expect(status.st_mode & 0o777 == 0o600)
        try store.remove()
        #expect(store.load().record == nil)
        try store.remove()
    }

    @Test func `a damaged file is set aside once and said so`() throws {
        let directory = try TemporaryDirectory()
        let path = directory.file("channel")
        let store = RestorationStore(path: path)
        let good = Array(record(1).text.utf8)
        let damaged: [[UInt8]] = [
            [], Array(good.dropLast(9)), Array("garbage".utf8), [UInt8](repeating: 0, count: 4_096),
            [UInt8](repeating: 0x41, count: RestorationRecord.byteCountMax + 5),
        ]
        for bytes in damaged {
            try write(bytes, to: path)
            let first = store.load()
            #expect(first.record == nil)
            let problem = try #require(first.problem)
            #expect(problem.contains(path) && problem.contains("set aside as \(path).damaged"))
            #expect(problem.hasSuffix("join the channel again"))
            #expect(try Array(Data(contentsOf: URL(filePath: path + ".damaged"))) == bytes)
            // No crash loop, and no second complaint.
            #expect(store.load().problem == nil)
        }
    }

    @Test func `a file of another version is kept for it`() throws {
        let directory = try TemporaryDirectory()
        let path = directory.file("channel")
        try write(Array("pttd-channel 9\nwhatever it has\n".utf8), to: path)
        let loaded = RestorationStore(path: path).load()
        #expect(loaded.record == nil)
        #expect(loaded.problem?.contains("version \"9\"") == true)
        #expect(loaded.problem?.contains("move the file back") == true)
        #expect(exists(path + ".damaged"))
    }

    @Test func `what is no file does not stop the start`() throws {
        let directory = try TemporaryDirectory()
        let folder = directory.file("folder")
        #expect(mkdir(folder, 0o700) == 0)
        let store = RestorationStore(path: folder)
        #expect(store.load().problem?.contains("set aside") == true)
        try store.save(record(1))
        let pipe = directory.file("pipe")
        #expect(mkfifo(pipe, 0o600) == 0)
        #expect(RestorationStore(path: pipe).load().problem?.contains("set aside") == true)
        // A link is not followed to whatever it names.
        let link = directory.file("link")
        try write(Array(record(1).text.utf8), to: directory.file("target"))
        #expect(symlink(directory.file("target"), link) == 0)
        #expect(RestorationStore(path: link).load().record == nil)
    }

    @Test func `a directory that is not there is said in words`() throws {
        let directory = try TemporaryDirectory()
        let store = RestorationStore(path: directory.file("none/channel"))
        #expect(store.load().problem == nil)
        do throws(RestorationStoreError) {
            try store.save(record(1))
            Issue.record("saved into nothing")
        } catch {
            #expect("\(error)".contains("the directory does not exist; make it"))
        }
    }

    @Test func `a record that could not be read again is not saved`() throws {
        let directory = try TemporaryDirectory()
        let store = RestorationStore(path: directory.file("channel"))
        let good = record(1)
        try store.save(good)
        var big = good
        big.descriptor = PTChannelDescriptor(
            name: String(repeating: "x", count: RestorationRecord.byteCountMax), image: nil)
        #expect(throws: RestorationStoreError.self) { try store.save(big) }
        #expect(store.load().record == good)
    }

    // MARK: Ends at any instant

    @Test func `the machine may end between any two operations`() throws {
        let (old, new) = (record(1), record(2))
        var generator = SeededGenerator()
        for saves in [true, false] {
            for before in [old, nil] {
                var operations = 0
                // One operation more each time, until the change is complete.
                while true {
                    let disk = SimulatedDisk(seed: generator.next())
                    let store = RestorationStore(path: "/state/channel", files: disk)
                    if let before { try store.save(before) }
                    disk.dieAfter(operations)
                    var isDone = false
                    do throws(RestorationStoreError) {
                        if saves { try store.save(new) } else { try store.remove() }
                        isDone = true
                    } catch {}
                    let after = saves ? new : nil
                    // The process alone, and with the machine: what was not waited for may or may not be on the disk.
                    for losesPower in [false, true] {
                        let found = RestorationStore(
                            path: "/state/channel", files: disk.restarted(losesPower: losesPower)
                        ).load()
                        #expect(found.problem == nil, "\(operations) operations, power lost: \(losesPower)")
                        #expect(found.record == before || found.record == after, "\(operations)")
                        if isDone { #expect(found.record == after, "\(operations)") }
                    }
                    if isDone { break }
                    operations += 1
                }
                #expect(operations >= (saves ? 3 : 2))
            }
        }
    }

    @Test func `random ends leave the last state that was kept or the one under way`() throws {
        var generator = SeededGenerator()
        for _ in 0..<2_000 {
            var disk = SimulatedDisk(seed: generator.next())
            var kept: RestorationRecord?
            for number in 0..<6 {
                let store = RestorationStore(path: "/state/channel", files: disk)
                disk.dieAfter(Int.random(in: 0...12, using: &generator))
                var underWay = kept
                do throws(RestorationStoreError) {
                    for step in 0..<3 {
                        underWay = generator.chance(70) ? record(number * 3 + step) : nil
                        if let underWay { try store.save(underWay) } else { try store.remove() }
                        kept = underWay
                    }
                } catch {}
                disk = disk.restarted(losesPower: generator.chance(50))
                let found = RestorationStore(path: "/state/channel", files: disk).load()
                #expect(found.problem == nil)
                #expect(found.record == kept || found.record == underWay)
                kept = found.record
            }
        }
    }

    @Test func `a writer that is killed at random instants leaves the last record or the next`() throws {
        let program = try #require(writer, "restoration-writer was not built: swift build --build-tests")
        var generator = SeededGenerator()
        let directory = try TemporaryDirectory()
        var cutOff = 0
        for round in 0..<60 {
            let path = directory.file("channel")
            let store = RestorationStore(path: path)
            try store.remove()
            let child = try #require(Writer(program, path))
            child.kill(after: .microseconds(Int.random(in: 0...60_000, using: &generator)))
            let told = child.lastNumber
            if exists(path + ".new") { cutOff += 1 }
            let found = store.load()
            #expect(found.problem == nil, "round \(round)")
            let number = found.record.flatMap { Int($0.descriptor.name) } ?? 0
            #expect(number == told || number == told + 1, "round \(round): told \(told), found \(number)")
            #expect(!exists(path + ".new"))
        }
        print("killed within a save: \(cutOff) of 60")
    }
}

private let writer: String? = {
    for argument in CommandLine.arguments {
        var folder = argument
        while let slash = folder.lastIndex(of: "/") {
            folder = String(folder[..<slash])
            if access(folder + "/restoration-writer", X_OK) == 0 { return folder + "/restoration-writer" }
        }
    }
    return nil
}()

/// A process that saves until it is killed.
private final class Writer {
    private var identifier: pid_t = 0
    private let output: Int32
    private(set) var lastNumber = 0

    init?(_ program: String, _ path: String) {
        var ends: [Int32] = [0, 0]
        guard pipe(&ends) == 0 else { return nil }
        output = ends[0]
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, ends[1], 1)
        posix_spawn_file_actions_addclose(&actions, ends[0])
        var arguments = [strdup(program), strdup(path), nil]
        defer { for argument in arguments { free(argument) } }
        let result = posix_spawn(&identifier, program, &actions, nil, &arguments, environ)
        close(ends[1])
        guard result == 0 else { return nil }
    }

    deinit { close(output) }

    /// Kills it so long after its first record, and takes note of the last number it told.
    func kill(after span: Duration) {
        var first = pollfd(fd: output, events: Int16(POLLIN), revents: 0)
        poll(&first, 1, 10_000)
        usleep(UInt32(span.nanoseconds / 1_000))
        Glibc.kill(identifier, SIGKILL)
        var status: Int32 = 0
        waitpid(identifier, &status, 0)
        var bytes: [UInt8] = []
        var part = [UInt8](repeating: 0, count: 4_096)
        while case let count = read(output, &part, part.count), count > 0 { bytes += part[..<count] }
        lastNumber = String(decoding: bytes, as: UTF8.self).split(separator: "\n").last.flatMap { Int($0) } ?? 0
    }
}
