// Which of the possible names somebody may have meant.
import Settings

/// The nearest of some names to one that is none of them.
enum NearestName {
    /// The name of `candidates` that begins with `name`, or differs least from it; nil when none is near.
    static func of(_ name: String, among candidates: some Sequence<String>) -> String? {
        guard !name.isEmpty else { return nil }
        let beginning = name.lowercased()
        return candidates.first { $0.lowercased().hasPrefix(beginning) } ?? nearestName(to: name, among: candidates)
    }

    /// "did you mean 'x'? " or nothing.
    static func hint(_ name: String, among candidates: some Sequence<String>) -> String {
        of(name, among: candidates).map { "did you mean '\($0)'? " } ?? ""
    }
}
