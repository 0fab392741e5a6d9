// The languages that have texts, and which of them is wanted. Pure.

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
