// Atomic writes: a file is complete or absent, whatever happens while it is written. And whole writes to a descriptor.
import Glibc

/// Files that only one program uses: each is written to a temporary file, synchronised and renamed.
public enum AtomicFile {
    /// What follows the name of a file that is being written. A kill may leave one: see `removeLeftovers`.
    public static let temporarySuffix = ".new"

    /// Makes `path` a file of these bytes; when it returns they are on the disk. Beside it appears `path.new` while it is written.
    ///
    /// What root writes into another user's directory belongs to that user.
    ///
    /// - Parameters:
    ///   - isSecret: Whether only this user may read it.
    ///   - waits: Whether to wait for the disk. A file that may be lost, and whose reader knows a damaged one, need not.
    /// - Throws: `FileError`; then what was there before is still there.
    public static func write(
        _ bytes: [UInt8], to path: String, isSecret: Bool = false, waits: Bool = true
    ) throws(FileError) {
        let temporary = path + temporarySuffix
        let descriptor = try create(temporary, mode: isSecret ? 0o600 : 0o644)
        do throws(FileError) {
            try fill(descriptor, with: bytes, path: temporary, waits: waits)
            guard rename(temporary, path) == 0 else { throw FileError("replace", path) }
        } catch {
            unlink(temporary)
            throw error
        }
        if waits { try synchronize(directory: directory(of: path)) }
    }

    /// The same, but a file that is there is never replaced: of several that do this at once, one succeeds.
    ///
    /// - Parameter unique: Distinguishes the names that several processes use meanwhile.
    /// - Returns: Whether the file was made; false: there was one.
    /// - Throws: `FileError`.
    public static func writeNew(
        _ bytes: [UInt8], to path: String, unique: String, isSecret: Bool = false
    ) throws(FileError) -> Bool {
        let temporary = "\(path).\(unique)\(temporarySuffix)"
        let descriptor = try create(temporary, mode: isSecret ? 0o600 : 0o644)
        defer { unlink(temporary) }
        try fill(descriptor, with: bytes, path: temporary, waits: true)
        // link(2), unlike rename(2), does not replace a file that is there.
        if link(temporary, path) != 0 {
            switch errno {
            case EEXIST: return false
            case EPERM, EOPNOTSUPP, ENOSYS:  // A file system without hard links.
                guard FileFacts(of: path, followsLinks: false) == nil else { return false }
                guard rename(temporary, path) == 0 else { throw FileError("create", path) }
            default: throw FileError("create", path)
            }
        }
        try synchronize(directory: directory(of: path))
        return true
    }

    /// Makes `path` itself a file of these bytes; when it returns they are on the disk. It need not be whole after an error or an end.
    ///
    /// - Parameter mode: Its permissions.
    /// - Throws: `FileError`.
    public static func writeThrough(_ bytes: [UInt8], to path: String, mode: UInt32) throws(FileError) {
        try fill(try create(path, mode: mode), with: bytes, path: path, waits: true)
    }

