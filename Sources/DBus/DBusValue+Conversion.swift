// Between D-Bus values and Swift's own types.

/// A Swift type that stands for one D-Bus type.
public protocol DBusConvertible {
    /// The D-Bus type.
    static var dbusType: DBusType { get }
    /// The value on the wire.
    var dbusValue: DBusValue { get }
    /// From a value of exactly `dbusType`; nil for any other.
    init?(dbusValue: DBusValue)
}

extension DBusValue {
    /// What is inside, if this is a variant, however often wrapped; else the value itself.
    public var unwrapped: DBusValue {
        var value = self
        while case .variant(let content) = value { value = content }
        return value
    }

    /// The value as a `T`, seen through variants; nil when it is of another type.
    public func get<T: DBusConvertible>(_ type: T.Type = T.self) -> T? { T(dbusValue: self) ?? T(dbusValue: unwrapped) }

    /// The value as a `T`, seen through variants.
    /// - Throws: `DBusError.unexpectedType`.
    public func require<T: DBusConvertible>(_ type: T.Type = T.self) throws(DBusError) -> T {
        guard let result: T = get() else { throw .unexpectedType(expected: T.dbusType.code, got: self.type.code) }
        return result
    }

    /// The text of a string, object path or signature, seen through variants.
    public var stringValue: String? {
        switch unwrapped {
        case .string(let string): return string
        case .objectPath(let path): return path.rawValue
        case .signature(let signature): return signature.rawValue
        default: return nil
        }
    }

    /// The truth of a boolean, seen through variants.
    public var boolValue: Bool? { self.get() }

    /// The number in any integer type that fits, seen through variants.
    public var integerValue: Int64? {
        switch unwrapped {
        case .byte(let number): return Int64(number)
        case .int16(let number): return Int64(number)
        case .uint16(let number): return Int64(number)
        case .int32(let number): return Int64(number)
        case .uint32(let number): return Int64(number)
        case .int64(let number): return number
        case .uint64(let number): return Int64(exactly: number)
        default: return nil
        }
    }

    /// The bytes of an `ay`, seen through variants.
    public var bytesValue: [UInt8]? { self.get() }

    /// The descriptor of an `h`, seen through variants.
    public var descriptorValue: DBusDescriptor? {
        if case .unixDescriptor(let descriptor) = unwrapped { return descriptor }
        return nil
    }

    /// The path of an `o`, seen through variants.
    public var objectPathValue: DBusObjectPath? { self.get() }

    /// The elements of an array of any type but bytes, seen through variants.
    public var arrayValue: [DBusValue]? {
        if case .array(_, let elements) = unwrapped { return elements }
        return nil
    }

    /// The fields of a structure, seen through variants.
    public var structureValue: [DBusValue]? {
        if case .structure(let fields) = unwrapped { return fields }
        return nil
    }

    /// The entries of a dictionary of any type, seen through variants.
    public var dictionaryValue: [DBusValue: DBusValue]? {
        if case .dictionary(_, _, let entries) = unwrapped { return entries }
        return nil
    }

    /// The entries of an `a{sv}` by name, each without its variant; nil for any other type.
    public var propertiesValue: [String: DBusValue]? {
        guard case .dictionary(.string, .variant, let entries) = unwrapped else { return nil }
        var result: [String: DBusValue] = [:]
        for case (.string(let name), .variant(let value)) in entries { result[name] = value }
        return result
    }
}

extension [DBusValue] {
    /// The argument at `index` as a `T`.
    /// - Throws: `DBusError.unexpectedType`, also when there are too few arguments.
    public func argument<T: DBusConvertible>(_ index: Int, as type: T.Type = T.self) throws(DBusError) -> T {
        guard indices.contains(index) else { throw .unexpectedType(expected: T.dbusType.code, got: "") }
        return try self[index].require()
    }

    /// The signature of all of them in a row.
    public var signature: DBusSignature { DBusSignature(types: map(\.type)) }
}

extension UInt8: DBusConvertible {
    /// `y`.
    public static var dbusType: DBusType { .byte }
    /// As `y`.
    public var dbusValue: DBusValue { .byte(self) }
    /// From `y`.
    public init?(dbusValue: DBusValue) { if case .byte(let value) = dbusValue { self = value } else { return nil } }
}

extension Bool: DBusConvertible {
    /// `b`.
    public static var dbusType: DBusType { .boolean }
    /// As `b`.
    public var dbusValue: DBusValue { .boolean(self) }
    /// From `b`.
    public init?(dbusValue: DBusValue) { if case .boolean(let value) = dbusValue { self = value } else { return nil } }
}

extension Int16: DBusConvertible {
    /// `n`.
    public static var dbusType: DBusType { .int16 }
    /// As `n`.
    public var dbusValue: DBusValue { .int16(self) }
    /// From `n`.
    public init?(dbusValue: DBusValue) { if case .int16(let value) = dbusValue { self = value } else { return nil } }
}

extension UInt16: DBusConvertible {
    /// `q`.
    public static var dbusType: DBusType { .uint16 }
    /// As `q`.
    public var dbusValue: DBusValue { .uint16(self) }
    /// From `q`.
    public init?(dbusValue: DBusValue) { if case .uint16(let value) = dbusValue { self = value } else { return nil } }
}

