// How the programs write their log: one line an event on standard error, as systemd's journal wants it.
import Glibc
import Logging
import MonotonicTime

/// Writes each event as one line: `label: message key=value …`, metadata sorted by key.
///
/// In systemd's journal (`JOURNAL_STREAM` names the descriptor, systemd.exec(5)) a line begins with its priority, sd-daemon(3), and the journal adds the
/// time; elsewhere it begins with the monotonic time in seconds and the level. A value with spaces is quoted; line ends and
/// control characters in a value are escaped, so no peer can forge a line. As `LogFormat.json` the event is an object; the priority for
/// the journal stands before it all the same. Logging never waits: see `LogWriter`.
public struct LineLogHandler: LogHandler {
    /// What every event of this handler carries.
    public var metadata: Logger.Metadata = [:]
    /// Events below are dropped.
    public var logLevel: Logger.Level
    private let label: String
    private let format: LogFormat
    private let writer: LogWriter
    /// Longest line of text, in bytes; the rest is cut off, and said so.
    private static let lineBytesMax = 16 * 1024

    /// A handler for `label` that keeps events of `level` and above.
    ///
    /// - Parameters:
    ///   - format: How a line is written.
    ///   - writer: Where lines go; standard error by default.
    public init(
        label: String, level: Logger.Level, format: LogFormat = .text, writer: LogWriter = .standardError
    ) {
        self.label = label
        self.format = format
        logLevel = level
        self.writer = writer
        let plain = self
        writer.describeDrops { count in
            plain.line(
                LogEvent(
                    level: .warning, message: "log lines dropped: nobody read them in time", error: nil,
                    metadata: ["count": "\(count)"], source: "Logs", file: #fileID, function: #function,
                    line: #line))
        }
    }

    /// One value of `metadata`.
    public subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    /// Hands the event to the writer.
    public func log(event: LogEvent) { writer.write(line(event), isImportant: event.level >= .warning) }

    private func line(_ event: LogEvent) -> String {
        let all = event.metadata.map { metadata.merging($0) { _, new in new } } ?? metadata
        var line = writer.isJournal ? "<\(Self.priority(event.level))>" : ""
        switch format {
        case .text:
            line += (writer.isJournal ? "" : "\(Self.time()) \(event.level) ") + text(event, all)
            let excess = line.utf8.count - Self.lineBytesMax
            if excess > 0 {
                line = String(decoding: line.utf8.prefix(Self.lineBytesMax), as: UTF8.self) + "… \(excess) bytes more"
            }
        case .json:
            line += JSONLine.text(
                time: JSONLine.time(), level: event.level, label: label, message: "\(event.message)", metadata: all)
        }
        return line + "\n"
    }

    private func text(_ event: LogEvent, _ metadata: Logger.Metadata) -> String {
        var line = "\(label): \(escaped("\(event.message)"))"
        for (key, value) in metadata.sorted(by: { $0.key < $1.key }) {
            let text = escaped("\(value)")
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
}

/// `text` without anything that begins another line, or that a terminal takes for more than a sign.
///
/// - Parameter isJSON: Whether it stands within a text of JSON (RFC 8259).
func escaped(_ text: String, isJSON: Bool = false) -> String {
    var result = ""
    for scalar in text.unicodeScalars {
        switch scalar {
        case "\n": result += "\\n"
        case "\r": result += "\\r"
        case "\t": result += "\\t"
        case "\"": result += "\\\""
        case "\\" where isJSON: result += "\\\\"
        case let scalar where scalar.value < 0x20 || (0x7F..<0xA0).contains(scalar.value):
            result += (isJSON ? "\\u00" : "\\x") + (scalar.value < 16 ? "0" : "") + String(scalar.value, radix: 16)
        default: result.unicodeScalars.append(scalar)
        }
    }
    return result
}

/// How an event is written.
public enum LogFormat: String, Sendable, CaseIterable {
    /// `label: message key=value …`
    case text
    /// One JSON object (RFC 8259) a line: `time` (RFC 3339, UTC), `level`, `label`, `message`, and `metadata`, an object of texts.
    case json
}

/// An event as one JSON object, without a line end.
enum JSONLine {
    static func text(
        time: String, level: Logger.Level, label: String, message: String, metadata: Logger.Metadata
    ) -> String {
        var fields = [
            ("time", quoted(time)), ("level", quoted(level.rawValue)), ("label", quoted(label)),
            ("message", quoted(message)),
        ]
        if !metadata.isEmpty { fields.append(("metadata", object(metadata))) }
        return "{\(fields.map { "\(quoted($0.0)):\($0.1)" }.joined(separator: ","))}"
    }

    /// Now, in UTC, to the microsecond.
    static func time() -> String {
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        var parts = tm()
        gmtime_r(&now.tv_sec, &parts)
        func digits(_ value: Int, _ count: Int) -> String {
            let text = String(value)
            return String(repeating: "0", count: max(0, count - text.count)) + text
        }
        let (year, month) = (digits(Int(parts.tm_year) + 1_900, 4), digits(Int(parts.tm_mon) + 1, 2))
        let date = "\(year)-\(month)-\(digits(Int(parts.tm_mday), 2))"
        let time = "\(digits(Int(parts.tm_hour), 2)):\(digits(Int(parts.tm_min), 2)):\(digits(Int(parts.tm_sec), 2))"
        return "\(date)T\(time).\(digits(now.tv_nsec / 1_000, 6))Z"
    }

    private static func object(_ metadata: Logger.Metadata) -> String {
        "{\(metadata.sorted { $0.key < $1.key }.map { "\(quoted($0.key)):\(value($0.value))" }.joined(separator: ","))}"
    }

    private static func value(_ value: Logger.MetadataValue) -> String {
        switch value {
        case .string(let text): quoted(text)
        case .stringConvertible(let value): quoted("\(value)")
        case .dictionary(let values): object(values)
        case .array(let values): "[\(values.map(Self.value).joined(separator: ","))]"
        }
    }

    private static func quoted(_ text: String) -> String { "\"\(escaped(text, isJSON: true))\"" }
}
