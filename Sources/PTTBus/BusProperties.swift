// The properties of the objects of org.pttd, as Swift types: the daemon writes them, its clients read them.
import DBus

/// A property set that travels as `a{sv}`.
public protocol BusPropertySet: Sendable {
    /// Each of its properties, once.
    static var table: [BusProperty<Self>] { get }
    /// The defaults.
    init()
}

/// The properties of an interface.
public protocol BusProperties: BusPropertySet {
    /// The interface whose properties these are.
    static var interface: String { get }
}

extension BusPropertySet {
    /// From what a daemon sent; a property that is missing, or of another type, keeps its default, so clients outlive
    /// additions.
    public init(properties: [String: DBusValue]) {
        self.init()
        update(properties)
    }

    /// Takes what a daemon sent; a property that is missing, or of another type, stays as it is.
    mutating func update(_ properties: [String: DBusValue]) {
        for property in Self.table {
            if let value = properties[property.name] { property.read(&self, value) }
        }
    }

    /// The values by property name; what is unknown is absent.
    public var properties: [String: DBusValue] {
        var result: [String: DBusValue] = [:]
        for property in Self.table { result[property.name] = property.write(self) }
        return result
    }
}

/// A property on the bus, and where its value is in a property set.
public struct BusProperty<Owner: Sendable>: Sendable {
    let name: String
    let write: @Sendable (Owner) -> DBusValue?
    let read: @Sendable (inout Owner, DBusValue) -> Void

    /// A property of a type of the bus.
    init<Value: DBusConvertible & SendableMetatype>(
        _ name: String, _ path: any WritableKeyPath<Owner, Value> & Sendable
    ) {
        self.init(name, path, { $0.dbusValue }, { $0.get() })
    }

    /// A word that stands for one of several cases.
    init<Value: RawRepresentable<String> & SendableMetatype>(
        _ name: String, word path: any WritableKeyPath<Owner, Value> & Sendable
    ) {
        self.init(name, path, { .string($0.rawValue) }, { $0.stringValue.flatMap { Value(rawValue: $0) } })
    }

    /// A property that is absent when it is nil.
    init<Value: DBusConvertible & SendableMetatype>(
        _ name: String, optional path: any WritableKeyPath<Owner, Value?> & Sendable
    ) {
        self.init(name, path, { $0?.dbusValue }, { .some($0.get()) })
    }

    /// A list of property sets.
    init<Value: BusPropertySet>(_ name: String, list path: any WritableKeyPath<Owner, [Value]> & Sendable) {
        self.init(
            name, path, { .array(.properties, $0.map { .properties($0.properties) }) },
            { $0.arrayValue?.compactMap(\.propertiesValue).map { Value(properties: $0) } })
    }

    /// A property with its own way to the bus and back. Nil: it is absent, or keeps its default.
    init<Value>(
        _ name: String, _ path: any WritableKeyPath<Owner, Value> & Sendable,
        _ write: @escaping @Sendable (Value) -> DBusValue?, _ read: @escaping @Sendable (DBusValue) -> Value?
    ) {
        self.name = name
        self.write = { write($0[keyPath: path]) }
        self.read = { owner, value in
            if let value = read(value) { owner[keyPath: path] = value }
        }
    }
}

/// The properties of `org.pttd.Manager1`.
public struct ManagerProperties: BusProperties, Hashable {
    /// The version of pttd.
    public var version = ""
    /// The object path of the joined channel; "/" while there is none.
    public var activeChannel: DBusObjectPath = "/"
    /// The names of the configured channels, in their order.
    public var channels: [String] = []
    /// What uses the audio instead of push-to-talk; empty if nothing does.
    public var call = ""
    /// Why the microphone cannot be used; empty while it can, as far as is known.
    public var microphoneProblem = ""
    /// Why nothing can be heard; empty while it can, as far as is known.
    public var speakerProblem = ""
    /// Why a restart would join another channel than the active one; empty while it would not, as far as is known.
    public var restorationProblem = ""

    /// The interface whose properties these are.
    public static let interface = PTTBus.managerInterface

    /// The defaults: no version, no channel.
    public init() {}

    /// Each property, once.
    public static let table: [BusProperty<Self>] = [
        .init("Version", \.version), .init("ActiveChannel", \.activeChannel), .init("Channels", \.channels),
        .init("Call", \.call), .init("MicrophoneProblem", \.microphoneProblem),
        .init("SpeakerProblem", \.speakerProblem), .init("RestorationProblem", \.restorationProblem),
    ]
}
