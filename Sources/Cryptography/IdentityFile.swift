// The identity's home: one PEM file with mode 0600, written whole or not at all.
import Glibc

extension Identity {
    /// The largest file that is read.
    public static let fileByteCountMaximum = 65_536

    /// The identity stored at `path`; when there is none, a new one in the name of `commonName` is made and stored.
    ///
    /// The file appears whole or not at all, readable by its owner only, and an existing one is never replaced: of two
    /// processes that start at once, both get the same. The directory is made (mode 0700) when only it is missing.
    public static func loadOrCreate(
        at path: String, commonName: String, serverNames: [ServerName] = []
    ) throws(IdentityError) -> (identity: Identity, notices: [IdentityNotice]) {
        if let existing = try load(from: path) { return existing }
        let identity: Identity
        do throws(CryptographyError) {
            identity = try Identity(generating: commonName, serverNames: serverNames)
        } catch {
            throw .cryptography(error)
        }
        guard try identity.store(at: path) else {
            // Another process was faster.
            guard let existing = try load(from: path) else {
                throw .file(path: path, operation: "find", errno: ENOENT, text: "it was there a moment ago")
            }
            return existing
        }
        return (identity, [.created(path: path)])
    }

    /// The identity stored at `path`, nil when there is no such file.
    public static func load(
        from path: String
    ) throws(IdentityError) -> (identity: Identity, notices: [IdentityNotice])? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else {
            guard errno == ENOENT else { throw .system("open", path) }
            return nil
        }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw .system("examine", path) }
        let text = try read(descriptor, path)
        do throws(IdentityError) {
            let mode = status.st_mode & 0o777
            let notices: [IdentityNotice] =
                mode & 0o077 == 0 ? [] : [.accessibleToOthers(path: path, mode: mode)]
            return (try Identity(pem: text), notices)
        } catch {
            throw .corrupt(path: path, reason: error)
        }
    }

    /// Stores the identity at `path`; false, without a change, when there is a file already.
    func store(at path: String) throws(IdentityError) -> Bool {
        try Self.makeDirectory(of: path)
        let temporary = "\(path).\(Hexadecimal.encode(SecureRandom.bytes(6))).new"
        let descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw .system("create", temporary) }
        defer {
            close(descriptor)
            unlink(temporary)
        }
        try Self.write(Array(pem.utf8), descriptor, temporary)
        guard fsync(descriptor) == 0 else { throw .system("write", temporary) }
        // link(2), unlike rename(2), does not replace a file that is there.
        if link(temporary, path) != 0 {
            switch errno {
            case EEXIST: return false
            case EPERM, EOPNOTSUPP, ENOSYS:  // A file system without hard links.
                guard rename(temporary, path) == 0 else { throw .system("create", path) }
            default: throw .system("create", path)
            }
        }
        Self.syncDirectory(of: path)
        return true
    }

    private static func read(_ descriptor: Int32, _ path: String) throws(IdentityError) -> String {
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 4096)
        while true {
            let count = Glibc.read(descriptor, &chunk, chunk.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw .system("read", path) }
            guard count > 0 else { return String(decoding: bytes, as: UTF8.self) }
            bytes += chunk[..<count]
            guard bytes.count <= fileByteCountMaximum else {
                throw .corrupt(path: path, reason: .tooLarge(byteCountMaximum: fileByteCountMaximum))
            }
        }
    }

    private static func write(_ bytes: [UInt8], _ descriptor: Int32, _ path: String) throws(IdentityError) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw .system("write", path) }
            rest = rest.dropFirst(count)
        }
    }

    private static func directory(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    private static func makeDirectory(of path: String) throws(IdentityError) {
        let directory = directory(of: path)
        guard mkdir(directory, 0o700) != 0, errno != EEXIST else { return }
        throw .system("make the directory of", path)
    }

    /// Best effort: some file systems cannot sync a directory, and the file is whole in any case.
    private static func syncDirectory(of path: String) {
        let descriptor = open(directory(of: path), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else { return }
        _ = fsync(descriptor)
        close(descriptor)
    }
}

extension IdentityError {
    /// The error of the system call that just failed.
    fileprivate static func system(_ operation: String, _ path: String) -> IdentityError {
        let code = errno
        return .file(path: path, operation: operation, errno: code, text: String(cString: strerror(code)))
    }
}
