// Match rules: registered with the bus, and checked again on arrival.

/// A rule for signals. Members left nil match anything.
public struct DBusMatchRule: Hashable, Sendable {
    /// The sender's unique or well-known name.
    public var sender: String?
    /// The emitting object.
    public var path: DBusObjectPath?
    /// The emitting object or any object below it.
    public var pathNamespace: DBusObjectPath?
    /// The signal's interface.
    public var interface: String?
    /// The signal's name.
    public var member: String?
    /// The first argument, a string.
    public var argument0: String?

    /// A rule for signals.
    public init(
        sender: String? = nil, path: DBusObjectPath? = nil, pathNamespace: DBusObjectPath? = nil,
        interface: String? = nil, member: String? = nil, argument0: String? = nil
    ) {
        self.sender = sender
        self.path = path
        self.pathNamespace = pathNamespace
        self.interface = interface
        self.member = member
        self.argument0 = argument0
    }

    /// The rule as the bus wants it (D-Bus specification, "Match Rules").
    /// - Throws: `DBusError.invalid` for bad names, and for both a path and a namespace.
    public func text() throws(DBusError) -> String {
        var parts = ["type='signal'"]
        if let sender {
            try DBusName.checkBus(sender)
            parts.append("sender='\(sender)'")
        }
        if let interface {
            try DBusName.checkInterface(interface)
            parts.append("interface='\(interface)'")
        }
        if let member {
            try DBusName.checkMember(member)
            parts.append("member='\(member)'")
        }
        if path != nil, pathNamespace != nil { throw .invalid("a match rule with both a path and a path namespace") }
        if let path { parts.append("path='\(path)'") }
        // The bus takes '/' as a namespace, but it says nothing.
        if let pathNamespace, pathNamespace != "/" { parts.append("path_namespace='\(pathNamespace)'") }
        if let argument0 {
            guard !argument0.utf8.contains(0) else { throw .invalid("a match rule with a NUL byte in it") }
            // Inside quotes nothing is special but the quote itself.
            parts.append(
                "arg0='\(argument0.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''"))'"
            )
        }
        return parts.joined(separator: ",")
    }

    /// Whether a signal fits, as far as its head tells. The bus delivers signals that were sent to us directly whatever our rules are,
    /// so every part is checked, the sender too.
    ///
    /// - Parameter owner: The unique name that owns `sender` now.
    func fits(_ head: DBusMessage, owner: String?) -> Bool {
        if sender != nil {
            guard let owner, head.sender == owner else { return false }
        }
        if let interface, head.interface != interface { return false }
        if let member, head.member != member { return false }
        if let path, head.path != path { return false }
        if let pathNamespace {
            guard let path = head.path, path == pathNamespace || path.isDescendant(of: pathNamespace) else {
                return false
            }
        }
        return true
    }

    /// Whether the first argument of a signal fits.
    func argumentFits(_ signal: DBusMessage) -> Bool {
        guard let argument0 else { return true }
        guard case .string(argument0)? = signal.arguments.first else { return false }
        return true
    }
}
