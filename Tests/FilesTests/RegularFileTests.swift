// Reading what may be anything: nothing waits, nothing is read without end, and the error says what is there.
import Glibc
import TestSupport
import Testing

@testable import Files

@Suite struct RegularFileTests {
    private let folder: TemporaryFolder

    init() throws { folder = try TemporaryFolder() }

    private func cause(_ path: String, followsLinks: Bool = true) -> FileError.Cause? {
        do throws(FileError) {
            _ = try RegularFile.read(path, byteCountMax: 100, followsLinks: followsLinks)
            return nil
        } catch {
            #expect(error.path == path && error.operation == "read")
            #expect(error.description.contains(path) && error.description.contains(error.reason))
            return error.cause
        }
    }

    @Test func `a regular file is read whole, up to the bound`() throws {
        let path = folder.file("a")
        try AtomicFile.write([UInt8](repeating: 7, count: 100), to: path)
        #expect(try RegularFile.read(path, byteCountMax: 100) == [UInt8](repeating: 7, count: 100))
        #expect(throws: FileError("read", path, .tooLarge(byteCountMax: 99))) {
            try RegularFile.read(path, byteCountMax: 99)
        }
        try AtomicFile.write([], to: path)
        #expect(try RegularFile.read(path, byteCountMax: 0) == [])
    }

    @Test func `a file that belongs to another user than its directory is told with its owner and what gives it back`()
        throws
    {
        func facts(_ user: UInt32) -> FileFacts {
            var status = stat()
            status.st_uid = user
            return FileFacts(status)
        }
        func cause(_ user: UInt32, file: UInt32, in directory: UInt32) -> FileError.Cause {
            FileError.Cause(refused: user, file: facts(file), directory: facts(directory))
        }
        #expect(cause(1_000, file: 0, in: 1_000) == .otherOwner(0) && cause(0, file: 5, in: 6) == .otherOwner(5))
        #expect(cause(1_000, file: 0, in: 0) == .noPermission && cause(1_000, file: 7, in: 8) == .noPermission)
        #expect(FileError.Cause(refused: 1_000, file: nil, directory: facts(1_000)) == .noPermission)
        let error = FileError("read", "/srv/state/identity.pem", .otherOwner(0))
        #expect(
            error.description
                == "cannot read /srv/state/identity.pem: it belongs to root and not to the owner of its directory; "
                + "run chown --reference=/srv/state /srv/state/identity.pem")
        #expect(!error.mayPass && !error.isDamage)
        // Only root can give a file away.
        guard geteuid() == 0 else { return }
        try AtomicFile.write([1], to: folder.file("a"))
        #expect(FileError("read", folder.file("a"), code: EACCES).cause == .noPermission)
        #expect(chown(folder.file("a"), 12_345, 12_345) == 0)
        #expect(FileError("read", folder.file("a"), code: EACCES).cause == .otherOwner(12_345))
    }

    @Test func `what is no regular file is refused at once, and named`() throws {
        #expect(mkfifo(folder.file("pipe"), 0o600) == 0 && mkdir(folder.file("directory"), 0o700) == 0)
        let socket = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(socket) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(folder.file("socket").utf8)) }
        let isBound = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(socket, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) == 0
            }
        }
        try #require(isBound)
        let begun = ContinuousClock.now
        #expect(cause(folder.file("pipe")) == .notRegular(.pipe))
        #expect(cause(folder.file("directory")) == .notRegular(.directory))
        #expect(cause(folder.file("socket")) == .notRegular(.socket))
        #expect(cause("/dev/zero") == .notRegular(.device))
        #expect(cause("/dev/tty") == .notRegular(.device))
        #expect(ContinuousClock.now - begun < .seconds(1))
    }

    @Test func `a link is followed or not, and one that leads nowhere is told`() throws {
        try AtomicFile.write([1], to: folder.file("a"))
        #expect(symlink(folder.file("a"), folder.file("link")) == 0)
        #expect(symlink(folder.file("none"), folder.file("dangling")) == 0)
        #expect(try RegularFile.read(folder.file("link"), byteCountMax: 1) == [1])
        #expect(cause(folder.file("link"), followsLinks: false) == .notRegular(.link))
        #expect(cause(folder.file("dangling")) == .danglingLink)
        #expect(cause(folder.file("none")) == .missing)
        #expect(try RegularFile.readIfPresent(folder.file("none"), byteCountMax: 1) == nil)
        #expect(throws: FileError.self) { try RegularFile.readIfPresent(folder.file("dangling"), byteCountMax: 1) }
    }

    @Test func `every error says what happened and what to do, and whether waiting helps`() {
        let told: [(Int32, String, Bool)] = [
            (ENOENT, "there is no such file; create it", false),
            (EACCES, "no permission; let this user read it", false),
            (ENOSPC, "the disk is full; make room on the disk", true), (EDQUOT, "the disk is full", true),
            (EROFS, "mounted read-only; mount it writable", true), (EMFILE, "too many files are open; raise", true),
            (EIO, "Input/output error; see the kernel's log", true),
        ]
        for (code, words, mayPass) in told {
            let error = FileError("read", "/x", code: code)
            #expect(error.description.contains(words) && error.mayPass == mayPass, "\(error)")
            #expect(error.description.hasPrefix("cannot read /x: "))
        }
        #expect(FileError("write", "/x", code: EACCES).description.contains("write to its directory"))
        #expect(FileError("use", "/x", .inUse(process: 7)).description.contains("another process (7) uses it"))
    }
}
