// The file with which pttd returns to its relays after a start: what `ResumptionMemory` keeps, readable by this user only.
import Files
import Logging
import Reactor
import RelayClient

/// A file that may be lost: without it, the first connection to each relay takes one round trip more.
struct ResumptionFile: Sendable {
    let path: String
    /// The loop that writes it.
    let disk: EventLoop
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
        let writer = LatestValueWriter<[UInt8]>(on: disk) { [path, logger] bytes in
            do {
                try AtomicFile.write(bytes, to: path, isSecret: true, waits: false)
            } catch {
                logger.warning(
                    "the resumption file cannot be written; the next connection to each relay takes longer",
                    metadata: ["why": "\(error)"])
            }
        }
        return ResumptionMemory(restoring: bytes) { writer.put($0) }
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
