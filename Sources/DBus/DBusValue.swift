// A value of any D-Bus type, and the check that it may go on the wire.

/// A value of any D-Bus type.
public indirect enum DBusValue: Hashable, Sendable {
    /// `y`.
    case byte(UInt8)
    /// `b`.
    case boolean(Bool)
    /// `n`.
    case int16(Int16)
    /// `q`.
    case uint16(UInt16)
    /// `i`.
    case int32(Int32)
    /// `u`.
    case uint32(UInt32)
    /// `x`.
    case int64(Int64)
    /// `t`.
    case uint64(UInt64)
    /// `d`.
    case double(Double)
    /// `s`.
    case string(String)
    /// `o`.
    case objectPath(DBusObjectPath)
    /// `g`.
    case signature(DBusSignature)
    /// `h`. A received descriptor belongs to the value; a sent one is duplicated.
    case unixDescriptor(DBusDescriptor)
    /// `ay`: every array of bytes arrives as this.
    case bytes([UInt8])
    /// `a…`: the elements' type, and the elements.
    case array(DBusType, [DBusValue])
    /// `a{…}`: the types, and the entries. Of equal keys on the wire the last counts.
    case dictionary(key: DBusType, value: DBusType, [DBusValue: DBusValue])
    /// `(…)`.
    case structure([DBusValue])
    /// `v`.
    case variant(DBusValue)

    /// `a{sv}`: names to variants; a value that is not a variant yet becomes one.
    public static func properties(_ properties: [String: DBusValue]) -> DBusValue {
        var entries: [DBusValue: DBusValue] = [:]
        for (name, value) in properties {
            if case .variant = value {
                entries[.string(name)] = value
            } else {
                entries[.string(name)] = .variant(value)
            }
        }
        return .dictionary(key: .string, value: .variant, entries)
    }

    /// `as`.
    public static func strings(_ strings: some Sequence<String>) -> DBusValue {
        .array(.string, strings.map { .string($0) })
    }

    /// The value's type.
    public var type: DBusType {
        switch self {
        case .byte: return .byte
        case .boolean: return .boolean
        case .int16: return .int16
        case .uint16: return .uint16
        case .int32: return .int32
        case .uint32: return .uint32
        case .int64: return .int64
        case .uint64: return .uint64
        case .double: return .double
        case .string: return .string
        case .objectPath: return .objectPath
        case .signature: return .signature
        case .unixDescriptor: return .unixDescriptor
        case .bytes: return .array(.byte)
        case .array(let element, _): return .array(element)
        case .dictionary(let key, let value, _): return .dictionary(key: key, value: value)
        case .structure(let fields): return .structure(fields.map(\.type))
        case .variant: return .variant
        }
    }
}

/// Walks values before libdbus sees them: it aborts the process on what this refuses.
struct ValueCheck {
    /// How long the arguments are at most.
    private(set) var bytes = 0
    private var descriptors = 0

    /// Checks the arguments of one message.
    init(_ arguments: [DBusValue]) throws(DBusError) {
        for argument in arguments { try check(argument, as: nil, depth: 0) }
    }

    private mutating func count(_ size: Int) throws(DBusError) {
        bytes += size
        guard bytes <= DBusLimits.messageBytes else {
            throw .limitReached("a message of more than \(DBusLimits.messageBytes) bytes")
        }
    }

    private mutating func check(_ value: DBusValue, as type: DBusType?, depth: Int) throws(DBusError) {
        if let type, value.type != type {
            throw .unexpectedType(expected: type.code, got: value.type.code)
        }
        guard depth <= DBusLimits.valueDepth else {
            throw .limitReached("a value nested deeper than \(DBusLimits.valueDepth)")
        }
        switch value {
        case .byte: try count(1)
        case .boolean, .int16, .uint16, .int32, .uint32, .int64, .uint64, .double: try count(8)
        case .string(let string):
            guard !string.utf8.contains(0) else { throw .invalid("a string with a NUL byte in it") }
            try count(string.utf8.count + 5)
        case .objectPath(let path): try count(path.rawValue.utf8.count + 5)
        case .signature(let signature):
            _ = try DBusSignature(signature.rawValue)
            try count(signature.rawValue.utf8.count + 2)
        case .unixDescriptor(let descriptor):
            descriptors += 1
            guard descriptors <= DBusLimits.messageDescriptors else {
                throw .limitReached("more than \(DBusLimits.messageDescriptors) descriptors in a message")
            }
            guard descriptor.number >= 0 else { throw .invalid("a closed descriptor") }
            try count(4)
        case .bytes(let content): try count(content.count + 4)
        case .array(let element, let elements):
            _ = try DBusSignature("a" + element.code)
            try count(8)
            for item in elements { try check(item, as: element, depth: depth + 1) }
        case .dictionary(let key, let valueType, let entries):
            _ = try DBusSignature(value.type.code)
            try count(8)
            for (name, item) in entries {
                try count(8)
                try check(name, as: key, depth: depth + 2)
                try check(item, as: valueType, depth: depth + 2)
            }
        case .structure(let fields):
            guard !fields.isEmpty else { throw .invalid("an empty structure") }
            try count(8)
            for field in fields { try check(field, as: nil, depth: depth + 1) }
        case .variant(let content):
            let signature = try DBusSignature(content.type.code)
            try count(signature.rawValue.utf8.count + 2)
            try check(content, as: nil, depth: depth + 1)
        }
    }
}
