// The file that keeps the channels nearby over restarts. The disk's loop writes it, so that no other loop waits.
import Files
import FoundationEssentials
import Logging
import Reactor
import RelayServer

/// The file of `NearbyRecord`. A machine that never joined or hosted a channel nearby does not have it.
final class NearbyStore: Sendable {
    private let path: String
    private let disk: EventLoop
    private let logger: Logger
    private let writer: LatestValueWriter<NearbyRecord>

    /// The store in the file `path`, whose directory is there.
    ///
    /// - Parameter disk: The loop that writes the file.
    init(path: String, disk: EventLoop, logger: Logger) {
        self.path = path
        self.disk = disk
        self.logger = logger
        writer = LatestValueWriter(on: disk) { record in
            do {
                try AtomicFile.write(Array(try JSONEncoder().encode(record)), to: path, isSecret: true)
            } catch {
                logger.error(
                    "the channels nearby cannot be saved, and will be missing after a restart",
                    metadata: ["why": "\(error)"])
            }
        }
    }

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

    /// Saves the record, a moment later. The outcome is only logged.
    func save(_ record: NearbyRecord) { writer.put(record) }

    /// Where the connections of a hosted channel's relay are kept.
    func places(of channel: String) -> PlacesFile { PlacesFile(placesPath(channel), on: disk, logger: logger) }

    /// The channel is hosted no more.
    func forgetPlaces(of channel: String) {
        disk.execute { [path = placesPath(channel)] in try? AtomicFile.remove(path) }
    }

    private func placesPath(_ channel: String) -> String { "\(path).\(channel)" }
}
