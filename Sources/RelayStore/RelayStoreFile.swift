// The file of a relay's records: what is there is opened only if it is a file, and the relay's own.
#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

/// The file that SQLite is about to open, looked at first: whoever could put a link, or a file of their own, in its place would
/// decide who is a member.
struct RelayStoreFile {
    /// Where it is.
    let path: String
    private let device: dev_t
    private let inode: ino_t

    /// Files that SQLite keeps beside it.
    static let companions = ["-wal", "-shm", "-journal"]

    /// Looks at the file, and makes an empty one if there is none; only its owner may read it then, as SQLite's files beside it.
    ///
    /// - Throws: `RelayStoreError.unusable`, `.unsafe`.
    init(preparing path: String) throws(RelayStoreError) {
        let descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0o600)
        guard descriptor >= 0 else {
            throw errno == ELOOP
                ? .unsafe(path: path, why: "it is a symbolic link")
                : .unusable(path: path, why: String(cString: strerror(errno)))
        }
        // Before SQLite opens it: a close by this process would end SQLite's locks (fcntl(2)).
        defer { close(descriptor) }
        var file = stat()
        guard fstat(descriptor, &file) == 0 else {
            throw .unusable(path: path, why: String(cString: strerror(errno)))
        }
        guard file.st_mode & S_IFMT == S_IFREG else { throw .unsafe(path: path, why: "it is no regular file") }
        let owner = Self.owner(of: path)
        // Root may open the records of a relay that runs as another user: what it makes is that user's, whose the directory is.
        // SQLite does the same for the files beside it.
        if geteuid() == 0, file.st_size == 0, let owner, file.st_uid != owner.user {
            if fchown(descriptor, owner.user, owner.group) == 0 { file.st_uid = owner.user }
        }
        let isOwn = file.st_uid == geteuid() || geteuid() == 0 && file.st_uid == owner?.user
        guard isOwn else { throw .unsafe(path: path, why: "it belongs to another user") }
        if file.st_mode & 0o077 != 0, fchmod(descriptor, 0o600) != 0 {
            throw .unusable(path: path, why: String(cString: strerror(errno)))
        }
        for companion in Self.companions {
            var beside = stat()
            guard lstat(path + companion, &beside) == 0 else { continue }
            guard beside.st_mode & S_IFMT == S_IFREG else {
                throw .unsafe(path: path + companion, why: "it is no regular file")
            }
        }
        self.path = path
        (device, inode) = (file.st_dev, file.st_ino)
    }

    /// Makes sure that what SQLite has opened by the same name is what was looked at.
    ///
    /// - Throws: `RelayStoreError.unsafe`.
    func checkUnchanged() throws(RelayStoreError) {
        var file = stat()
        guard lstat(path, &file) == 0, file.st_dev == device, file.st_ino == inode else {
            throw .unsafe(path: path, why: "it was replaced while it was opened")
        }
    }

    /// Whose the directory is.
    private static func owner(of path: String) -> (user: uid_t, group: gid_t)? {
        let directory = path.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(separator: "/")
        var status = stat()
        guard stat(directory.isEmpty ? "." : directory, &status) == 0 else { return nil }
        return (status.st_uid, status.st_gid)
    }
}
