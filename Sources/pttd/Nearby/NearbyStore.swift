// The file that keeps the channels nearby over restarts. Its own thread writes it, so that nobody waits for the disk.
import Files
import FoundationEssentials
import Logging
import Reactor
import RelayServer
import Synchronization

/// The file of `NearbyRecord`. A machine that never joined or hosted a channel nearby has neither the file nor the thread.
final class NearbyStore: Sendable {
    private let path: String
    private let logger: Logger
    private let disk = Mutex<EventLoop?>(nil)

    /// The store in the file `path`, whose directory is there.
    init(path: String, logger: Logger) {
        self.path = path
        self.logger = logger
    }

    deinit { disk.withLock { $0?.stop() } }

    /// The file's content; empty when there is no file. An unreadable file is set aside and logged.
    func load() -> NearbyRecord {
        do {
            guard
                let bytes = try RegularFile.readIfPresent(
                    path, byteCountMax: NearbyRecord.byteCountMaximum, followsLinks: false)
            else { return NearbyRecord() }
            let record = try JSONDecoder().decode(NearbyRecord.self, from: Data(bytes))
            guard record.version == NearbyRecord.version else { return aside("it was written by another version") }
            return record
        } catch let error as FileError {
            guard error.isDamage else {
                logger.error(
                    "the channels nearby that this machine hosts cannot be read", metadata: ["why": "\(error)"])
                return NearbyRecord()
            }
            return aside(error.reason)
        } catch {
            return aside("it is damaged")
        }
    }

    private func aside(_ why: String) -> NearbyRecord {
        let moved = try? AtomicFile.setAside(path)
        logger.error(
            "the channels nearby that this machine hosted are lost; create them again",
            metadata: ["file": "\(path)", "why": "\(why)", "set-aside": "\(moved ?? "no")"])
        return NearbyRecord()
    }

    /// Saves the record. The outcome is only logged.
    func save(_ record: NearbyRecord) {
        do {
            try thread().execute { [path, logger] in
                do {
                    let bytes = try JSONEncoder().encode(record)
                    try AtomicFile.write(Array(bytes), to: path, isSecret: true)
                } catch {
                    Self.tell(error, logger)
                }
            }
        } catch {
            Self.tell(error, logger)
        }
    }

    /// Where the connections of a hosted channel's relay are kept.
    ///
    /// - Throws: `SystemError` when no thread can be made for it.
    func places(of channel: String) throws(SystemError) -> PlacesFile {
        PlacesFile(placesPath(channel), on: try thread(), logger: logger)
    }

    /// The channel is hosted no more.
    func forgetPlaces(of channel: String) {
        try? thread().execute { [path = placesPath(channel)] in try? AtomicFile.remove(path) }
    }

    private func placesPath(_ channel: String) -> String { "\(path).\(channel)" }

    private func thread() throws(SystemError) -> EventLoop {
        try disk.withLock { disk throws(SystemError) -> EventLoop in
            if let disk { return disk }
            let thread = try EventLoop(name: "nearby-store")
            disk = thread
            return thread
        }
    }

    private static func tell(_ error: any Error, _ logger: Logger) {
        logger.error(
            "the channels nearby cannot be saved, and will be missing after a restart", metadata: ["why": "\(error)"])
    }

    /// Returns when everything is on the disk.
    func close() async {
        guard let thread = disk.withLock({ $0 }) else { return }
        await withCheckedContinuation { done in thread.execute { done.resume() } }
    }
}