extension Int32: DBusConvertible {
    /// `i`.
    public static var dbusType: DBusType { .int32 }
    /// As `i`.
    public var dbusValue: DBusValue { .int32(self) }
    /// From `i`.
    public init?(dbusValue: DBusValue) { if case .int32(let value) = dbusValue { self = value } else { return nil } }
}

extension UInt32: DBusConvertible {
    /// `u`.
    public static var dbusType: DBusType { .uint32 }
    /// As `u`.
    public var dbusValue: DBusValue { .uint32(self) }
    /// From `u`.
    public init?(dbusValue: DBusValue) { if case .uint32(let value) = dbusValue { self = value } else { return nil } }
}

extension Int64: DBusConvertible {
    /// `x`.
    public static var dbusType: DBusType { .int64 }
    /// As `x`.
    public var dbusValue: DBusValue { .int64(self) }
    /// From `x`.
    public init?(dbusValue: DBusValue) { if case .int64(let value) = dbusValue { self = value } else { return nil } }
}

extension UInt64: DBusConvertible {
    /// `t`.
    public static var dbusType: DBusType { .uint64 }
    /// As `t`.
    public var dbusValue: DBusValue { .uint64(self) }
    /// From `t`.
    public init?(dbusValue: DBusValue) { if case .uint64(let value) = dbusValue { self = value } else { return nil } }
}

extension Double: DBusConvertible {
    /// `d`.
    public static var dbusType: DBusType { .double }
    /// As `d`.
    public var dbusValue: DBusValue { .double(self) }
    /// From `d`.
    public init?(dbusValue: DBusValue) { if case .double(let value) = dbusValue { self = value } else { return nil } }
}

extension String: DBusConvertible {
    /// `s`.
    public static var dbusType: DBusType { .string }
    /// As `s`.
    public var dbusValue: DBusValue { .string(self) }
    /// From `s`.
    public init?(dbusValue: DBusValue) { if case .string(let value) = dbusValue { self = value } else { return nil } }
}

extension DBusObjectPath: DBusConvertible {
    /// `o`.
    public static var dbusType: DBusType { .objectPath }
    /// As `o`.
    public var dbusValue: DBusValue { .objectPath(self) }
    /// From `o`.
    public init?(dbusValue: DBusValue) {
        if case .objectPath(let value) = dbusValue { self = value } else { return nil }
    }
}

extension DBusSignature: DBusConvertible {
    /// `g`.
    public static var dbusType: DBusType { .signature }
    /// As `g`.
    public var dbusValue: DBusValue { .signature(self) }
    /// From `g`.
    public init?(dbusValue: DBusValue) {
        if case .signature(let value) = dbusValue { self = value } else { return nil }
    }
}

extension Array: DBusConvertible where Element: DBusConvertible {
    /// `a…`.
    public static var dbusType: DBusType { .array(Element.dbusType) }
    /// As `a…`; bytes as `.bytes`.
    public var dbusValue: DBusValue {
        // By type: an empty array casts to any other.
        if Element.self == UInt8.self, let bytes = self as? [UInt8] { return .bytes(bytes) }
        return .array(Element.dbusType, map(\.dbusValue))
    }
    /// From an array of exactly that element type.
    public init?(dbusValue: DBusValue) {
        switch dbusValue {
        case .bytes(let bytes):
            guard Element.self == UInt8.self, let same = bytes as? [Element] else { return nil }
            self = same
        case .array(Element.dbusType, let elements):
            self = []
            reserveCapacity(elements.count)
            for element in elements {
                guard let converted = Element(dbusValue: element) else { return nil }
                append(converted)
            }
        default: return nil
        }
    }
}

extension Dictionary: DBusConvertible where Key: DBusConvertible, Value: DBusConvertible {
    /// `a{…}`.
    public static var dbusType: DBusType { .dictionary(key: Key.dbusType, value: Value.dbusType) }
    /// As `a{…}`.
    public var dbusValue: DBusValue {
        var entries: [DBusValue: DBusValue] = [:]
        for (key, value) in self { entries[key.dbusValue] = value.dbusValue }
        return .dictionary(key: Key.dbusType, value: Value.dbusType, entries)
    }
    /// From a dictionary of exactly those types.
    public init?(dbusValue: DBusValue) {
        guard case .dictionary(Key.dbusType, Value.dbusType, let entries) = dbusValue else { return nil }
        self = [:]
        for (key, value) in entries {
            guard let key = Key(dbusValue: key), let value = Value(dbusValue: value) else { return nil }
            self[key] = value
        }
    }
}

extension DBusValue: DBusConvertible {
    /// `v`: in a typed array or dictionary a `DBusValue` stands for a variant.
    public static var dbusType: DBusType { .variant }
    /// As `v`; a variant stays as it is.
    public var dbusValue: DBusValue {
        if case .variant = self { return self }
        return .variant(self)
    }
    /// The content of a variant; any other value itself.
    public init?(dbusValue: DBusValue) {
        if case .variant(let content) = dbusValue { self = content } else { self = dbusValue }
    }
}
