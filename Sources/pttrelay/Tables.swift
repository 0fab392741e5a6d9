// Rows and times, as the commands print them.
import Glibc
import Terminal

/// Rows of cells in columns as wide as their widest cell.
func table(_ rows: [[String]]) -> [String] {
    let cells = rows.map { $0.map { $0.plain(limit: 64) } }
    let widths = (cells.first ?? []).indices.map { column in cells.map { $0[column].count }.max() ?? 0 }
    return cells.map { row in
        var line = ""
        for (cell, width) in zip(row, widths) { line += cell + String(repeating: " ", count: width - cell.count + 2) }
        while line.last == " " { line.removeLast() }
        return line
    }
}

/// A time in seconds since 1970 in the zone of this machine, "2026-11-21 19:30".
func timeText(_ seconds: Int64) -> String { timeText(seconds, localtime_r, "%Y-%m-%d %H:%M") }

/// Seconds since 1970 as RFC 3339 has them, in UTC.
func apiTime(_ seconds: Int64) -> String { timeText(seconds, gmtime_r, "%Y-%m-%dT%H:%M:%SZ") }

private func timeText(
    _ seconds: Int64, _ calendar: (UnsafePointer<time_t>, UnsafeMutablePointer<tm>) -> UnsafeMutablePointer<tm>?,
    _ format: String
) -> String {
    var moment = time_t(seconds)
    var parts = tm()
    guard calendar(&moment, &parts) != nil else { return "\(seconds)" }
    var text = [CChar](repeating: 0, count: 64)
    let count = strftime(&text, text.count, format, &parts)
    return String(decoding: text.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
}
