// The types of D-Bus and the signatures that spell them (D-Bus specification, "Type System").

/// One complete D-Bus type.
public indirect enum DBusType: Hashable, Sendable, CustomStringConvertible {
    /// `y`, an unsigned byte.
    case byte
    /// `b`.
    case boolean
    /// `n`.
    case int16
    /// `q`.
    case uint16
    /// `i`.
    case int32
    /// `u`.
    case uint32
    /// `x`.
    case int64
    /// `t`.
    case uint64
    /// `d`.
    case double
    /// `s`, UTF-8 without NUL.
    case string
    /// `o`.
    case objectPath
    /// `g`.
    case signature
    /// `h`, a file descriptor.
    case unixDescriptor
    /// `v`, a value that brings its own type.
    case variant
    /// `a` and the type of the elements.
    case array(DBusType)
    /// `a{…}`: an array of entries of a basic key and any value.
    case dictionary(key: DBusType, value: DBusType)
    /// `(…)`, at least one field.
    case structure([DBusType])

    /// The type code(s), such as `a{sv}`.
    public var code: String {
        switch self {
        case .byte: return "y"
        case .boolean: return "b"
        case .int16: return "n"
        case .uint16: return "q"
        case .int32: return "i"
        case .uint32: return "u"
        case .int64: return "x"
        case .uint64: return "t"
        case .double: return "d"
        case .string: return "s"
        case .objectPath: return "o"
        case .signature: return "g"
        case .unixDescriptor: return "h"
        case .variant: return "v"
        case .array(let element): return "a" + element.code
        case .dictionary(let key, let value): return "a{" + key.code + value.code + "}"
        case .structure(let fields): return "(" + fields.map(\.code).joined() + ")"
        }
    }

    /// The type code(s).
    public var description: String { code }

    /// `a{sv}`, names and variants.
    public static let properties = DBusType.dictionary(key: .string, value: .variant)

    /// The types that may be the key of a dictionary, by their codes.
    static let basics: [UInt8: DBusType] = {
        let types: [DBusType] = [
            .byte, .boolean, .int16, .uint16, .int32, .uint32, .int64, .uint64, .double, .string, .objectPath,
            .signature, .unixDescriptor,
        ]
        return types.reduce(into: [:]) { basics, type in for code in type.code.utf8 { basics[code] = type } }
    }()
}

/// A valid signature: zero or more complete types in a row.
public struct DBusSignature: Hashable, Sendable, CustomStringConvertible, ExpressibleByStringLiteral {
    /// The type codes, at most 255 bytes.
    public let rawValue: String
    /// The complete types, in order.
    public let types: [DBusType]

    /// Parses a signature.
    /// - Throws: `DBusError.invalid` with what is wrong and where.
    public init(_ string: String) throws(DBusError) {
        var parser = SignatureParser(bytes: Array(string.utf8))
        types = try parser.parse()
        rawValue = string
    }

    /// The signature of the given types. For types made by hand: those longer than the specification allows are
    /// refused when the value is sent.
    public init(types: [DBusType]) {
        self.types = types
        rawValue = types.map(\.code).joined()
    }

    /// A signature written in the source; traps when it is wrong there.
    public init(stringLiteral value: String) {
        do { try self.init(value) } catch { preconditionFailure("signature literal '\(value)': \(error)") }
    }

    /// The type codes.
    public var description: String { rawValue }
}

private struct SignatureParser {
    let bytes: [UInt8]
    var position = 0

    init(bytes: [UInt8]) { self.bytes = bytes }

    private func failure(_ what: String) -> DBusError {
        let shown = String(decoding: bytes.prefix(DBusLimits.signatureBytes), as: UTF8.self)
        return .invalid("signature '\(shown)': \(what) at byte \(position)")
    }

    mutating func parse() throws(DBusError) -> [DBusType] {
        guard bytes.count <= DBusLimits.signatureBytes else {
            throw .invalid("signature of \(bytes.count) bytes; at most \(DBusLimits.signatureBytes) are allowed")
        }
        var types: [DBusType] = []
        while position < bytes.count { types.append(try parseType(arrays: 0, structures: 0)) }
        return types
    }

    private mutating func parseType(arrays: Int, structures: Int) throws(DBusError) -> DBusType {
        guard position < bytes.count else { throw failure("a type is missing") }
        let code = bytes[position]
        if let basic = DBusType.basics[code] {
            position += 1
            return basic
        }
        switch code {
        case UInt8(ascii: "v"):
            position += 1
            return .variant
        case UInt8(ascii: "a"):
            guard arrays < DBusLimits.containerDepth else { throw failure("arrays nested too deep") }
            position += 1
            guard position < bytes.count, bytes[position] == UInt8(ascii: "{") else {
                return .array(try parseType(arrays: arrays + 1, structures: structures))
            }
            return try parseEntry(arrays: arrays + 1, structures: structures)
        case UInt8(ascii: "("):
            guard structures < DBusLimits.containerDepth else { throw failure("structures nested too deep") }
            position += 1
            var fields: [DBusType] = []
            while position < bytes.count, bytes[position] != UInt8(ascii: ")") {
                fields.append(try parseType(arrays: arrays, structures: structures + 1))
            }
            guard position < bytes.count else { throw failure("')' is missing") }
            guard !fields.isEmpty else { throw failure("empty structure") }
            position += 1
            return .structure(fields)
        default: throw failure("unknown type code")
        }
    }

    /// A dictionary entry counts as a structure for the nesting limit, as libdbus does.
    private mutating func parseEntry(arrays: Int, structures: Int) throws(DBusError) -> DBusType {
        guard structures < DBusLimits.containerDepth else { throw failure("structures nested too deep") }
        position += 1
        guard position < bytes.count, let key = DBusType.basics[bytes[position]] else {
            throw failure("a dictionary's key must be a basic type")
        }
        position += 1
        let value = try parseType(arrays: arrays, structures: structures + 1)
        guard position < bytes.count, bytes[position] == UInt8(ascii: "}") else { throw failure("'}' is missing") }
        position += 1
        return .dictionary(key: key, value: value)
    }
}
