// Bounds of time that a machine which halts in between may miss.

/// Tries again what a halt of this machine may spoil. A defect spoils every attempt.
///
/// - Returns: The first outcome that is good; the last one of `count` if none is.
public func attempts<Outcome>(
    _ count: Int, until isGood: (Outcome) -> Bool, _ attempt: () async throws -> Outcome
) async rethrows -> Outcome {
    for _ in 1..<count {
        let outcome = try await attempt()
        if isGood(outcome) { return outcome }
    }
    return try await attempt()
}
