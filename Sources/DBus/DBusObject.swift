// An exported object: a declared interface, its property values and its handlers.

/// A call of an exported method, or a write of an exported property.
public struct DBusMethodCall: Sendable {
    /// The caller's unique name, as the bus gives it. Watch it to learn when the caller leaves.
    public let sender: String
    /// The object called.
    public let path: DBusObjectPath
    /// The interface called.
    public let interface: String
    /// The method called; for a property write, the property.
    public let member: String
    /// What came in; already of the declared types.
    public let arguments: [DBusValue]
}

/// Answers a call, starting on the loop. What it returns must be of the declared types; what it throws is the answer:
/// a `DBusErrorReply` by its name, anything else as `org.freedesktop.DBus.Error.Failed`.
public typealias DBusMethodHandler = nonisolated(nonsending) @Sendable (DBusMethodCall) async throws -> [DBusValue]

/// Starts to answer a call. It runs on the loop, one call after the other in the order of arrival. Its task behaves and
/// throws like `DBusMethodHandler`, whose calls may start in a different order.
public typealias DBusMethodStarter = @Sendable (DBusMethodCall) -> Task<[DBusValue], any Error>

/// Accepts or refuses a new value (`arguments[0]`, of the declared type) for a property and returns the value it then
/// has; that is stored, and the change signalled.
public typealias DBusPropertySetter = nonisolated(nonsending) @Sendable (DBusMethodCall) async throws -> DBusValue

/// An implementation of an interface at one object.
public struct DBusExport: Sendable {
    /// The interface.
    public let interface: DBusInterface
    /// The properties' values: one for each that is declared.
    public internal(set) var values: [String: DBusValue]
    let methods: [String: DBusMethodHandler]
    let starters: [String: DBusMethodStarter]
    let setters: [String: DBusPropertySetter]

    /// An implementation of `interface`.
    ///
    /// - Parameters:
    ///   - properties: A value for each declared property.
    ///   - setters: A setter for each declared property with write access.
    ///   - methods: A handler for each declared method that has no starter.
    ///   - starters: A starter for each declared method whose calls must not overtake each other.
    /// - Throws: `DBusError.invalid` when something declared is missing, something given is not declared, or a
    ///   value is of another type than declared.
    public init(
        _ interface: DBusInterface, properties: [String: DBusValue] = [:],
        setters: [String: DBusPropertySetter] = [:], methods: [String: DBusMethodHandler] = [:],
        starters: [String: DBusMethodStarter] = [:]
    ) throws(DBusError) {
        try interface.check()
        let name = interface.name
        for declared in interface.methods
        where methods[declared.name] == nil && starters[declared.name] == nil {
            throw .invalid("no handler for method \(name).\(declared.name)")
        }
        for given in Array(methods.keys) + starters.keys where interface.method(given) == nil {
            throw .invalid("a handler for method \(given), which \(name) does not declare")
        }
        for declared in interface.properties {
            guard let value = properties[declared.name] else {
                throw .invalid("no value for property \(name).\(declared.name)")
            }
            try Self.check(value, declared)
            if declared.access == .readwrite, setters[declared.name] == nil {
                throw .invalid("no setter for property \(name).\(declared.name)")
            }
        }
        for given in properties.keys where interface.property(given) == nil {
            throw .invalid("a value for property \(given), which \(name) does not declare")
        }
        for given in setters.keys where interface.property(given)?.access != .readwrite {
            throw .invalid("a setter for property \(given), which \(name) does not declare writable")
        }
        self.interface = interface
        values = properties
        self.setters = setters
        self.methods = methods
        self.starters = starters
    }

    static func check(_ value: DBusValue, _ property: DBusInterface.Property) throws(DBusError) {
        guard value.type == property.type else {
            throw .unexpectedType(expected: property.type.code, got: value.type.code)
        }
        _ = try ValueCheck([value])
    }
}

/// The exported objects and what can be told about them without asking a handler. No I/O.
struct ObjectTree {
    private(set) var objects: [DBusObjectPath: [DBusExport]] = [:]
    private(set) var managers: Set<DBusObjectPath> = []

    var count: Int { objects.count }

    func export(_ path: DBusObjectPath, _ interface: String) -> DBusExport? {
        objects[path]?.first { $0.interface.name == interface }
    }

