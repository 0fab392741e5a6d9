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
func timeText(_ seconds: Int64) -> String {
    var moment = time_t(seconds)
    var parts = tm()
    guard localtime_r(&moment, &parts) != nil else { return "\(seconds)" }
    func two(_ number: Int32) -> String { number < 10 ? "0\(number)" : "\(number)" }
    return
        "\(1_900 + parts.tm_year)-\(two(parts.tm_mon + 1))-\(two(parts.tm_mday)) \(two(parts.tm_hour)):\(two(parts.tm_min))"
}