    /// A file of its own: what had the name is gone, so that neither a pipe nor a link nor somebody's open file is written to.
    private static func create(_ path: String, mode: UInt32) throws(FileError) -> Int32 {
        unlink(path)
        let descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode)
        guard descriptor >= 0 else { throw FileError("create", path) }
        adopt(descriptor, directory: directory(of: path))
        return descriptor
    }

    /// What root makes in another user's directory is that user's, who has to read and replace it.
    private static func adopt(_ descriptor: Int32, directory: String) {
        guard geteuid() == 0, let owner = FileFacts(of: directory), owner.user != 0 else { return }
        _ = fchown(descriptor, owner.user, owner.group)
    }

    /// Writes, waits for the disk if asked, and closes the descriptor in any case.
    private static func fill(_ descriptor: Int32, with bytes: [UInt8], path: String, waits: Bool) throws(FileError) {
        let code = writeWhole(bytes, to: descriptor)
        var error = code == 0 ? nil : FileError("write", path, code: code)
        if error == nil, waits, fsync(descriptor) != 0 { error = FileError("write", path) }
        // Some file systems tell only now that there is no room.
        if close(descriptor) != 0, error == nil { error = FileError("write", path) }
        if let error { throw error }
    }

    // MARK: Names

    /// So many damaged files of one name are kept; the last of them is replaced by further ones.
    static let damagedMax = 9

    /// Gives what has this name, whatever it is, the first free name of `path.damaged-1`, `-2` …, so that it is looked at once and not
    /// at every start, and can be mended.
    ///
    /// - Parameter companions: Ends of names of further files that belong to it.
    /// - Returns: The new name.
    /// - Throws: `FileError`.
    public static func setAside(
        _ path: String, as word: String = "damaged", companions: [String] = []
    ) throws(FileError) -> String {
        let names = (1...damagedMax).map { "\(path).\(word)-\($0)" }
        let aside = names.first { FileFacts(of: $0, followsLinks: false) == nil } ?? names[damagedMax - 1]
        guard rename(path, aside) == 0 else { throw FileError("rename", path) }
        for companion in companions where FileFacts(of: path + companion, followsLinks: false) != nil {
            guard rename(path + companion, aside + companion) == 0 else {
                throw FileError("rename", path + companion)
            }
        }
        try synchronize(directory: directory(of: path))
        return aside
    }

    /// Removes a file, if there is one.
    public static func remove(_ path: String) throws(FileError) {
        guard unlink(path) == 0 || errno == ENOENT else { throw FileError("remove", path) }
        try synchronize(directory: directory(of: path))
    }

    /// Removes temporary files that killed processes left in this directory. Only the process that has locked the
    /// directory may call it.
    ///
    /// - Returns: How many were removed.
    @discardableResult
    public static func removeLeftovers(in directory: String) -> Int {
        guard let stream = opendir(directory) else { return 0 }
        defer { closedir(stream) }
        var removed = 0
        while let entry = readdir(stream) {
            let name = withUnsafeBytes(of: entry.pointee.d_name) { bytes in
                String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            let path = "\(directory)/\(name)"
            guard name.hasSuffix(temporarySuffix), FileFacts(of: path, followsLinks: false)?.kind == .regular,
                unlink(path) == 0
            else { continue }
            removed += 1
        }
        return removed
    }

    // MARK: Directories

    /// Makes a directory and those above it, unless they are there.
    ///
    /// - Parameter mode: The permissions of those that are made.
    /// - Throws: `FileError`, also when something else has the name.
    public static func makeDirectory(_ path: String, mode: UInt32 = 0o755) throws(FileError) {
        var part = path.hasPrefix("/") ? "/" : ""
        for name in path.split(separator: "/") {
            part += (part.isEmpty || part.hasSuffix("/") ? "" : "/") + name
            guard mkdir(part, mode) != 0 else { continue }
            let code = errno
            // One that cannot be made may be there nevertheless (a read-only root).
            guard let facts = FileFacts(of: part) else { throw FileError("make the directory", part, code: code) }
            guard facts.kind == .directory else {
                throw FileError("make the directory", part, .notDirectory(facts.kind))
            }
        }
    }

    /// Whether there is anything of this name.
    public static func exists(_ path: String) -> Bool { FileFacts(of: path, followsLinks: false) != nil }

    /// The directory that has `path`.
    public static func directory(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    /// Waits until the names in a directory are on the disk.
    ///
    /// - Throws: `FileError`.
    public static func synchronize(directory: String) throws(FileError) {
        let descriptor = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else { throw FileError("open", directory) }
        defer { close(descriptor) }
        // A file system that cannot do this for directories (EINVAL) has its own way.
        guard fsync(descriptor) == 0 || errno == EINVAL else { throw FileError("write", directory) }
    }
}

/// Writes all of `bytes`, waiting for a reader that is slow.
///
/// The descriptor may be without blocking by the doing of another program that has it too.
///
/// - Returns: 0, or the errno value (write(2)) of what ended it; then the rest is not written.
public func writeWhole(_ bytes: [UInt8], to descriptor: Int32) -> Int32 {
    var rest = bytes[...]
    while !rest.isEmpty {
        let count = rest.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
        if count > 0 {
            rest = rest.dropFirst(count)
            continue
        }
        switch count == 0 ? EIO : errno {
        case EINTR: continue
        case EAGAIN:
            var wish = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
            poll(&wish, 1, -1)
        case let code: return code
        }
    }
    return 0
}
