// The forms of a log line: text for people, and JSON for programs.
import Glibc
import Logging

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
