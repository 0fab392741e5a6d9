// Rows, times and QR codes, as the commands print them.
import CQREncode
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

/// A QR code.
struct QRCode {
    /// Modules on a side.
    let size: Int
    /// Row by row, whether each module is dark.
    let isDark: [Bool]

    /// Light modules around the code, as scanners want them.
    static let margin = 2

    /// The code of `text`, with the lowest level of correction: a terminal has no dirt on it, and the code is smaller. Nil when
    /// it is too long for one.
    init?(_ text: String) {
        guard let code = QRcode_encodeString8bit(text, 0, QR_ECLEVEL_L) else { return nil }
        defer { QRcode_free(code) }
        let width = Int(code.pointee.width)
        guard width > 0, let data = code.pointee.data else { return nil }
        size = width
        isDark = (0..<width * width).map { data[$0] & 1 == 1 }
    }

    /// Lines of half blocks, two modules above each other in each, white on black whatever colours the terminal has.
    var lines: [String] {
        let range = -Self.margin..<size + Self.margin
        return stride(from: range.lowerBound, to: range.upperBound, by: 2).map { row in
            var line = "\u{1B}[97;40m"
            for column in range {
                switch (isLight(row, column), isLight(row + 1, column)) {
                case (true, true): line += "█"
                case (true, false): line += "▀"
                case (false, true): line += "▄"
                case (false, false): line += " "
                }
            }
            return line + "\u{1B}[0m"
        }
    }

    /// Below the margin it is dark, so that an odd last line does not stick out.
    private func isLight(_ row: Int, _ column: Int) -> Bool {
        guard row < size + Self.margin else { return false }
        guard (0..<size).contains(row), (0..<size).contains(column) else { return true }
        return !isDark[row * size + column]
    }
}
