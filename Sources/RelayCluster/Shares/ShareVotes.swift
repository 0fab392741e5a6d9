// What relays of a cluster promise each other about their entries in the table of shares, so that one that is gone is noticed early. Pure.
import MonotonicTime

/// The promises and consents of one relay.
///
/// A relay that cannot renew its entry asks the others to promise that they will not remove it; a majority of its voters is enough to go on.
/// A relay that sees another one's entry grow old, while its own is renewed, asks the others to consent to its removal; it
/// needs a majority of that one's voters. Who has promised does not consent until the promise is over, and who has consented does not promise
/// any more. Two majorities have a relay in common, so one of both is never had.
struct ShareVotes: Sendable {
    /// What a relay asks another one.
    enum Question: Equatable, Sendable, Codable {
        /// Will you leave my entry alone?
        case promise
        /// May I remove the entry of that relay?
        case consent(to: String)
    }

    private let timers: SharesStateMachine.Timers
    private var promised: [String: Instant] = [:]
    private var consented: [String: Instant] = [:]
    /// Until when others have promised.
    private var promises: [String: Instant] = [:]
    /// Who has consented to the removal of whom.
    private var consents: [String: Set<String>] = [:]

    init(_ timers: SharesStateMachine.Timers) { self.timers = timers }

    // MARK: Answers to others

    /// Promises something to `asker`, or not.
    mutating func promise(_ asker: String, at now: Instant) -> Bool {
        if let until = consented[asker], now < until { return false }
        promised[asker] = now + timers.promise
        return true
    }

    /// Consents to the removal of `relay`, or not.
    mutating func consent(to relay: String, at now: Instant) -> Bool {
        if let until = promised[relay], now < until, !seededFault("a-promise-is-not-kept") { return false }
        // Longer than it could go on in any case: whatever is on its way meanwhile comes too late for it.
        consented[relay] = now + timers.lease
        return true
    }

    // MARK: Answers of others

    /// Another relay has promised what it was asked for at `sent`.
    mutating func note(promiseOf relay: String, askedAt sent: Instant) {
        promises[relay] = sent + timers.promise - timers.promiseMargin
    }

    /// Another relay has consented to the removal of `gone`.
    mutating func note(consentOf relay: String, to gone: String) { consents[gone, default: []].insert(relay) }

    /// Until when a majority of these voters, of which this relay is one, has promised; nil: it has not.
    func promisedUntil(by voters: Set<String>, own: String) -> Instant? {
        let others = voters.subtracting([own]).compactMap { promises[$0] }.sorted(by: >)
        let needed = voters.count / 2
        return needed > 0 && others.count >= needed ? others[needed - 1] : nil
    }

    /// Whether a majority of these voters has consented to the removal of `gone`.
    func isConsented(to gone: String, by voters: Set<String>) -> Bool {
        (consents[gone] ?? []).intersection(voters).count > voters.count / 2
    }

    /// Forgets who is not there any more, and consents that are not needed: the relay has renewed its entry.
    mutating func keep(_ relays: Set<String>, renewed: Set<String>) {
        promised = promised.filter { relays.contains($0.key) }
        // What was to be removed by this consent names an older table.
        consented = consented.filter { relays.contains($0.key) && !renewed.contains($0.key) }
        promises = promises.filter { relays.contains($0.key) }
        consents = consents.filter { relays.contains($0.key) && !renewed.contains($0.key) }
    }
}
