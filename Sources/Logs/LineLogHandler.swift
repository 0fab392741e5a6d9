// How the programs write their log: one line an event on standard error, as systemd's journal wants it.
import CLinux
import Glibc
import Logging
import MonotonicTime

/// Writes each event as one line: `label: message key=value …`, metadata sorted by key.
///
/// Under systemd (`JOURNAL_STREAM` is set, systemd.exec(5)) a line begins with its priority, sd-daemon(3), and the journal adds the
/// time; elsewhere it begins with the monotonic time in seconds and the level. A value with spaces is quoted; line ends and
/// control characters in a value are escaped, so no peer can forge a line. As `LogFormat.json` the event is an object; the priority for
/// the journal stands before it all the same.
public struct LineLogHandler: LogHandler {
    /// What every event of this handler carries.
    public var metadata: Logger.Metadata = [:]
    /// Events below are dropped.
    public var logLevel: Logger.Level
    private let label: String
    private let format: LogFormat
    private let underJournal: Bool
    private let descriptor: Int32

    /// A handler for `label` that keeps events of `level` and above.
    ///
    /// - Parameters:
    ///   - format: How a line is written.
    ///   - descriptor: Where lines go; standard error by default.
    public init(
        label: String, level: Logger.Level, format: LogFormat = .text, descriptor: Int32 = STDERR_FILENO
    ) {
        self.label = label
        self.format = format
        logLevel = level
        self.descriptor = descriptor
        underJournal = getenv("JOURNAL_STREAM") != nil
    }

    /// One value of `metadata`.
    public subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    /// Writes the event.
    public func log(event: LogEvent) {
        let all = event.metadata.map { metadata.merging($0) { _, new in new } } ?? metadata
        var line = underJournal ? "<\(Self.priority(event.level))>" : ""
        switch format {
        case .text: line += (underJournal ? "" : "\(Self.time()) \(event.level) ") + text(event, all)
        case .json:
            line += JSONLine.text(
                time: JSONLine.time(), level: event.level, label: label, message: "\(event.message)", metadata: all)
        }
        line += "\n"
        // One write(2) a line keeps lines of several threads apart.
        var bytes = Array(line.utf8)
        _ = write(descriptor, &bytes, bytes.count)
    }

    private func text(_ event: LogEvent, _ metadata: Logger.Metadata) -> String {
        var line = "\(label): \(Self.escaped("\(event.message)"))"
        for (key, value) in metadata.sorted(by: { $0.key < $1.key }) {
            let text = Self.escaped("\(value)")
            line += text.contains(" ") || text.isEmpty ? " \(key)=\"\(text)\"" : " \(key)=\(text)"
        }
        return line
    }

    /// syslog(3) priorities.
    private static func priority(_ level: Logger.Level) -> Int {
        switch level {
        case .trace, .debug: 7
        case .info: 6
        case .notice: 5
        case .warning: 4
        case .error: 3
        case .critical: 2
        }
    }

    private static func time() -> String {
        let microseconds = Instant.now.nanoseconds / 1_000
        let fraction = String(1_000_000 + microseconds % 1_000_000).dropFirst()
        return "\(microseconds / 1_000_000).\(fraction)"
    }

    private static func escaped(_ text: String) -> String {
        guard text.unicodeScalars.contains(where: { $0.value < 0x20 || $0.value == 0x7F || $0 == "\"" }) else {
            return text
        }
        var result = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\n": result += "\\n"
            case "\r": result += "\\r"
            case "\t": result += "\\t"
            case "\"": result += "\\\""
            case let scalar where scalar.value < 0x20 || scalar.value == 0x7F:
                result += "\\x" + (scalar.value < 16 ? "0" : "") + String(scalar.value, radix: 16)
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result
    }
}
