// Files that are whole or not there, and the lock on their directory.
import Glibc
import TestSupport
import Testing

@testable import Files

@Suite struct AtomicFileTests {
    private let folder: TemporaryFolder

    init() throws { folder = try TemporaryFolder() }

    private func read(_ name: String) throws -> [UInt8] {
        try RegularFile.read(folder.file(name), byteCountMax: 1_000)
    }

    @Test func `a file is replaced whole, with its permissions, and nothing is left beside it`() throws {
        try AtomicFile.write([1, 2], to: folder.file("a"), isSecret: true)
        try AtomicFile.write([3], to: folder.file("a"), isSecret: true)
        #expect(try read("a") == [3] && folder.names == ["a"])
        #expect(FileFacts(of: folder.file("a"))?.mode == 0o600)
    }

    @Test func `what is in the way of the temporary file is neither followed nor waited for`() throws {
        try AtomicFile.write([9], to: folder.file("victim"))
        #expect(mkfifo(folder.file("a.new"), 0o600) == 0)
        try AtomicFile.write([1], to: folder.file("a"))
        #expect(symlink(folder.file("victim"), folder.file("b.new")) == 0)
        try AtomicFile.write([2], to: folder.file("b"))
        #expect(try read("a") == [1] && read("b") == [2] && read("victim") == [9])
        #expect(folder.names == ["a", "b", "victim"])
        #expect(mkdir(folder.file("c.new"), 0o700) == 0)
        #expect(throws: FileError.self) { try AtomicFile.write([3], to: folder.file("c")) }
    }

    @Test func `a disk that is full leaves what was there`() throws {
        try AtomicFile.write([1], to: folder.file("a"))
        let handler = signal(SIGXFSZ, SIG_IGN)
        defer { signal(SIGXFSZ, handler) }
        #expect(system("prlimit --pid \(getpid()) --fsize=10000:") == 0)
        let result = Result { try AtomicFile.write([UInt8](repeating: 2, count: 20_000), to: folder.file("a")) }
        #expect(system("prlimit --pid \(getpid()) --fsize=unlimited:") == 0)
        #expect(throws: FileError.self) { try result.get() }
        #expect(try read("a") == [1] && folder.names == ["a"])
    }

    @Test func `a new file never replaces one that is there`() throws {
        #expect(try AtomicFile.writeNew([1], to: folder.file("a"), unique: "x"))
        #expect(try !AtomicFile.writeNew([2], to: folder.file("a"), unique: "y"))
        #expect(try read("a") == [1] && folder.names == ["a"])
    }

    @Test func `damaged files are set aside under names that are free, and at most nine of them`() throws {
        for number in 1...12 {
            try AtomicFile.write([UInt8(number)], to: folder.file("a"))
            let aside = try AtomicFile.setAside(folder.file("a"))
            #expect(aside == folder.file("a.damaged-\(min(number, 9))"))
        }
        #expect(folder.names.count == 9)
        #expect(try read("a.damaged-1") == [1] && read("a.damaged-9") == [12])
        #expect(mkfifo(folder.file("b"), 0o600) == 0)
        try AtomicFile.write([7], to: folder.file("b-wal"))
        #expect(try AtomicFile.setAside(folder.file("b"), companions: ["-wal", "-shm"]) == folder.file("b.damaged-1"))
        #expect(try read("b.damaged-1-wal") == [7])
        #expect(throws: FileError("rename", folder.file("none"), .missing)) {
            try AtomicFile.setAside(folder.file("none"))
        }
    }

    @Test func `what kills have left behind is removed, and nothing else`() throws {
        for name in ["a", "a.new", "identity.pem.0a1b.new", "news"] { try AtomicFile.write([1], to: folder.file(name)) }
        #expect(mkdir(folder.file("directory.new"), 0o700) == 0)
        #expect(AtomicFile.removeLeftovers(in: folder.path) == 2)
        #expect(folder.names == ["a", "directory.new", "news"])
    }

    @Test func `directories are made with those above them, and what is none is told`() throws {
        try AtomicFile.makeDirectory(folder.file("a/b/c"), mode: 0o700)
        try AtomicFile.makeDirectory(folder.file("a/b/c"), mode: 0o700)
        #expect(FileFacts(of: folder.file("a/b/c"))?.kind == .directory)
        try AtomicFile.write([1], to: folder.file("file"))
        #expect(throws: FileError("make the directory", folder.file("file"), .notDirectory(.regular))) {
            try AtomicFile.makeDirectory(folder.file("file"))
        }
    }
}

@Suite struct DirectoryLockTests {
    @Test func `one has the directory at a time, and the other one hears who`() throws {
        let folder = try TemporaryFolder()
        var first: DirectoryLock? = try DirectoryLock(folder.path)
        let error = #expect(throws: FileError.self) { try DirectoryLock(folder.path) }
        #expect(error?.cause == .inUse(process: getpid()) && error?.mayPass == true)
        withExtendedLifetime(first) {}
        first = nil
        _ = try DirectoryLock(folder.path)
        #expect(folder.names.isEmpty)
    }

    @Test func `a program that this one has started does not have the lock`() throws {
        let folder = try TemporaryFolder()
        var lock: DirectoryLock? = try DirectoryLock(folder.path)
        let child = try #require(popen("sleep 5; true", "re"))
        withExtendedLifetime(lock) {}
        lock = nil
        _ = try DirectoryLock(folder.path, timeout: .seconds(2))
        fclose(child)
    }

    @Test func `the holder is found in the kernel's list of locks`() {
        let locks = """
            1: POSIX  ADVISORY  WRITE 10 00:1a:77 0 EOF
            2: FLOCK  ADVISORY  WRITE 11 08:01:77 0 EOF
            2: -> FLOCK  ADVISORY  WRITE 12 08:01:77 0 EOF
            3: FLOCK  ADVISORY  WRITE 13 08:01:78 0 EOF
            4: FLOCK  ADVISORY  WRITE 14 08:02:78 0 EOF
            5: FLOCK  ADVISORY  WRITE 0 08:02:79 0 EOF

            """
        #expect(DirectoryLock.holder(of: 77, locks: locks) == 11)
        #expect(DirectoryLock.holder(of: 78, locks: locks) == nil, "two files of that number")
        #expect(DirectoryLock.holder(of: 79, locks: locks) == nil, "a process that is not seen here")
        #expect(DirectoryLock.holder(of: 1, locks: "rubbish\n") == nil)
    }
}
