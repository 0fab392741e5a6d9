// "Did you mean": the known name nearest to a mistyped one.

/// The candidate that differs from `name` by the fewest edits, unless all of them are too far to be meant.
///
/// Edits are insertions, deletions, replacements and swaps of neighbours (optimal string alignment distance).
public func nearestName(to name: String, among candidates: some Sequence<String>) -> String? {
    // Longer ones are not typing mistakes, and the work grows with the square.
    let lengthMax = 64
    let wanted = Array(name.lowercased().unicodeScalars)
    guard wanted.count <= lengthMax else { return nil }
    var best: (name: String, distance: Int)?
    for candidate in candidates {
        let other = Array(candidate.lowercased().unicodeScalars)
        guard other.count <= lengthMax else { continue }
        let distance = editDistance(wanted, other)
        guard distance <= max(1, min(wanted.count, other.count) / 3) else { continue }
        if best.map({ (distance, candidate) < ($0.distance, $0.name) }) ?? true { best = (candidate, distance) }
    }
    return best?.name
}

private func editDistance(_ a: [Unicode.Scalar], _ b: [Unicode.Scalar]) -> Int {
    var beforePrevious = [Int](repeating: 0, count: b.count + 1)
    var previous = Array(0...b.count)
    for i in 0..<a.count {
        var current = [i + 1] + [Int](repeating: 0, count: b.count)
        for j in 0..<b.count {
            let cost = a[i] == b[j] ? 0 : 1
            current[j + 1] = min(previous[j + 1] + 1, current[j] + 1, previous[j] + cost)
            if i > 0, j > 0, a[i] == b[j - 1], a[i - 1] == b[j] {
                current[j + 1] = min(current[j + 1], beforePrevious[j - 1] + 1)
            }
        }
        beforePrevious = previous
        previous = current
    }
    return previous[b.count]
}