    mutating func add(_ exports: [DBusExport], at path: DBusObjectPath) throws(DBusError) {
        var present = objects[path] ?? []
        for export in exports {
            guard !present.contains(where: { $0.interface.name == export.interface.name }) else {
                throw .invalid("\(export.interface.name) is exported at \(path) already")
            }
            present.append(export)
        }
        guard objects[path] != nil || objects.count < DBusLimits.exportedObjects else {
            throw .limitReached("\(DBusLimits.exportedObjects) exported objects")
        }
        objects[path] = present
    }

    /// Returns the names of the interfaces that were removed.
    mutating func remove(_ interfaces: Set<String>?, at path: DBusObjectPath) -> [String] {
        guard let present = objects[path] else { return [] }
        let removed = present.filter { interfaces?.contains($0.interface.name) ?? true }.map(\.interface.name)
        let left = present.filter { !removed.contains($0.interface.name) }
        objects[path] = left.isEmpty ? nil : left
        return removed
    }

    mutating func addManager(_ path: DBusObjectPath) { managers.insert(path) }
    mutating func removeManager(_ path: DBusObjectPath) { managers.remove(path) }

    /// Stores values and returns what to signal: the changed ones, and the names of the invalidated ones.
    mutating func set(
        _ values: [String: DBusValue], at path: DBusObjectPath, interface: String
    ) throws(DBusError) -> (changed: [String: DBusValue], invalidated: [String]) {
        guard var exports = objects[path], let index = exports.firstIndex(where: { $0.interface.name == interface })
        else { throw .invalid("\(interface) is not exported at \(path)") }
        var changed: [String: DBusValue] = [:]
        var invalidated: [String] = []
        for (name, value) in values {
            guard let property = exports[index].interface.property(name) else {
                throw .invalid("\(interface) declares no property \(name)")
            }
            try DBusExport.check(value, property)
            guard exports[index].values[name] != value else { continue }
            exports[index].values[name] = value
            switch property.changeSignal {
            case .value: changed[name] = value
            case .invalidates: invalidated.append(name)
            case .constant, .none: break
            }
        }
        objects[path] = exports
        return (changed, invalidated.sorted())
    }

    /// The managers that tell about the object at `path`.
    func managers(of path: DBusObjectPath) -> [DBusObjectPath] {
        managers.filter { path.isDescendant(of: $0) }.sorted()
    }

    func managedObjects(below manager: DBusObjectPath) -> DBusValue {
        var entries: [DBusValue: DBusValue] = [:]
        for (path, exports) in objects where path.isDescendant(of: manager) {
            entries[.objectPath(path)] = Self.describe(exports)
        }
        return .dictionary(key: .objectPath, value: Self.interfacesType, entries)
    }

    static let interfacesType = DBusType.dictionary(key: .string, value: .properties)

    static func describe(_ exports: [DBusExport]) -> DBusValue {
        var entries: [DBusValue: DBusValue] = [:]
        for export in exports { entries[.string(export.interface.name)] = .properties(export.values) }
        return .dictionary(key: .string, value: .properties, entries)
    }

    /// Whether there is an object at `path` or below it.
    func exists(_ path: DBusObjectPath) -> Bool {
        path == "/" || objects[path] != nil || managers.contains(path)
            || objects.keys.contains { $0.isDescendant(of: path) } || managers.contains { $0.isDescendant(of: path) }
    }

    func introspection(of path: DBusObjectPath) -> String {
        let prefix = path == "/" ? "/" : path.rawValue + "/"
        var children: Set<Substring> = []
        for below in Array(objects.keys) + managers where below.isDescendant(of: path) {
            children.insert(below.rawValue.dropFirst(prefix.count).prefix { $0 != "/" })
        }
        var interfaces: [DBusInterface] = [.introspectable, .peer, .properties]
        if managers.contains(path) { interfaces.append(.objectManager) }
        interfaces += objects[path]?.map(\.interface) ?? []
        let header = """
            <!DOCTYPE node PUBLIC "-//freedesktop//DTD D-BUS Object Introspection 1.0//EN"
             "http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd">
            """
        let nodes = children.sorted().map { "  <node name=\"\($0)\"/>" }
        return ([header, "<node>"] + interfaces.map(\.xml) + nodes + ["</node>", ""]).joined(separator: "\n")
    }
}
