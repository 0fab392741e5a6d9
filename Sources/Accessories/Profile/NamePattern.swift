// Names with `*`, and how much of a name a pattern says.

/// A name with `*` for any characters; letters match in either case, as makers vary them.
public struct NamePattern: Hashable, Sendable {
    /// The pattern as written.
    public let text: String
    private let folded: [Unicode.Scalar]

    /// A pattern; `*` stands for any characters, also none.
    public init(_ text: String) {
        self.text = text
        folded = Self.fold(text)
    }

    /// How much the pattern says: of two that fit a name, the one that says more is meant.
    var specificity: Int {
        let literals = folded.count { $0 != "*" }
        return 2 * literals + (literals == folded.count ? 1 : 0)
    }

    /// Whether `name` as a whole fits.
    public func matches(_ name: String) -> Bool { matches(folded: Self.fold(name)) }

    /// The same for a name that `fold` has folded, for many patterns.
    func matches(folded name: [Unicode.Scalar]) -> Bool {
        // Greedy with one step back to the last star: linear in practice, never exponential.
        var p = 0
        var n = 0
        var star: (pattern: Int, name: Int)?
        while n < name.count {
            if p < folded.count, folded[p] == "*" {
                star = (p, n)
                p += 1
            } else if p < folded.count, folded[p] == name[n] {
                p += 1
                n += 1
            } else if let last = star {
                star = (last.pattern, last.name + 1)
                p = last.pattern + 1
                n = last.name + 1
            } else {
                return false
            }
        }
        return folded[p...].allSatisfy { $0 == "*" }
    }

    static func fold(_ text: String) -> [Unicode.Scalar] { Array(text.lowercased().unicodeScalars) }
}
