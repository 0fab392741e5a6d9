// Which of the possible names somebody may have meant.

/// The nearest of some names to one that is none of them.
enum NearestName {
    /// The name of `candidates` that `name` is most likely meant to be; nil when none is near.
    ///
    /// A beginning counts as near; else what is within a third of the longer one's letters, and at least one.
    static func of(_ name: String, among candidates: some Sequence<String>) -> String? {
        let wanted = Array(name.lowercased().prefix(64))
        guard !wanted.isEmpty else { return nil }
        var best: (name: String, distance: Int)?
        for candidate in candidates {
            let letters = Array(candidate.lowercased().prefix(64))
            let isBeginning = letters.starts(with: wanted)
            let distance = isBeginning ? 0 : distance(wanted, letters)
            let limit = max(1, max(wanted.count, letters.count) / 3)
            guard distance <= limit, distance < best?.distance ?? .max else { continue }
            best = (candidate, distance)
        }
        return best?.name
    }

    /// "did you mean 'x'? " or nothing.
    static func hint(_ name: String, among candidates: some Sequence<String>) -> String {
        of(name, among: candidates).map { "did you mean '\($0)'? " } ?? ""
    }

    /// How many letters have to be put in, left out, changed, or swapped with their neighbour (Damerau's distance).
    static func distance(_ a: [Character], _ b: [Character]) -> Int {
        var before = [Int](repeating: 0, count: b.count + 1)
        var last = Array(0...b.count)
        for (i, x) in a.enumerated() {
            var row = [i + 1] + [Int](repeating: 0, count: b.count)
            for (j, y) in b.enumerated() {
                row[j + 1] = min(last[j + 1] + 1, row[j] + 1, last[j] + (x == y ? 0 : 1))
                if i > 0, j > 0, x == b[j - 1], a[i - 1] == y { row[j + 1] = min(row[j + 1], before[j - 1] + 1) }
            }
            (before, last) = (last, row)
        }
        return last[b.count]
    }
}
