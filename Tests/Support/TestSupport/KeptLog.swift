// A log that a test reads.
import Logging
import Synchronization

/// Keeps what is logged.
public final class KeptLog: LogHandler, Sendable {
    private let kept = Mutex<[(level: Logger.Level, text: String)]>([])

    /// An empty log.
    public init() {}

    /// A logger that writes here.
    public var logger: Logger { Logger(label: "test") { _ in self } }
    /// The messages, without their metadata.
    public var lines: [String] { kept.withLock { $0.map(\.text) } }
    /// How many are warnings, or worse.
    public var warnings: Int { kept.withLock { $0.count { $0.level >= .warning } } }

    /// Forgets all.
    public func clear() { kept.withLock { $0 = [] } }

    /// None.
    public var metadata: Logger.Metadata {
        get { [:] }
        set {}
    }
    /// Everything.
    public var logLevel: Logger.Level {
        get { .trace }
        set {}
    }
    /// None.
    public subscript(metadataKey _: String) -> Logger.Metadata.Value? {
        get { nil }
        set {}
    }
    /// Keeps one more.
    public func log(event: LogEvent) { kept.withLock { $0.append((event.level, "\(event.message)")) } }
}
