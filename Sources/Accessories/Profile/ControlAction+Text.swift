// Actions as they are written in configuration files and over D-Bus.

extension ControlAction {
    /// A command has at most this many words, and a text at most `textMax` bytes.
    static let wordsMax = 64
    /// The longest text of an action, in bytes.
    package static let textMax = 4096

    /// An action as `text` writes it: "transmit", "emergency", "channel-up", "channel-down", "nearby-next", "replay-last",
    /// "none", or "command: PROGRAM ARGUMENT …". Arguments with spaces stand in double quotes, in which `\` takes the next
    /// character as it is. Nil when it is anything else.
    public init?(_ text: String) {
        guard text.utf8.count <= Self.textMax else { return nil }
        if let action = Self.ofOneWord.first(where: { $0.description == text }) {
            self = action
            return
        }
        let start = "command:".unicodeScalars
        guard text.unicodeScalars.starts(with: start),
            let words = Self.words(text.unicodeScalars.dropFirst(start.count)),
            let program = words.first, !program.isEmpty, words.count <= Self.wordsMax
        else { return nil }
        self = .command(words)
    }

    /// All but commands.
    static let ofOneWord: [ControlAction] = [
        .transmit, .emergency, .channelUp, .channelDown, .nearbyNext, .replayLast, .none,
    ]

    /// The action as `init(_:)` reads it.
    public var text: String {
        guard case .command(let words) = self else { return description }
        return "command: " + words.map(Self.quoted).joined(separator: " ")
    }

    // By scalars, both ways: a mark behind a quote, or before one, would be one character with it.

    private static func quoted(_ word: String) -> String {
        let isSpecial: (Unicode.Scalar) -> Bool = { $0 == "\"" || $0 == "\\" }
        let isPlain = !word.isEmpty && !word.unicodeScalars.contains { $0.properties.isWhitespace || isSpecial($0) }
        if isPlain { return word }
        var quoted = "\""
        for scalar in word.unicodeScalars {
            if isSpecial(scalar) { quoted += "\\" }
            quoted.unicodeScalars.append(scalar)
        }
        return quoted + "\""
    }

    /// The words of a command line; nil when a quote is not closed.
    private static func words(_ text: some Sequence<Unicode.Scalar>) -> [String]? {
        var words: [String] = []
        var word: String.UnicodeScalarView?
        var isQuoted = false
        var isEscaped = false
        for scalar in text {
            if isEscaped {
                word = (word ?? .init()) + [scalar]
                isEscaped = false
            } else if isQuoted, scalar == "\\" {
                isEscaped = true
            } else if scalar == "\"" {
                isQuoted.toggle()
                word = word ?? .init()
            } else if !isQuoted, scalar.properties.isWhitespace {
                if let word { words.append(String(word)) }
                word = nil
            } else {
                word = (word ?? .init()) + [scalar]
            }
        }
        guard !isQuoted, !isEscaped else { return nil }
        if let word { words.append(String(word)) }
        return words
    }
}
