// The file that keeps what was learned about headsets over restarts. The disk's loop writes it, so that no other loop waits.
import Files
import FoundationEssentials
import Logging
import MonotonicTime
import Reactor

/// A file that may be lost: without it, the first press on each headset may wait for up to a second longer.
struct HeadsetStore: Sendable {
    private static let byteCountMaximum = 16_384
    private let path: String
    private let logger: Logger
    private let writer: LatestValueWriter<[String: [Duration]]>

    /// The store in the file `path`, whose directory is there.
    ///
    /// - Parameter disk: The loop that writes the file.
    init(path: String, disk: EventLoop, logger: Logger) {
        self.path = path
        self.logger = logger
        writer = LatestValueWriter(on: disk) { times in
            do {
                let milliseconds = times.mapValues { $0.map { Int($0.nanoseconds / 1_000_000) } }
                try AtomicFile.write(Array(try JSONEncoder().encode(milliseconds)), to: path, isSecret: false)
            } catch {
                logger.warning(
                    "what was learned about headsets cannot be saved; after a restart their first press takes longer",
                    metadata: ["why": "\(error)"])
            }
        }
    }

    /// What the file holds; nothing when it is not there, or damaged.
    func load() -> [String: [Duration]] {
        do {
            guard
                let bytes = try RegularFile.readIfPresent(
                    path, byteCountMax: Self.byteCountMaximum, followsLinks: false)
            else { return [:] }
            let milliseconds = try JSONDecoder().decode([String: [Int]].self, from: Data(bytes))
            return milliseconds.mapValues { $0.prefix(64).map { .milliseconds(min(10_000, max(0, $0))) } }
        } catch {
            // What is no file would be in the way of what is kept from now on.
            let aside = (error as? FileError)?.isDamage == true ? try? AtomicFile.setAside(path) : nil
            logger.warning(
                "what was learned about headsets cannot be read; the first press on each takes longer",
                metadata: ["file": "\(path)", "why": "\(error)", "set-aside": "\(aside ?? "no")"])
            return [:]
        }
    }

    /// Saves the times, a moment later. The outcome is only logged.
    func save(_ times: [String: [Duration]]) { writer.put(times) }
}
