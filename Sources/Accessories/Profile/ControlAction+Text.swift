// Actions as they are written in configuration files and over D-Bus.

extension ControlAction {
    /// A command has at most this many words, and a text at most `textMax` bytes.
    static let wordsMax = 64
    /// The longest text of an action, in bytes.
    static let textMax = 4096

    /// An action as `text` writes it: "transmit", "emergency", "channel-up", "channel-down", "replay-last", "none", or
    /// "command: PROGRAM ARGUMENT …". Arguments with spaces stand in double quotes, in which `\` takes the next
    /// character as it is. Nil when it is anything else.
    public init?(_ text: String) {
        guard text.utf8.count <= Self.textMax else { return nil }
        switch text {
        case "none": self = .none
        case "transmit": self = .transmit
        case "emergency": self = .emergency
        case "channel-up": self = .channelUp
        case "channel-down": self = .channelDown
        case "replay-last": self = .replayLast
        default:
            let start = "command:"
            guard text.hasPrefix(start), let words = Self.words(text.dropFirst(start.count)),
                let program = words.first, !program.isEmpty, words.count <= Self.wordsMax
            else { return nil }
            self = .command(words)
        }
    }

    /// The action as `init(_:)` reads it.
    public var text: String {
        guard case .command(let words) = self else { return description }
        return "command: " + words.map(Self.quoted).joined(separator: " ")
    }

    private static func quoted(_ word: String) -> String {
        let isPlain = !word.isEmpty && !word.contains { $0.isWhitespace || $0 == "\"" || $0 == "\\" }
        if isPlain { return word }
        return "\"" + word.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"") + "\""
    }

    /// The words of a command line; nil when a quote is not closed.
    private static func words(_ text: Substring) -> [String]? {
        var words: [String] = []
        var word: String?
        var isQuoted = false
        var isEscaped = false
        for character in text {
            if isEscaped {
                word = (word ?? "") + String(character)
                isEscaped = false
            } else if isQuoted, character == "\\" {
                isEscaped = true
            } else if character == "\"" {
                isQuoted.toggle()
                word = word ?? ""
            } else if !isQuoted, character.isWhitespace {
                if let word { words.append(word) }
                word = nil
            } else {
                word = (word ?? "") + String(character)
            }
        }
        guard !isQuoted, !isEscaped else { return nil }
        if let word { words.append(word) }
        return words
    }
}
