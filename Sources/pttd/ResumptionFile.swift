// The file with which pttd returns to its relays after a start: what `ResumptionMemory` keeps, readable by this user only.
import Logging
import RelayClient
import Settings

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

/// A file that may be lost: without it, the first connection to each relay takes one round trip more.
struct ResumptionFile: Sendable {
    let path: String
    let logger: Logger

    /// What the file holds, or nothing; from now on it is kept.
    func restore() -> ResumptionMemory {
        var bytes = read() ?? []
        if !ResumptionMemory.isIntact(bytes) {
            logger.warning(
                "damaged, and not used: the next connection to each relay takes longer", metadata: ["file": "\(path)"])
            bytes = []
        }
        return ResumptionMemory(restoring: bytes) { bytes in
            do {
                try AtomicFile.write(bytes, to: path, isSecret: true, waits: false)
            } catch {
                logger.warning("what shortens the next connection is not kept", metadata: ["why": "\(error)"])
            }
        }
    }

    /// Nil when there is no file.
    private func read() -> [UInt8]? {
        // Not blocking: a pipe in the file's place must not stop the start.
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard descriptor >= 0 else {
            if errno != ENOENT { cannotRead() }
            return nil
        }
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: ResumptionMemory.byteCountMaximum + 1)
        var count = 0
        while count < bytes.count {
            let size = bytes.withUnsafeMutableBytes {
                systemRead(descriptor, $0.baseAddress?.advanced(by: count), $0.count - count)
            }
            if size < 0, errno == EINTR { continue }
            guard size >= 0 else {
                cannotRead()
                return nil
            }
            if size == 0 { break }
            count += size
        }
        return Array(bytes.prefix(count))
    }

    private func cannotRead() {
        let why = String(cString: strerror(errno))
        logger.warning("cannot be read", metadata: ["file": "\(path)", "why": "\(why)"])
    }
}

/// read(2), whose name the method above has, too.
private func systemRead(_ descriptor: Int32, _ bytes: UnsafeMutableRawPointer?, _ count: Int) -> Int {
    read(descriptor, bytes, count)
}
