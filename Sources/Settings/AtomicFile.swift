// Files that are whole or not there, whatever happens while they are written.

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

/// Files that pttd keeps for itself: written beside, synchronised, and renamed.
public enum AtomicFile {
    /// Why a file could not be kept.
    public struct Failure: Error, Hashable, Sendable, CustomStringConvertible {
        /// What was tried.
        public var operation: String
        /// With which file.
        public var path: String
        /// errno.
        public var code: Int32

        /// What happened and what to do about it.
        public var description: String {
            "cannot \(operation) \(path): \(String(cString: strerror(code))); see that pttd may write there and the disk has room"
        }
    }

    /// Makes `path` a file of these bytes; when it returns they are on the disk. Beside it appears `path.new` while it is written.
    ///
    /// - Parameters:
    ///   - isSecret: Whether only this user may read it.
    ///   - waits: Whether to wait for the disk. A file that may be lost, and whose reader knows a damaged one, need not.
    /// - Throws: `Failure`; then what was there before is still there.
    public static func write(
        _ bytes: [UInt8], to path: String, isSecret: Bool = false, waits: Bool = true
    ) throws(Failure) {
        let temporary = path + ".new"
        let descriptor = try create(temporary, mode: isSecret ? 0o600 : 0o644)
        do throws(Failure) {
            try fill(descriptor, with: bytes, path: temporary, waits: waits)
            guard rename(temporary, path) == 0 else { throw failure("replace", path) }
        } catch {
            unlink(temporary)
            throw error
        }
        if waits { try synchronize(directory: directory(of: path)) }
    }

    /// Makes `path` itself a file of these bytes; when it returns they are on the disk. It need not be whole after an error or an end.
    ///
    /// - Parameter mode: Its permissions, also of one that was left behind if nobody else may read it.
    /// - Throws: `Failure`.
    public static func writeThrough(_ bytes: [UInt8], to path: String, mode: UInt32) throws(Failure) {
        try fill(try create(path, mode: mode), with: bytes, path: path, waits: true)
    }

    private static func create(_ path: String, mode: UInt32) throws(Failure) -> Int32 {
        let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode)
        guard descriptor >= 0 else { throw failure("create", path) }
        if mode & 0o077 == 0, fchmod(descriptor, mode) != 0 {
            let error = failure("protect", path)
            close(descriptor)
            throw error
        }
        return descriptor
    }

    /// Writes, waits for the disk if asked, and closes the descriptor in any case.
    private static func fill(_ descriptor: Int32, with bytes: [UInt8], path: String, waits: Bool) throws(Failure) {
        var error: Failure?
        var rest = bytes[...]
        while !rest.isEmpty, error == nil {
            let count = rest.withUnsafeBytes { systemWrite(descriptor, $0.baseAddress, $0.count) }
            if count > 0 {
                rest = rest.dropFirst(count)
            } else if count == 0 || errno != EINTR {
                error = failure("write", path)
            }
        }
        if error == nil, waits, fsync(descriptor) != 0 { error = failure("write", path) }
        // Some file systems tell only now that there is no room.
        if close(descriptor) != 0, error == nil { error = failure("write", path) }
        if let error { throw error }
    }

    /// Gives a file that is not understood the name `path.damaged`, so that it is looked at once and not at every start.
    ///
    /// - Returns: The new name.
    public static func setAside(_ path: String) throws(Failure) -> String {
        let aside = path + ".damaged"
        guard rename(path, aside) == 0 else { throw failure("rename", path) }
        try synchronize(directory: directory(of: path))
        return aside
    }

    /// Removes a file, if there is one.
    public static func remove(_ path: String) throws(Failure) {
        guard unlink(path) == 0 || errno == ENOENT else { throw failure("remove", path) }
        try synchronize(directory: directory(of: path))
    }

    /// Makes a directory, unless it is there; the one above it has to be.
    public static func makeDirectory(_ path: String) throws(Failure) {
        guard mkdir(path, 0o755) == 0 || errno == EEXIST else { throw failure("create", path) }
    }

    /// Whether there is anything of this name.
    public static func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }

    private static func directory(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    /// Waits until the names in a directory are on the disk.
    ///
    /// - Throws: `Failure`.
    public static func synchronize(directory: String) throws(Failure) {
        let descriptor = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else { throw failure("open", directory) }
        defer { close(descriptor) }
        // A file system that cannot do this for directories (EINVAL) has its own way.
        guard fsync(descriptor) == 0 || errno == EINVAL else { throw failure("write", directory) }
    }

    private static func failure(_ operation: String, _ path: String) -> Failure {
        Failure(operation: operation, path: path, code: errno)
    }
}

/// write(2), whose name the method above has, too.
private func systemWrite(_ descriptor: Int32, _ bytes: UnsafeRawPointer?, _ count: Int) -> Int {
    write(descriptor, bytes, count)
}
