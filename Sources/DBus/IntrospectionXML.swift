// Reading interfaces from introspection XML: the subset of XML that such files use.

/// Interfaces and child objects, as introspection XML tells them.
public struct DBusIntrospection: Hashable, Sendable {
    /// The interfaces of the node.
    public let interfaces: [DBusInterface]
    /// The names of the nodes right below it.
    public let children: [String]

    /// Reads introspection XML.
    /// - Throws: `DBusError.invalid` with the line and what is wrong there.
    public init(xml: String) throws(DBusError) {
        var reader = XMLReader(text: xml)
        guard let root = try reader.readDocument(), root.name == "node" else {
            throw .invalid("introspection XML without a <node>")
        }
        interfaces = try root.children.filter { $0.name == "interface" }.map(Self.interface)
        children = root.children.filter { $0.name == "node" }.compactMap { $0.attributes["name"] }
    }

    /// The interface of that name.
    public func interface(_ name: String) -> DBusInterface? { interfaces.first { $0.name == name } }

    private static func interface(_ element: XMLReader.Element) throws(DBusError) -> DBusInterface {
        var methods: [DBusInterface.Method] = []
        var signals: [DBusInterface.Signal] = []
        var properties: [DBusInterface.Property] = []
        for child in element.children {
            switch child.name {
            case "method":
                let arguments = child.children.filter { $0.name == "arg" }
                methods.append(
                    .init(
                        try child.required("name"),
                        in: try arguments.filter { $0.attributes["direction"] != "out" }.map(argument),
                        out: try arguments.filter { $0.attributes["direction"] == "out" }.map(argument)))
            case "signal":
                signals.append(
                    .init(
                        try child.required("name"),
                        try child.children.filter { $0.name == "arg" }.map(argument)))
            case "property": properties.append(try property(child))
            case "annotation": continue
            default: throw .invalid("introspection XML, line \(child.line): <\(child.name)> in an interface")
            }
        }
        let interface = DBusInterface(
            try element.required("name"), methods: methods, signals: signals, properties: properties)
        try interface.check()
        return interface
    }

    private static func property(_ element: XMLReader.Element) throws(DBusError) -> DBusInterface.Property {
        let access: DBusInterface.Property.Access
        switch try element.required("access") {
        case "read": access = .read
        case "readwrite": access = .readwrite
        case let other: throw .invalid("introspection XML, line \(element.line): access '\(other)' is not supported")
        }
        let annotation = element.children.first {
            $0.name == "annotation" && $0.attributes["name"] == DBusInterface.changeAnnotation
        }
        let change = DBusInterface.Property.ChangeSignal(rawValue: annotation?.attributes["value"] ?? "true")
        guard let change else { throw .invalid("introspection XML, line \(element.line): unknown change signal") }
        return .init(try element.required("name"), try type(element), access, changeSignal: change)
    }

    private static func argument(_ element: XMLReader.Element) throws(DBusError) -> DBusInterface.Argument {
        .init(element.attributes["name"] ?? "", try type(element))
    }

    private static func type(_ element: XMLReader.Element) throws(DBusError) -> DBusType {
        let types = try DBusSignature(try element.required("type")).types
        guard types.count == 1, let type = types.first else {
            throw .invalid("introspection XML, line \(element.line): a type must be one complete type")
        }
        return type
    }
}

/// Elements and attributes; text, comments, declarations and the document type are passed over.
struct XMLReader {
    struct Element: Hashable {
        let name: String
        let line: Int
        var attributes: [String: String] = [:]
        var children: [Element] = []

        func required(_ attribute: String) throws(DBusError) -> String {
            guard let value = attributes[attribute] else {
                throw .invalid("introspection XML, line \(line): <\(name)> without '\(attribute)'")
            }
            return value
        }
    }

    static let deepest = 32
    static let largest = 1024 * 1024

    private let bytes: [UInt8]
    private var position = 0
    private var line = 1

    init(text: String) { bytes = Array(text.utf8.prefix(Self.largest + 1)) }

    private func failure(_ what: String) -> DBusError { .invalid("introspection XML, line \(line): \(what)") }

