// Names for accessories and learned profiles, made from what devices call themselves.

/// Names of small letters, digits and '-'.
enum AccessoryNames {
    /// The longest name.
    static let lengthMax = 48

    /// A name made from `text`; `fallback` when nothing of it is left.
    static func name(from text: String?, fallback: String) -> String {
        var name = ""
        for character in (text ?? "").lowercased().unicodeScalars {
            if character.isASCII, character.properties.isAlphabetic || ("0"..."9").contains(character) {
                name.unicodeScalars.append(character)
            } else if !name.isEmpty, !name.hasSuffix("-") {
                name += "-"
            }
            if name.utf8.count >= lengthMax { break }
        }
        while name.hasSuffix("-") { name.removeLast() }
        return name.isEmpty ? fallback : name
    }

    /// The title of a profile that was learned from a device of this name: in UTF-8 no longer than a profile's title may be.
    static func title(from name: String?) -> String {
        var name = String((name ?? "Button").prefix(100))
        while name.utf8.count > 100 { name.removeLast() }
        return "\(name) (learned)"
    }

    /// `name`, with a number behind it when it is taken.
    static func unique(_ name: String, isTaken: (String) -> Bool) -> String {
        guard isTaken(name) else { return name }
        var number = 2
        while isTaken("\(name)-\(number)") { number += 1 }
        return "\(name)-\(number)"
    }

    /// Whether a person may give this name.
    static func isValid(_ name: String) -> Bool {
        (1...64).contains(name.utf8.count)
            && name.unicodeScalars.allSatisfy {
                $0.isASCII && ($0.properties.isAlphabetic || ("0"..."9").contains($0) || $0 == "-" || $0 == "_")
            }
    }
}
