// The file of a relay's records. It is opened only if it is a regular file of the relay's user.
import Files
import Glibc
import Synchronization

/// Checks the file before SQLite opens it: anyone who could replace it by a link or another file would decide who is a
/// member.
final class RelayStoreFile: Sendable {
    /// Where it is.
    let path: String
    private let file: FileFacts
    /// SQLite's log, which has what was written last; and the sizes of both, which do not shrink while they are open.
    private let known: Mutex<(log: FileFacts?, byteCount: Int, logByteCount: Int)>

    /// Files that SQLite keeps next to it.
    static let companions = ["-wal", "-shm", "-journal"]

    /// Checks the file, and creates an empty one if there is none. Only its owner may read it and SQLite's files next
    /// to it.
    ///
    /// - Parameter mayMake: Whether an empty file may be created; otherwise the records must exist.
    /// - Throws: `RelayStoreError.missing`, `.unusable`, `.notNow`, `.unsafe`.
    init(preparing path: String, mayMake: Bool = true) throws(RelayStoreError) {
        let found = FileFacts(of: path, followsLinks: false)
        if found == nil, !mayMake { throw .missing(path: path) }
        switch found?.kind {
        case nil, .regular: break
        case .link: throw .unsafe(path: path, why: "it is a symbolic link")
        case let kind?: throw .unsafe(path: path, why: "it is \(kind.rawValue), not a regular file")
        }
        // SQLite takes an empty file for a new one, and removes the log beside it.
        if !mayMake, found?.byteCount == 0 { throw .missing(path: path) }
        let descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0o600)
        guard descriptor >= 0 else { throw RelayStoreError(FileError("open", path)) }
        // Before SQLite opens it: a close by this process would end SQLite's locks (fcntl(2)).
        defer { close(descriptor) }
        guard var file = FileFacts(of: descriptor) else { throw RelayStoreError(FileError("open", path)) }
        guard file.kind == .regular else { throw .unsafe(path: path, why: "it is not a regular file") }
        let owner = FileFacts(of: AtomicFile.directory(of: path))
        // Root may open the records of a relay that runs as another user: what it makes is that user's, whose the directory is.
        // SQLite does the same for the files beside it.
        if geteuid() == 0, file.byteCount == 0, let owner, file.user != owner.user {
            if fchown(descriptor, owner.user, owner.group) == 0 { file.user = owner.user }
        }
        let isOwn = file.user == geteuid() || geteuid() == 0 && file.user == owner?.user
        guard isOwn else {
            let cause = FileError.Cause(refused: geteuid(), file: file, directory: owner)
            guard case .otherOwner = cause else { throw .unsafe(path: path, why: "it belongs to another user") }
            throw RelayStoreError(FileError("open", path, cause))
        }
        if file.mode & 0o077 != 0, fchmod(descriptor, 0o600) != 0 { throw RelayStoreError(FileError("protect", path)) }
        for companion in Self.companions {
            guard let beside = FileFacts(of: path + companion, followsLinks: false) else { continue }
            guard beside.kind == .regular else {
                throw .unsafe(path: path + companion, why: "it is not a regular file")
            }
        }
        self.path = path
        self.file = file
        known = Mutex((nil, file.byteCount, 0))
    }

    /// Makes sure that what SQLite has opened by the same name is what was looked at.
    ///
    /// - Throws: `RelayStoreError.unsafe`.
    func checkUnchanged() throws(RelayStoreError) {
        guard FileFacts(of: path, followsLinks: false)?.isSameFile(as: file) == true else {
            throw .unsafe(path: path, why: "it was replaced while it was opened")
        }
    }

    /// Makes sure that the file and its log are still where the next start reads them: neither removed, replaced nor cut off since.
    ///
    /// - Throws: `RelayStoreError.replaced`.
    func checkInPlace() throws(RelayStoreError) {
        let now = FileFacts(of: path, followsLinks: false)
        let log = FileFacts(of: path + "-wal", followsLinks: false)
        let file = file
        let isInPlace = known.withLock { known in
            guard let now, now.isSameFile(as: file), now.byteCount >= known.byteCount else { return false }
            if let earlier = known.log {
                guard let log, log.isSameFile(as: earlier), log.byteCount >= known.logByteCount else { return false }
            }
            known = (log ?? known.log, now.byteCount, log?.byteCount ?? 0)
            return true
        }
        guard isInPlace else { throw .replaced(path: path) }
    }
}
