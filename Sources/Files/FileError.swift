// Why one of the program's files cannot be read or written, and what to do about it.
import Glibc

/// What a name in a directory stands for.
public enum FileKind: String, Hashable, Sendable {
    case regular = "a regular file"
    case directory = "a directory"
    case pipe = "a pipe"
    case socket = "a socket"
    case device = "a device"
    case link = "a symbolic link"

    init(mode: UInt32) {
        switch mode & UInt32(S_IFMT) {
        case UInt32(S_IFREG): self = .regular
        case UInt32(S_IFDIR): self = .directory
        case UInt32(S_IFIFO): self = .pipe
        case UInt32(S_IFSOCK): self = .socket
        case UInt32(S_IFLNK): self = .link
        default: self = .device
        }
    }
}

/// A file operation that failed. What was there before is still there.
public struct FileError: Error, Hashable, Sendable, CustomStringConvertible {
    /// Why.
    public enum Cause: Hashable, Sendable {
        /// Nothing has this name.
        case missing
        /// It is a symbolic link to something that is not there, on a disk that is not mounted yet perhaps.
        case danglingLink
        /// This user may not.
        case noPermission
        /// This user may not, because the file belongs to another user than its directory: a copy that root has put there, for example.
        case otherOwner(UInt32)
        /// It is something else than a regular file. It was not opened.
        case notRegular(FileKind)
        /// It is something else than a directory.
        case notDirectory(FileKind)
        /// The file is larger than anything that is read there.
        case tooLarge(byteCountMax: Int)
        /// The disk or the user's share of it is full.
        case diskFull
        /// The file system is mounted for reading only.
        case readOnly
        /// The process or the system has too many files open.
        case tooManyOpenFiles
        /// Another process has locked it; its process ID if the system reports it.
        case inUse(process: Int32?)
        /// Anything else, by its errno: a disk that does not work, for example.
        case system(Int32)

        /// The cause that errno stands for.
        public init(code: Int32) {
            switch code {
            case ENOENT, ENOTDIR: self = .missing
            case EACCES, EPERM: self = .noPermission
            case ELOOP: self = .notRegular(.link)
            case EISDIR: self = .notRegular(.directory)
            case ENOSPC, EDQUOT: self = .diskFull
            case EROFS: self = .readOnly
            case EMFILE, ENFILE: self = .tooManyOpenFiles
            default: self = .system(code)
            }
        }

        /// Why `user` may not use `file`, which is in `directory`.
        public init(refused user: UInt32, file: FileFacts?, directory: FileFacts?) {
            self = .noPermission
            guard let file, let directory, file.user != directory.user else { return }
            // Who may not enter the directory either needs more than the file.
            if user == directory.user || user == 0 { self = .otherOwner(file.user) }
        }
    }

    /// What was tried: "read", "write", "replace" …
    public var operation: String
    /// With which file.
    public var path: String
    /// Why it failed.
    public var cause: Cause

    /// An error of these parts.
    public init(_ operation: String, _ path: String, _ cause: Cause) {
        self.operation = operation
        self.path = path
        self.cause = cause
    }

    /// The error of the system call that just failed.
    public init(_ operation: String, _ path: String, code: Int32 = errno) {
        self.init(operation, path, Cause(code: code))
        guard cause == .noPermission else { return }
        cause = Cause(
            refused: geteuid(), file: FileFacts(of: path, followsLinks: false),
            directory: FileFacts(of: AtomicFile.directory(of: path)))
    }

    /// Whether the same call may succeed later without a repair: the disk gets free space, another process ends …
    public var mayPass: Bool {
        switch cause {
        case .missing, .noPermission, .otherOwner, .notRegular, .notDirectory, .tooLarge: false
        case .danglingLink, .diskFull, .readOnly, .tooManyOpenFiles, .inUse, .system: true
        }
    }

    /// Whether another file in its place may be made: it is none, or not what a file of ours can be.
    public var isDamage: Bool {
        switch cause {
        case .notRegular, .tooLarge: true
        default: false
        }
    }

    /// What is wrong, without the file's name.
    public var reason: String {
        switch cause {
        case .missing: operation == "read" ? "there is no such file" : "the directory does not exist"
        case .danglingLink: "it is a symbolic link to a missing file"
        case .noPermission: "this user has no permission"
        case .otherOwner(let user):
            "it belongs to \(user == 0 ? "root" : "user \(user)") and not to the owner of its directory"
        case .notRegular(let kind): "it is \(kind.rawValue), not a regular file"
        case .notDirectory(let kind): "it is \(kind.rawValue), not a directory"
        case .tooLarge(let limit): "it is larger than \(limit) bytes"
        case .diskFull: "the disk is full"
        case .readOnly: "the file system is mounted read-only"
        case .tooManyOpenFiles: "too many files are open"
        case .inUse(let process): "another process \(process.map { "(\($0)) " } ?? "")uses it"
        case .system(let code): String(cString: strerror(code))
        }
    }

    /// What to do; empty where nothing is known that helps.
    public var advice: String {
        switch cause {
        case .missing: operation == "read" ? "create it, or name another one" : "make it, or name another one"
        case .danglingLink: "create the file that the link points to, or remove the link"
        case .noPermission:
            operation == "read"
                ? "let this user read it (chmod, chown)"
                : "let this user write to its directory (chmod, chown), or choose another directory"
        case .otherOwner: "run chown --reference=\(AtomicFile.directory(of: path)) \(path)"
        case .notRegular: "put a regular file in its place, or name another one"
        case .notDirectory: "choose another directory"
        case .tooLarge: "put the right file in its place"
        case .diskFull: "make room on the disk"
        case .readOnly: "mount it writable, or choose another directory"
        case .tooManyOpenFiles: "raise the limit of open files (LimitNOFILE=, ulimit -n)"
        case .inUse: "end that one first"
        case .system(EIO): "see the kernel's log (dmesg): the disk may be failing"
        case .system: ""
        }
    }

    /// What happened and what to do about it.
    public var description: String {
        "cannot \(operation) \(path): \(reason)" + (advice.isEmpty ? "" : "; \(advice)")
    }
}
