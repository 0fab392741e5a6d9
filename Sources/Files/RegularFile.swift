// How the program reads its files: regular files of bounded size only, without ever waiting for another process.
import Glibc

/// What the system says of a file, without opening it.
public struct FileFacts: Hashable, Sendable {
    /// The file system that it is on, and its number there: together they name the file, whatever it is called.
    public var device: UInt64
    /// See `device`.
    public var inode: UInt64
    /// What it is.
    public var kind: FileKind
    /// Its permissions.
    public var mode: UInt32
    /// Its owner.
    public var user: UInt32
    /// Its group.
    public var group: UInt32
    /// Its size in bytes.
    public var byteCount: Int
    /// When it was written last, in seconds since 1970.
    public var modifiedAt: Int

    init(_ status: stat) {
        device = UInt64(status.st_dev)
        inode = UInt64(status.st_ino)
        kind = FileKind(mode: UInt32(status.st_mode))
        mode = UInt32(status.st_mode) & 0o7777
        user = UInt32(status.st_uid)
        group = UInt32(status.st_gid)
        byteCount = Int(status.st_size)
        modifiedAt = Int(status.st_mtim.tv_sec)
    }

    /// What has this name; nil: nothing that this user can see.
    ///
    /// - Parameter followsLinks: Whether a symbolic link stands for what it leads to.
    public init?(of path: String, followsLinks: Bool = true) {
        var status = stat()
        guard (followsLinks ? stat(path, &status) : lstat(path, &status)) == 0 else { return nil }
        self.init(status)
    }

    /// What an open descriptor is; nil: it is none.
    public init?(of descriptor: Int32) {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { return nil }
        self.init(status)
    }

    /// Whether both are the same file.
    public func isSameFile(as other: FileFacts) -> Bool { device == other.device && inode == other.inode }
}

/// Reads files that somebody may have replaced by anything: a pipe, a device, a directory, gigabytes.
public enum RegularFile {
    /// The bytes of the file at `path`, and what it is.
    ///
    /// Neither opening nor reading waits for another process: anything but a regular file is rejected and not opened.
    ///
    /// - Parameters:
    ///   - byteCountMax: A larger file is refused.
    ///   - followsLinks: Whether a symbolic link is followed, as an administrator may make one for a configuration.
    /// - Throws: `FileError`; its cause is `.missing` when there is no such file.
    public static func contents(
        of path: String, byteCountMax: Int, followsLinks: Bool = true
    ) throws(FileError) -> (bytes: [UInt8], facts: FileFacts) {
        // Looked at before it is opened: to open a device may do something already.
        if let facts = FileFacts(of: path, followsLinks: followsLinks), facts.kind != .regular {
            throw FileError("read", path, .notRegular(facts.kind))
        }
        let flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (followsLinks ? 0 : O_NOFOLLOW)
        let descriptor = open(path, flags)
        guard descriptor >= 0 else {
            let error = FileError("read", path)
            guard error.cause == .missing, FileFacts(of: path, followsLinks: false) != nil else { throw error }
            throw FileError("read", path, .danglingLink)
        }
        defer { close(descriptor) }
        guard let facts = FileFacts(of: descriptor) else { throw FileError("read", path) }
        guard facts.kind == .regular else { throw FileError("read", path, .notRegular(facts.kind)) }
        var bytes: [UInt8] = []
        let blockSize = 65_536
        var block = [UInt8](repeating: 0, count: blockSize)
        while true {
            let count = block.withUnsafeMutableBytes { systemRead(descriptor, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw FileError("read", path) }
            if count == 0 { return (bytes, facts) }
            bytes += block[..<count]
            guard bytes.count <= byteCountMax else {
                throw FileError("read", path, .tooLarge(byteCountMax: byteCountMax))
            }
        }
    }

    /// The bytes of the file at `path`; see `contents(of:byteCountMax:followsLinks:)`.
    public static func read(
        _ path: String, byteCountMax: Int, followsLinks: Bool = true
    ) throws(FileError) -> [UInt8] {
        try contents(of: path, byteCountMax: byteCountMax, followsLinks: followsLinks).bytes
    }

    /// The same; nil when there is no such file.
    public static func readIfPresent(
        _ path: String, byteCountMax: Int, followsLinks: Bool = true
    ) throws(FileError) -> [UInt8]? {
        do throws(FileError) {
            return try read(path, byteCountMax: byteCountMax, followsLinks: followsLinks)
        } catch {
            guard error.cause == .missing else { throw error }
            return nil
        }
    }
}

/// read(2), whose name the methods above have, too.
private func systemRead(_ descriptor: Int32, _ bytes: UnsafeMutableRawPointer?, _ count: Int) -> Int {
    read(descriptor, bytes, count)
}
