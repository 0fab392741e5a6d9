// The addresses of a relay's connections in a file: after a crash the next start informs idle clients.
import Files
import Logging
import Reactor
import Synchronization

/// The file of `RelayServerConfiguration.keepPlaces`. It is optional: no error of it keeps a relay from running.
public final class PlacesFile: Sendable {
    /// A line of text for each connection, of 2 304 unless it is set up otherwise.
    private static let byteCountMax = 1 << 20

    private let path: String
    private let loop: EventLoop
    private let logger: Logger
    /// What is to be written, unless it has been; and whether it is known that nothing can be.
    private let state = Mutex<(text: String?, hasFailed: Bool)>((nil, false))

    /// The file `path`, whose directory is there.
    ///
    /// - Parameter loop: May wait for the disk.
    public init(_ path: String, on loop: EventLoop, logger: Logger) {
        self.path = path
        self.loop = loop
        self.logger = logger
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

    /// Writes that, a moment later, unless newer text comes before.
    public func keep(_ text: String) {
        let isFirst = state.withLock { state in
            defer { state.text = text }
            return state.text == nil
        }
        guard isFirst else { return }
        loop.execute { [self] in write() }
    }

    private func write() {
        let text = state.withLock { state in
            defer { state.text = nil }
            return state.text
        }
        guard let text else { return }
        do throws(FileError) {
            // What a power failure leaves of it is found out by who reads it.
            try AtomicFile.write(Array(text.utf8), to: path, isSecret: true, waits: false)
            state.withLock { $0.hasFailed = false }
        } catch {
            let isNews = state.withLock { state in
                defer { state.hasFailed = true }
                return !state.hasFailed
            }
            if isNews { logger.warning("\(error); if this relay is killed, idle members notice it later") }
        }
    }
}