    mutating func readDocument() throws(DBusError) -> Element? {
        guard bytes.count <= Self.largest else { throw failure("longer than \(Self.largest) bytes") }
        try skipToElement()
        guard position < bytes.count else { return nil }
        let root = try readElement(depth: 0)
        try skipToElement()
        guard position >= bytes.count else { throw failure("something follows the end") }
        return root
    }

    private mutating func skipToElement() throws(DBusError) {
        while position < bytes.count {
            if starts(with: "<!--") {
                try skip(past: "-->")
            } else if starts(with: "<?") {
                try skip(past: "?>")
            } else if starts(with: "<!") {
                try skip(past: ">")
            } else if bytes[position] == UInt8(ascii: "<") {
                return
            } else {
                advance()
            }
        }
    }

    private mutating func readElement(depth: Int) throws(DBusError) -> Element {
        guard depth < Self.deepest else { throw failure("elements nested too deep") }
        advance()
        var element = Element(name: try readName(), line: line)
        while true {
            skipSpace()
            if starts(with: "/>") {
                advance(2)
                return element
            }
            if starts(with: ">") {
                advance()
                break
            }
            let name = try readName()
            skipSpace()
            guard starts(with: "=") else { throw failure("'=' expected after '\(name)'") }
            advance()
            skipSpace()
            guard element.attributes.updateValue(try readValue(), forKey: name) == nil else {
                throw failure("'\(name)' given twice")
            }
        }
        while true {
            try skipToElement()
            guard position < bytes.count else { throw failure("</\(element.name)> is missing") }
            if starts(with: "</") {
                advance(2)
                let name = try readName()
                skipSpace()
                guard name == element.name, starts(with: ">") else {
                    throw failure("</\(element.name)> expected, not </\(name)")
                }
                advance()
                return element
            }
            element.children.append(try readElement(depth: depth + 1))
        }
    }

    private mutating func readName() throws(DBusError) -> String {
        let start = position
        while position < bytes.count, isNameByte(bytes[position]) { advance() }
        guard position > start else { throw failure("a name is missing") }
        return String(decoding: bytes[start..<position], as: UTF8.self)
    }

    private mutating func readValue() throws(DBusError) -> String {
        guard position < bytes.count, bytes[position] == UInt8(ascii: "\"") || bytes[position] == UInt8(ascii: "'")
        else {
            throw failure("a quoted value is missing")
        }
        let quote = bytes[position]
        advance()
        let start = position
        while position < bytes.count, bytes[position] != quote { advance() }
        guard position < bytes.count else { throw failure("a quote is missing") }
        defer { advance() }
        return try unescape(String(decoding: bytes[start..<position], as: UTF8.self))
    }

    private func unescape(_ text: String) throws(DBusError) -> String {
        guard text.contains("&") else { return text }
        let entities = ["amp": "&", "lt": "<", "gt": ">", "quot": "\"", "apos": "'"]
        var result = ""
        var rest = text[...]
        while let start = rest.firstIndex(of: "&") {
            result += rest[..<start]
            guard let end = rest[start...].firstIndex(of: ";"),
                let character = entities[String(rest[rest.index(after: start)..<end])]
            else { throw failure("an unknown entity") }
            result += character
            rest = rest[rest.index(after: end)...]
        }
        return result + rest
    }

    private func isNameByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "-"), UInt8(ascii: "."),
            UInt8(ascii: ":"):
            return true
        default: return false
        }
    }

    private func starts(with text: StaticString) -> Bool {
        let count = text.utf8CodeUnitCount
        guard position + count <= bytes.count else { return false }
        return text.withUTF8Buffer { $0.elementsEqual(bytes[position..<position + count]) }
    }

    private mutating func skip(past text: StaticString) throws(DBusError) {
        while position < bytes.count {
            if starts(with: text) { return advance(text.utf8CodeUnitCount) }
            advance()
        }
        throw failure("an unfinished comment or declaration")
    }

    private mutating func skipSpace() {
        while position < bytes.count, [0x20, 0x09, 0x0a, 0x0d].contains(bytes[position]) { advance() }
    }

    private mutating func advance(_ count: Int = 1) {
        for _ in 0..<count where position < bytes.count {
            if bytes[position] == 0x0a { line += 1 }
            position += 1
        }
    }
}
