// The file with which pttd returns to its relays after a start: what `ResumptionMemory` keeps, readable by this user only.
import Files
import Logging
import RelayClient

/// A file that may be lost: without it, the first connection to each relay takes one round trip more.
struct ResumptionFile: Sendable {
    let path: String
    let logger: Logger

    /// What the file holds, or nothing; from now on it is kept.
    func restore() -> ResumptionMemory {
        var bytes = read() ?? []
        if !ResumptionMemory.isIntact(bytes) {
            logger.warning(
                "the resumption file is damaged and ignored; the next connection to each relay takes longer",
                metadata: ["file": "\(path)"])
            bytes = []
        }
        return ResumptionMemory(restoring: bytes) { bytes in
            do {
                try AtomicFile.write(bytes, to: path, isSecret: true, waits: false)
            } catch {
                logger.warning(
                    "the resumption file cannot be written; the next connection to each relay takes longer",
                    metadata: ["why": "\(error)"])
            }
        }
    }

    /// The file's bytes; nil when there is no readable file.
    private func read() -> [UInt8]? {
        do throws(FileError) {
            return try RegularFile.readIfPresent(
                path, byteCountMax: ResumptionMemory.byteCountMaximum, followsLinks: false)
        } catch {
            // What is no file would be in the way of what is kept from now on.
            let aside = error.isDamage ? try? AtomicFile.setAside(path) : nil
            logger.warning(
                "the resumption file cannot be read; the next connection to each relay takes longer",
                metadata: ["why": "\(error)", "set-aside": "\(aside ?? "no")"])
            return nil
        }
    }
}
