// Signal subscriptions: match rules at the bus, and their handlers.

/// A match that was added; give it to `removeMatch`.
public struct DBusMatch: Hashable, Sendable {
    let identifier: UInt64
}

/// A handler of signals, called on the loop.
public typealias DBusSignalHandler = @Sendable (DBusMessage) -> Void

/// The matches in the order they were added.
struct MatchTable {
    struct Entry {
        let rule: DBusMatchRule
        let text: String
        let handler: DBusSignalHandler
    }

    private(set) var entries: [(identifier: UInt64, entry: Entry)] = []
    private var uses: [String: Int] = [:]
    private var nextIdentifier: UInt64 = 1

    /// The texts that the bus must know.
    var texts: [String] { Array(uses.keys) }
    var count: Int { entries.count }

    /// Returns whether the bus does not know the text yet.
    mutating func add(_ entry: Entry) -> (match: DBusMatch, isNew: Bool) {
        let identifier = nextIdentifier
        nextIdentifier += 1
        entries.append((identifier, entry))
        uses[entry.text, default: 0] += 1
        return (DBusMatch(identifier: identifier), uses[entry.text] == 1)
    }

    /// Returns the entry, and whether the bus may forget its text.
    mutating func remove(_ match: DBusMatch) -> (entry: Entry, isLast: Bool)? {
        guard let index = entries.firstIndex(where: { $0.identifier == match.identifier }) else { return nil }
        let entry = entries.remove(at: index).entry
        let left = (uses[entry.text] ?? 1) - 1
        uses[entry.text] = left == 0 ? nil : left
        return (entry, left == 0)
    }

    func contains(_ identifier: UInt64) -> Bool { entries.contains { $0.identifier == identifier } }
}

extension DBusConnection {
    /// Calls `handler` for each signal that fits `rule`, until `removeMatch`.
    ///
    /// When this returns, the bus knows the rule: no signal sent after that is missed. Without a connection the match
    /// is kept and registered after reconnecting. The owner of a rule's well-known sender is tracked, and a signal from
    /// any other sender does not match.
    ///
    /// - Throws: `DBusError.invalid` for a bad rule, `.limitReached`, or what the bus says against it.
    @discardableResult
    public func addMatch(_ rule: DBusMatchRule, handler: @escaping DBusSignalHandler) async throws(DBusError)
        -> DBusMatch
    {
        let text = try rule.text()
        guard matches.count < DBusLimits.matches else { throw .limitReached("\(DBusLimits.matches) signal matches") }
        let (match, isNew) = matches.add(.init(rule: rule, text: text, handler: handler))
        let current = generation
        do {
            if let sender = rule.sender { try await follow(sender) }
            if isNew { try await installMatch(text) }
        } catch {
            // Lost meanwhile: restored with the rest.
            if case .disconnected = error { return match }
            if current == generation { await removeMatch(match) }
            throw error
        }
        return match
    }

    /// Ends a match. Its handler is not called again, not even for signals that are already on their way.
    public func removeMatch(_ match: DBusMatch) async {
        guard let (entry, isLast) = matches.remove(match) else { return }
        if let sender = entry.rule.sender { await unfollow(sender) }
        guard isLast else { return }
        // The bus forgets the matches of connections that end, so a failure here means there is nothing to remove.
        _ = try? await callBus("RemoveMatch", [.string(entry.text)])
    }

    func installMatch(_ text: String) async throws(DBusError) {
        _ = try await callBus("AddMatch", [.string(text)])
    }

    func restoreMatches(generation: Int) async throws(DBusError) {
        for text in matches.texts {
            guard generation == self.generation else { throw .disconnected }
            try await installMatch(text)
        }
    }

    /// Passes a signal to the handlers whose rules match. A signal that matches no rule is not read at all.
    func deliver(_ head: DBusMessage) {
        let isNews = head.sender == Self.busName
        let fitting = matches.entries.filter { _, entry in
            entry.rule.fits(head, owner: entry.rule.sender.flatMap { currentOwner(of: $0) })
        }
        guard isNews || !fitting.isEmpty else { return ignored(head) }
        guard let signal = try? read(head) else { return }
        if isNews { ownerChanged(signal) }
        for (identifier, entry) in fitting where entry.rule.argumentFits(signal) {
            // A handler before this one may have removed it.
            guard matches.contains(identifier) else { continue }
            entry.handler(signal)
        }
    }
}
