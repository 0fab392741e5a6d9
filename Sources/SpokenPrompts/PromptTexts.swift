// The languages, the texts of prompts in each, and the names in them. Pure.
import PlainText

/// The texts of one language. In each, `name` stands for the name of a channel, of an accessory or of a talker.
struct PromptTexts: Hashable, Sendable {
    /// What a name takes the place of.
    static let name = "{name}"

    let channel: String
    let connectionLost: String
    let connectedAgain: String
    let batteryLow: String
    let talked: String

    static func of(_ language: PromptLanguage) -> PromptTexts {
        switch language {
        case .english:
            PromptTexts(
                channel: "{name}", connectionLost: "No connection", connectedAgain: "Connected again",
                batteryLow: "The battery of {name} is low", talked: "That was {name}")
        case .french:
            PromptTexts(
                channel: "{name}", connectionLost: "Pas de connexion", connectedAgain: "Connexion rétablie",
                batteryLow: "La batterie de {name} est faible", talked: "C'était {name}")
        case .german:
            PromptTexts(
                channel: "{name}", connectionLost: "Keine Verbindung", connectedAgain: "Wieder verbunden",
                batteryLow: "Der Akku von {name} ist schwach", talked: "Das war {name}")
        case .korean:
            PromptTexts(
                channel: "{name}", connectionLost: "연결이 끊겼습니다", connectedAgain: "다시 연결되었습니다",
                batteryLow: "{name} 배터리가 부족합니다", talked: "{name} 님이 말했습니다")
        }
    }
}

extension SpokenPrompt {
    /// The text in a language: one line of plain text, of bounded length; nil when nothing of its name can be said.
    public func text(in language: PromptLanguage) -> String? {
        let texts = PromptTexts.of(language)
        return switch self {
        case .channel(let name): Self.text(texts.channel, name)
        case .connectionLost: texts.connectionLost
        case .connectedAgain: texts.connectedAgain
        case .batteryLow(let name): Self.text(texts.batteryLow, name)
        case .talked(let name): Self.text(texts.talked, name)
        }
    }

    private static func text(_ template: String, _ name: String) -> String? {
        guard let place = template.firstRange(of: PromptTexts.name) else { return template }
        guard let said = SpokenName(name)?.text else { return nil }
        return template[..<place.lowerBound] + said + template[place.upperBound...]
    }
}

/// A name that somebody else has chosen, as it is handed to a speech program.
struct SpokenName: Hashable, Sendable {
    /// The most characters of a name that are said.
    static let charactersMax = 40
    /// The most UTF-8 bytes of a name: a character may have any number of marks.
    static let bytesMax = 200

    /// One line without characters that are invisible, and without `[` and `]`, between which espeak-ng reads phonemes.
    let text: String

    /// Nil when nothing remains.
    init?(_ name: String) {
        var plain = String.UnicodeScalarView()
        for scalar in name.unicodeScalars.prefix(4 * Self.charactersMax) {
            let isGap = scalar.isHidden || scalar == "[" || scalar == "]" || scalar.properties.isWhitespace
            plain.append(isGap ? " " : scalar)
        }
        var text = ""
        var count = 0
        for character in String(plain) {
            if character == " ", text.isEmpty || text.last == " " { continue }
            guard count < Self.charactersMax, text.utf8.count + character.utf8.count <= Self.bytesMax else { break }
            text.append(character)
            count += 1
        }
        if text.last == " " { text.removeLast() }
        guard text.contains(where: { $0.isLetter || $0.isNumber || $0.isSymbol }) else { return nil }
        self.text = text
    }
}

/// A language that has texts. The raw value is its ISO 639 code, by which speech programs know it, too.
public enum PromptLanguage: String, CaseIterable, Sendable {
    case english = "en"
    case french = "fr"
    case german = "de"
    case korean = "ko"

    /// The language of a tag such as `fr`, `fr-CA` or `fr_FR.UTF-8`; English where it has no texts.
    public init(tag: String) {
        let code = tag.prefix { $0 != "-" && $0 != "_" && $0 != "." && $0 != "@" }
        self = Self(rawValue: code.lowercased()) ?? .english
    }

    /// The language of a program's environment, as locale(7) has it.
    ///
    /// - Parameter value: Looks up a variable.
    public init(environment value: (String) -> String?) {
        let first = ["LC_ALL", "LC_MESSAGES", "LANG"].lazy.compactMap(value).first { !$0.isEmpty }
        self.init(tag: first ?? "")
    }

    /// Whether the text has the form of a language tag: a language's code, and parts of letters and digits (BCP 47).
    public static func isTag(_ text: String) -> Bool {
        let parts = text.utf8.split(separator: UInt8(ascii: "-"), omittingEmptySubsequences: false)
        guard let code = parts.first, (2...3).contains(code.count), parts.count <= 4 else { return false }
        return code.allSatisfy(isLetter)
            && parts.dropFirst().allSatisfy { part in
                (1...8).contains(part.count) && part.allSatisfy { isLetter($0) || isDigit($0) }
            }
    }

    private static func isLetter(_ byte: UInt8) -> Bool { (0x61...0x7A).contains(byte | 0x20) }
    private static func isDigit(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) }
}
