// Makes untrusted text safe for a terminal: it cannot move the cursor, or colour or reorder the line.

import PlainText

extension Unicode.Scalar {
    /// Whether a terminal may take it for more than a sign.
    public var isTerminalControl: Bool { isHidden }

    /// Columns that it takes: 0 for marks that join the sign before them, 2 for wide signs (UAX #11), else 1.
    fileprivate var columns: Int {
        switch properties.generalCategory {
        case .nonspacingMark, .enclosingMark, .format: return 0
        default: break
        }
        switch value {
        case 0x1100...0x115F, 0x2E80...0x303E, 0x3041...0xA4CF, 0xA960...0xA97F, 0xAC00...0xD7A3, 0xF900...0xFAFF,
            0xFE30...0xFE6F, 0xFF00...0xFF60, 0xFFE0...0xFFE6, 0x1F300...0x1F64F, 0x1F680...0x1F6FF, 0x1F900...0x1F9FF,
            0x20000...0x3FFFD:
            return 2
        default: return 1
        }
    }
}

extension StringProtocol {
    /// The text in one line, with U+FFFD in place of everything that is more than a sign, and at most `limit` characters.
    public func plain(limit: Int = 512) -> String {
        var result = ""
        var count = 0
        for character in self {
            guard count < limit else { return result + "…" }
            count += 1
            // A heap of marks on one sign would flood the lines around it.
            for scalar in character.unicodeScalars.prefix(16) {
                result.unicodeScalars.append(scalar.isTerminalControl ? "\u{FFFD}" : scalar)
            }
        }
        return result
    }

    /// The columns that it takes on a terminal.
    public var columns: Int { reduce(0) { $0 + $1.columns } }

    /// The text in lines of at most `width` columns, broken at spaces where there are any, at most `limit` of them.
    public func wrapped(_ width: Int, limit: Int) -> [String] {
        var lines: [String] = []
        var line = ""
        for word in split(separator: " ") {
            if line.isEmpty {
                line = String(word)
            } else if line.columns + 1 + word.columns <= width {
                line += " " + word
            } else {
                lines.append(line)
                line = String(word)
            }
        }
        lines.append(line)
        var shown = lines.prefix(Swift.max(1, limit)).map { $0.fitted(width, padded: false) }
        if lines.count > shown.count, let last = shown.popLast() {
            shown.append((last + "…").fitted(width, padded: false))
        }
        return shown
    }

    /// The text in exactly `width` columns, or at most so many when it is not `padded`; what does not fit ends in "…".
    public func fitted(_ width: Int, padded: Bool = true) -> String {
        var result = ""
        var used = 0
        let fits = columns <= width
        for character in self {
            let next = character.columns
            if used + next > (fits ? width : width - 1) { break }
            result.append(character)
            used += next
        }
        if !fits, width > 0 {
            result += "…"
            used += 1
        }
        return padded ? result + String(repeating: " ", count: Swift.max(0, width - used)) : result
    }
}

extension Character {
    fileprivate var columns: Int {
        // A sign with a variation selector for emoji, or a sequence of them, is as wide as its widest.
        if unicodeScalars.contains(where: { $0.value == 0xFE0F }) { return 2 }
        return unicodeScalars.map(\.columns).max() ?? 0
    }
}
