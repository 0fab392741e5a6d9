// Makes untrusted names and explanations safe for a desktop's widgets.
import PlainText

/// Text of others in the user interface: one line, bounded, and nothing in it that could turn the line around.
enum DisplayText {
    /// The longest text shown, in characters; longer ones end in "…".
    static let characterCountMax = 160

    /// `text` on one line, at most `limit` characters long; `fallback` when nothing of it can be seen.
    static func line(_ text: String, fallback: String, limit: Int = characterCountMax) -> String {
        var shown = ""
        var count = 0
        var pendingSpace = false
        // A "character" may be a letter with a thousand marks on it: scalars are bounded too.
        for character in text.prefix(4 * limit) {
            let kept = String(character.unicodeScalars.prefix(8).filter { !$0.isHidden })
            if kept.unicodeScalars.allSatisfy(\.isShaping) || character.isWhitespace {
                pendingSpace = pendingSpace || (character.isWhitespace && !shown.isEmpty)
                continue
            }
            guard count + (pendingSpace ? 1 : 0) < limit else {
                shown.append("…")
                break
            }
            if pendingSpace {
                shown.append(" ")
                count += 1
                pendingSpace = false
            }
            shown.append(kept)
            count += 1
        }
        return shown.isEmpty ? fallback : shown
    }

    /// `text` for a place where `&` and `<` begin something (Desktop Notifications Specification, "Markup").
    static func escapingMarkup(_ text: String) -> String {
        // By scalar: "&" with a mark on it is another character, and still an ampersand to a parser.
        text.unicodeScalars.reduce(into: "") { escaped, scalar in
            switch scalar {
            case "&": escaped += "&amp;"
            case "<": escaped += "&lt;"
            case ">": escaped += "&gt;"
            default: escaped.unicodeScalars.append(scalar)
            }
        }
    }

    /// `text` as a menu label, where one underscore would underline the next letter (dbusmenu).
    static func menuLabel(_ text: String) -> String {
        text.unicodeScalars.reduce(into: "") { label, scalar in
            label.unicodeScalars.append(scalar)
            if scalar == "_" { label.unicodeScalars.append(scalar) }
        }
    }
}
