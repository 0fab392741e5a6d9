// Limits floods of property changes from one sender. It decides by object and property, before the values are read.
import CDBus
import Logging
import MonotonicTime
import Reactor

/// Which changes of properties may be left out when newer ones of the same property come, and how many are read.
public struct DBusSignalBound: Sendable {
    /// A property whose value is a state: only the newest counts.
    public struct Property: Hashable, Sendable {
        /// Its interface.
        public var interface: String
        /// Its name.
        public var name: String

        /// The property of an interface.
        public init(_ interface: String, _ name: String) {
            self.interface = interface
            self.name = name
        }
    }

    /// The well-known name of the sender.
    public var sender: String
    /// The objects.
    public var namespace: DBusObjectPath
    /// Objects whose paths share this many leading elements share a limit.
    public var groupElements: Int
    /// The properties.
    public var properties: Set<Property>
    /// Signals of a quiet group that are read at once.
    public var burst: Int
    /// The time between those that are read of a flood.
    public var interval: Duration

    /// A bound.
    public init(
        sender: String, namespace: DBusObjectPath, groupElements: Int, properties: Set<Property>, burst: Int,
        interval: Duration
    ) {
        self.sender = sender
        self.namespace = namespace
        self.groupElements = groupElements
        self.properties = properties
        self.burst = burst
        self.interval = interval
    }
}

/// A flood from the objects below a path.
public struct DBusSignalFlood: Hashable, Sendable {
    /// What the flooding objects' paths begin with.
    public var group: DBusObjectPath
    /// How many signals come a second; nil: the flood is over.
    public var perSecond: Int?

    init(_ group: String, perSecond: Int?) {
        (self.group, self.perSecond) = (DBusObjectPath(unchecked: group), perSecond)
    }
}

/// A message that libdbus keeps for us.
final class KeptMessage {
    let pointer: OpaquePointer
    init(_ pointer: OpaquePointer) { self.pointer = dbus_message_ref(pointer) }
    deinit { dbus_message_unref(pointer) }
}

/// One bound at work.
struct SignalFloodGate {
    let bound: DBusSignalBound
    let report: @Sendable (DBusSignalFlood) -> Void
    var valve: SignalValve<KeptMessage>
    var timer: EventLoop.Timer?
    /// When the timer fires.
    var due = Instant.zero
}

extension DBusConnection {
    /// Bounds how many changes of some properties are read. There is one bound at a time; nil ends it.
    ///
    /// - Parameter report: Called on the loop when a flood begins, and when it is over.
    public func bound(_ bound: DBusSignalBound?, report: @escaping @Sendable (DBusSignalFlood) -> Void = { _ in }) {
        floodGate?.timer?.cancel()
        floodGate = bound.map {
            SignalFloodGate(
                bound: $0, report: report, valve: SignalValve(burst: $0.burst, interval: $0.interval))
        }
    }

    /// Looks at a message before it is read.
    ///
    /// - Returns: Whether it is read now. One that is not is kept, and read in its turn, unless a newer one takes its place.
    func admits(_ message: OpaquePointer) -> Bool {
        guard let bound = floodGate?.bound else { return true }
        // Only what the bus says is from the sender: a stranger must not push out what that has said.
        guard let owner = currentOwner(of: bound.sender), let sender = dbus_message_get_sender(message),
            owner == String(cString: sender)
        else { return true }
        let now = Instant.now
        let path = dbus_message_get_path(message).map { String(cString: $0) }
        let group = path.flatMap { Self.group($0, bound) }
        if let path, let group, let property = Self.changedProperty(in: message, bound) {
            let item = path == group ? property : "\(path)\(property)"
            let isAdmitted = floodGate?.valve.arrive(KeptMessage(message), item: item, of: group, at: now) ?? true
            if !isAdmitted { scheduleFloodGate() }
            return isAdmitted
        }
        // Anything else keeps its place behind what was said before it.
        guard floodGate?.valve.isEmpty == false else { return true }
        read(floodGate?.valve.takeAll(of: group) ?? [])
        return true
    }

    private func scheduleFloodGate() {
        tellFloods()
        guard let deadline = floodGate?.valve.nextDeadline else { return }
        if let gate = floodGate, gate.timer?.isPending == true {
            guard deadline < gate.due else { return }
            gate.timer?.cancel()
        }
        floodGate?.due = deadline
        floodGate?.timer = loop.schedule(at: deadline) { [weak self] in
            self?.assumeIsolated { connection in
                connection.read(connection.floodGate?.valve.takeDue(at: .now) ?? [])
                connection.scheduleFloodGate()
            }
        }
    }

    private func tellFloods() {
        guard let gate = floodGate else { return }
        for flood in floodGate?.valve.takeReports() ?? [] { gate.report(flood) }
    }

    /// The bus is gone, and what it said with it.
    func resetFloodGate() {
        floodGate?.timer?.cancel()
        floodGate?.timer = nil
        floodGate?.valve.reset()
    }

    private func read(_ kept: [KeptMessage]) {
        let current = generation
        for message in kept where current == generation { takeUp(message) }
    }

    // MARK: What a message is about, without reading it

    /// The beginning of the path that says whose object it is.
    private static func group(_ path: String, _ bound: DBusSignalBound) -> String? {
        guard path.hasPrefix(bound.namespace.rawValue) else { return nil }
        var slashes = 0
        var index = path.utf8.startIndex
        while index < path.utf8.endIndex {
            if path.utf8[index] == UInt8(ascii: "/") {
                slashes += 1
                if slashes > bound.groupElements { return String(path[..<index]) }
            }
            index = path.utf8.index(after: index)
        }
        return slashes == bound.groupElements ? path : nil
    }

    /// The one property whose change the message tells, if it is one of the bound's.
    private static func changedProperty(in message: OpaquePointer, _ bound: DBusSignalBound) -> String? {
        guard dbus_message_is_signal(message, "org.freedesktop.DBus.Properties", "PropertiesChanged") != 0,
            dbus_message_has_signature(message, "sa{sv}as") != 0
        else { return nil }
        var arguments = DBusMessageIter()
        guard dbus_message_iter_init(message, &arguments) != 0, let interface = text(&arguments),
            dbus_message_iter_next(&arguments) != 0
        else { return nil }
        var changed = DBusMessageIter()
        dbus_message_iter_recurse(&arguments, &changed)
        guard dbus_message_iter_get_arg_type(&changed) != 0 else { return nil }
        var entry = DBusMessageIter()
        dbus_message_iter_recurse(&changed, &entry)
        guard let name = text(&entry), dbus_message_iter_next(&changed) == 0,
            dbus_message_iter_next(&arguments) != 0
        else { return nil }
        var invalidated = DBusMessageIter()
        dbus_message_iter_recurse(&arguments, &invalidated)
        guard dbus_message_iter_get_arg_type(&invalidated) == 0,
            bound.properties.contains(.init(String(cString: interface), String(cString: name)))
        else { return nil }
        return String(cString: name)
    }

    private static func text(_ iterator: inout DBusMessageIter) -> UnsafePointer<CChar>? {
        guard dbus_message_iter_get_arg_type(&iterator) == Int32(UInt8(ascii: "s")) else { return nil }
        var pointer: UnsafePointer<CChar>?
        dbus_message_iter_get_basic(&iterator, &pointer)
        return pointer
    }
}
