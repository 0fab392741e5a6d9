// QR codes (ISO/IEC 18004) of links, in the characters of a terminal.
import CQREncode
import Glibc

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
