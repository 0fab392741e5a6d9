// A declared interface: its methods, signals and properties, and its introspection XML.

/// The declaration of an interface.
public struct DBusInterface: Hashable, Sendable {
    /// An argument of a method or a signal.
    public struct Argument: Hashable, Sendable {
        /// Its name; may be empty.
        public let name: String
        /// Its type.
        public let type: DBusType

        /// An argument.
        public init(_ name: String, _ type: DBusType) {
            self.name = name
            self.type = type
        }
    }

    /// A method.
    public struct Method: Hashable, Sendable {
        /// Its name.
        public let name: String
        /// What goes in.
        public let input: [Argument]
        /// What comes out.
        public let output: [Argument]

        /// A method.
        public init(_ name: String, in input: [Argument] = [], out output: [Argument] = []) {
            self.name = name
            self.input = input
            self.output = output
        }
    }

    /// A signal.
    public struct Signal: Hashable, Sendable {
        /// Its name.
        public let name: String
        /// What it carries.
        public let arguments: [Argument]

        /// A signal.
        public init(_ name: String, _ arguments: [Argument] = []) {
            self.name = name
            self.arguments = arguments
        }
    }

    /// A property.
    public struct Property: Hashable, Sendable {
        /// Who may do what.
        public enum Access: String, Hashable, Sendable {
            /// Readable.
            case read
            /// Readable and writable.
            case readwrite
        }

        /// What a change says (`org.freedesktop.DBus.Property.EmitsChangedSignal`).
        public enum ChangeSignal: String, Hashable, Sendable {
            /// The new value.
            case value = "true"
            /// That it changed.
            case invalidates
            /// It never changes.
            case constant = "const"
            /// Nothing.
            case none = "false"
        }

        /// Its name.
        public let name: String
        /// Its type.
        public let type: DBusType
        /// Who may do what.
        public let access: Access
        /// What a change says.
        public let changeSignal: ChangeSignal

        /// A property.
        public init(_ name: String, _ type: DBusType, _ access: Access = .read, changeSignal: ChangeSignal = .value) {
            self.name = name
            self.type = type
            self.access = access
            self.changeSignal = changeSignal
        }
    }

    /// The interface's name.
    public let name: String
    /// Its methods.
    public let methods: [Method]
    /// Its signals.
    public let signals: [Signal]
    /// Its properties.
    public let properties: [Property]

    /// Declares an interface.
    public init(_ name: String, methods: [Method] = [], signals: [Signal] = [], properties: [Property] = []) {
        self.name = name
        self.methods = methods
        self.signals = signals
        self.properties = properties
    }

    /// The method of that name.
    public func method(_ name: String) -> Method? { methods.first { $0.name == name } }
    /// The signal of that name.
    public func signal(_ name: String) -> Signal? { signals.first { $0.name == name } }
    /// The property of that name.
    public func property(_ name: String) -> Property? { properties.first { $0.name == name } }

    /// Throws `DBusError.invalid` when a name or type in it must not go on the bus.
    public func check() throws(DBusError) {
        try DBusName.checkInterface(name)
        for method in methods {
            try DBusName.checkMember(method.name)
            _ = try DBusSignature((method.input).map(\.type.code).joined())
            _ = try DBusSignature((method.output).map(\.type.code).joined())
        }
        for signal in signals {
            try DBusName.checkMember(signal.name)
            _ = try DBusSignature(signal.arguments.map(\.type.code).joined())
        }
        for property in properties {
            try DBusName.checkMember(property.name)
            _ = try DBusSignature(property.type.code)
        }
    }

    /// The `<interface>` element of introspection XML, indented by two spaces.
    public var xml: String {
        var lines = ["  <interface name=\"\(escapeXML(name))\">"]
        for method in methods {
            let arguments =
                method.input.map { Self.xml($0, direction: "in") }
                + method.output.map { Self.xml($0, direction: "out") }
            lines += Self.element("method", method.name, arguments)
        }
        for signal in signals {
            lines += Self.element("signal", signal.name, signal.arguments.map { Self.xml($0, direction: nil) })
        }
        for property in properties {
            let head =
                "    <property name=\"\(escapeXML(property.name))\" type=\"\(property.type.code)\" access=\"\(property.access.rawValue)\""
            if property.changeSignal == .value {
                lines.append(head + "/>")
            } else {
                lines.append(head + ">")
                lines.append(
                    "      <annotation name=\"\(Self.changeAnnotation)\" value=\"\(property.changeSignal.rawValue)\"/>")
                lines.append("    </property>")
            }
        }
        lines.append("  </interface>")
        return lines.joined(separator: "\n")
    }

    static let changeAnnotation = "org.freedesktop.DBus.Property.EmitsChangedSignal"

    private static func element(_ tag: String, _ name: String, _ content: [String]) -> [String] {
        if content.isEmpty { return ["    <\(tag) name=\"\(escapeXML(name))\"/>"] }
        return ["    <\(tag) name=\"\(escapeXML(name))\">"] + content + ["    </\(tag)>"]
    }

    private static func xml(_ argument: Argument, direction: String?) -> String {
        let name = argument.name.isEmpty ? "" : " name=\"\(escapeXML(argument.name))\""
        let direction = direction.map { " direction=\"\($0)\"" } ?? ""
        return "      <arg\(name) type=\"\(argument.type.code)\"\(direction)/>"
    }
}

func escapeXML(_ text: String) -> String {
    var result = ""
    for character in text {
        switch character {
        case "&": result += "&amp;"
        case "<": result += "&lt;"
        case ">": result += "&gt;"
        case "\"": result += "&quot;"
        default: result.append(character)
        }
    }
    return result
}

extension DBusInterface {
    static let properties = DBusInterface(
        "org.freedesktop.DBus.Properties",
        methods: [
            Method(
                "Get", in: [Argument("interface", .string), Argument("name", .string)],
                out: [Argument("value", .variant)]),
            Method("GetAll", in: [Argument("interface", .string)], out: [Argument("properties", .properties)]),
            Method(
                "Set", in: [Argument("interface", .string), Argument("name", .string), Argument("value", .variant)]),
        ],
        signals: [
            Signal(
                "PropertiesChanged",
                [
                    Argument("interface", .string), Argument("changed", .properties),
                    Argument("invalidated", .array(.string)),
                ])
        ])

    static let introspectable = DBusInterface(
        "org.freedesktop.DBus.Introspectable", methods: [Method("Introspect", out: [Argument("xml", .string)])])

    static let peer = DBusInterface(
        "org.freedesktop.DBus.Peer",
        methods: [Method("Ping"), Method("GetMachineId", out: [Argument("machine_uuid", .string)])])

    static let objectManager = DBusInterface(
        "org.freedesktop.DBus.ObjectManager",
        methods: [
            Method(
                "GetManagedObjects",
                out: [Argument("objects", .dictionary(key: .objectPath, value: ObjectTree.interfacesType))])
        ],
        signals: [
            Signal(
                "InterfacesAdded", [Argument("object", .objectPath), Argument("interfaces", ObjectTree.interfacesType)]),
            Signal("InterfacesRemoved", [Argument("object", .objectPath), Argument("interfaces", .array(.string))]),
        ])
}
