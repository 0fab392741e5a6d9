// The addresses of a relay's connections in a file: after a crash the next start informs idle clients.
import Files
import Logging
import Reactor
import Synchronization

/// The file of `RelayServerConfiguration.keepPlaces`. It is optional: no error of it keeps a relay from running.
public final class PlacesFile: Sendable {
    /// A line of text for each connection, of 200 bytes at most: for 40,000 of them.
    private static let byteCountMax = 8_000_000

    private let path: String
    private let logger: Logger
    private let writer: LatestValueWriter<@Sendable () -> String>

    /// The file `path`, whose directory is there.
    ///
    /// - Parameter loop: May wait for the disk.
    public init(_ path: String, on loop: EventLoop, logger: Logger) {
        self.path = path
        self.logger = logger
        // A disk that goes on refusing is told of once.
        let hasFailed = Mutex(false)
        writer = LatestValueWriter(on: loop) { text in
            do throws(FileError) {
                // The reader finds out what a power failure leaves of it.
                try AtomicFile.write(Array(text().utf8), to: path, isSecret: true, waits: false)
                hasFailed.withLock { $0 = false }
            } catch {
                guard !hasFailed.withLock({ exchange(&$0, with: true) }) else { return }
                logger.warning("\(error); if this relay is killed, idle members notice it later")
            }
        }
    }

    /// What an earlier start kept; empty when there is nothing.
    public func read() -> String {
        do throws(FileError) {
            let bytes = try RegularFile.readIfPresent(path, byteCountMax: Self.byteCountMax, followsLinks: false)
            return String(decoding: bytes ?? [], as: UTF8.self)
        } catch {
            logger.warning("\(error); idle members notice a restart later")
            return ""
        }
    }

    /// Makes the text on the loop that may wait, and writes it.
    public func keep(_ text: @escaping @Sendable () -> String) { writer.put(text) }
}
