// One process at a time in a state directory.
import Glibc

/// Holds a directory for this process, until it is dropped or the process ends, however that comes.
///
/// It is flock(2) on the directory itself, so that no file is left which another user could not open. No child has it.
public final class DirectoryLock: Sendable {
    private let descriptor: Int32

    /// Locks `directory`, which is there.
    ///
    /// - Parameter timeout: How long to wait for another process that has it, such as a command that is about to end.
    /// - Throws: `FileError`; its cause is `.inUse` while another process has the directory.
    public init(_ directory: String, timeout: Duration = .zero) throws(FileError) {
        let descriptor = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else {
            let code = errno
            if let facts = FileFacts(of: directory), facts.kind != .directory {
                throw FileError("use", directory, .notDirectory(facts.kind))
            }
            throw FileError("open", directory, code: code)
        }
        do throws(FileError) {
            try Self.lock(descriptor, directory, timeout)
        } catch {
            close(descriptor)
            throw error
        }
        self.descriptor = descriptor
    }

    private static func lock(_ descriptor: Int32, _ directory: String, _ timeout: Duration) throws(FileError) {
        let deadline = ContinuousClock.now + timeout
        while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
            let code = errno
            if code == EINTR { continue }
            guard code == EWOULDBLOCK else { throw FileError("lock", directory, code: code) }
            guard ContinuousClock.now < deadline else {
                throw FileError("use", directory, .inUse(process: holder(of: descriptor)))
            }
            usleep(20_000)
        }
    }

    deinit { close(descriptor) }

    /// The process that has locked a file, as far as proc(5) tells it here: `1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF`.
    private static func holder(of descriptor: Int32) -> Int32? {
        guard let file = FileFacts(of: descriptor),
            let bytes = try? RegularFile.read("/proc/locks", byteCountMax: 1 << 20)
        else { return nil }
        return holder(of: file.inode, locks: String(decoding: bytes, as: UTF8.self))
    }

    /// The process with the only flock(2) lock on a file of this number.
    static func holder(of inode: UInt64, locks: String) -> Int32? {
        // The device is left out: on some file systems (btrfs, overlayfs) it is not the one that stat(2) tells.
        let found = locks.split(separator: "\n").compactMap { line -> Int32? in
            let words = line.split(separator: " ")
            // A line with "->" is of one who waits.
            guard words.count > 5, words[1] == "FLOCK", let number = words[5].split(separator: ":").last,
                UInt64(number) == inode, let process = Int32(words[4]), process > 0
            else { return nil }
            return process
        }
        return found.count == 1 ? found[0] : nil
    }
}
