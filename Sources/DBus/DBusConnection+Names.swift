// Bus names: who owns one, and owning one.

/// The owner of a watched name.
struct WatchedName {
    var owner: String?
    /// Whether the bus has reported the owner.
    var isKnown = false
    /// Matches and watches that need it.
    var uses = 0
    var handlers: [(identifier: UInt64, handler: @Sendable (String?) -> Void)] = []
}

/// A watch of a name's owner; give it to `unwatchName`.
public struct DBusNameWatch: Hashable, Sendable {
    let name: String
    let identifier: UInt64
}

extension DBusConnection {
    // MARK: Who owns a name

    /// Calls `handler` with the unique name that owns `name`, or nil if nobody does: once with the current owner
    /// (before this returns, if there is a bus), then at each change. Losing the bus counts as losing the owner.
    ///
    /// `name` may be a unique name, to learn when a caller leaves the bus.
    public func watchName(
        _ name: String, handler: @escaping @Sendable (String?) -> Void
    ) async throws(DBusError) -> DBusNameWatch {
        try DBusName.checkBus(name)
        let watch = DBusNameWatch(name: name, identifier: newIdentifier())
        names[name, default: WatchedName()].handlers.append((watch.identifier, handler))
        let wasKnown = names[name]?.isKnown == true
        if wasKnown { handler(names[name]?.owner) }
        do {
            try await follow(name)
        } catch {
            if case .disconnected = error { return watch }
            names[name]?.handlers.removeAll { $0.identifier == watch.identifier }
            await unfollow(name)
            throw error
        }
        return watch
    }

    /// Ends a watch.
    public func unwatchName(_ watch: DBusNameWatch) async {
        guard let entry = names[watch.name], entry.handlers.contains(where: { $0.identifier == watch.identifier })
        else {
            return
        }
        names[watch.name]?.handlers.removeAll { $0.identifier == watch.identifier }
        await unfollow(watch.name)
    }

    /// The unique name that owns `name`, asked of the bus; nil for nobody.
    public func owner(of name: String) async throws(DBusError) -> String? {
        try DBusName.checkBus(name)
        do {
            return try await callBus("GetNameOwner", [.string(name)]).argument(0)
        } catch {
            if error.remoteName == "org.freedesktop.DBus.Error.NameHasNoOwner" { return nil }
            throw error
        }
    }

    /// The user id of the process behind a bus name.
    public func userIdentifier(of name: String) async throws(DBusError) -> UInt32 {
        try DBusName.checkBus(name)
        return try await callBus("GetConnectionUnixUser", [.string(name)]).argument(0)
    }

    /// The process id behind a bus name.
    public func processIdentifier(of name: String) async throws(DBusError) -> UInt32 {
        try DBusName.checkBus(name)
        return try await callBus("GetConnectionUnixProcessID", [.string(name)]).argument(0)
    }

    /// Asks the bus to start the service of a well-known name, from its `.service` file; no effect when it is running.
    ///
    /// - Throws: `.remote` with `…ServiceUnknown` when there is no such file, with `…Spawn.…` when it does not start,
    ///   `.timedOut` when it does not take its name.
    public func startService(_ name: String, timeout: Duration = DBusConnection.defaultTimeout) async throws(DBusError)
    {
        try DBusName.checkBus(name)
        _ = try await callBus("StartServiceByName", [.string(name), .uint32(0)], timeout: timeout)
    }

    func currentOwner(of name: String) -> String? {
        // The bus itself signs with its well-known name.
        if name == Self.busName { return name }
        if DBusName.isUnique(name) { return name }
        return names[name]?.owner
    }

    private static func ownerRule(_ name: String) -> String {
        "type='signal',sender='\(busName)',interface='\(busName)',member='NameOwnerChanged',arg0='\(name)'"
    }

    /// Begins to know the owner of a name. First the match, then the question: nothing falls between.
    func follow(_ name: String) async throws(DBusError) {
        guard name != Self.busName else { return }
        names[name, default: WatchedName()].uses += 1
        guard names[name]?.isKnown != true else { return }
        try await installMatch(Self.ownerRule(name))
        try await learnOwner(name)
    }

    private func learnOwner(_ name: String) async throws(DBusError) {
        let owner = try await owner(of: name)
        if names[name]?.isKnown == false { learned(owner, of: name) }
    }

    private func learned(_ owner: String?, of name: String) {
        names[name]?.isKnown = true
        names[name]?.owner = owner
        for (_, handler) in names[name]?.handlers ?? [] { handler(owner) }
    }

    func unfollow(_ name: String) async {
        guard var entry = names[name] else { return }
        entry.uses -= 1
        if entry.uses > 0 {
            names[name] = entry
            return
        }
        names[name] = nil
        // As with RemoveMatch above.
        _ = try? await callBus("RemoveMatch", [.string(Self.ownerRule(name))])
    }

    func ownerChanged(_ signal: DBusMessage) {
        guard signal.member == "NameOwnerChanged", signal.arguments.count == 3,
            let name: String = signal.arguments[0].get(), let new: String = signal.arguments[2].get()
        else { return }
        learned(new.isEmpty ? nil : new, of: name)
    }

    /// The bus is gone, and everyone on it.
    func forgetOwners() {
        for (name, entry) in names where entry.isKnown {
            names[name]?.isKnown = false
            names[name]?.owner = nil
            if entry.owner != nil { for (_, handler) in entry.handlers { handler(nil) } }
        }
    }

    func restoreNames(generation: Int) async throws(DBusError) {
        for (name, flags) in requestedNames {
            guard generation == self.generation else { throw .disconnected }
            _ = try await request(name, flags: flags)
        }
        for name in names.keys {
            guard generation == self.generation else { throw .disconnected }
            try await installMatch(Self.ownerRule(name))
            try await learnOwner(name)
        }
    }

    // MARK: Owning a name

    /// Asks the bus for a well-known name, and asks again whenever the bus was away.
    ///
    /// - Parameters:
    ///   - replacing: Take the name from an owner that allows it.
    ///   - allowingReplacement: Let others take it from us.
    /// - Throws: `DBusError.disconnected`: it is asked for when the bus comes. `.nameTaken`; `.remote` with `…AccessDenied` when the bus's policy forbids the name.
    public func requestName(
        _ name: String, replacing: Bool = false, allowingReplacement: Bool = false
    ) async throws(DBusError) {
        try DBusName.checkBus(name)
        let flags: UInt32 = (allowingReplacement ? 1 : 0) | (replacing ? 2 : 0) | 4
        requestedNames[name] = flags
        do throws(DBusError) {
            guard try await request(name, flags: flags) else { throw .nameTaken(name) }
        } catch {
            // Without a bus the wish is kept, and asked for with the rest when it comes.
            if error != .disconnected { requestedNames[name] = nil }
            throw error
        }
    }

    /// Gives a name back.
    public func releaseName(_ name: String) async throws(DBusError) {
        try DBusName.checkBus(name)
        requestedNames[name] = nil
        _ = try await callBus("ReleaseName", [.string(name)])
    }

    /// Returns whether the name is ours.
    private func request(_ name: String, flags: UInt32) async throws(DBusError) -> Bool {
        let result: UInt32 = try await callBus("RequestName", [.string(name), .uint32(flags)]).argument(0)
        // 1: now the owner; 3: taken; 4: owner already.
        return result == 1 || result == 4
    }
}
