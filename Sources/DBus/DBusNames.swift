// Object paths and the other names of D-Bus. libdbus aborts the process on an invalid one, so all are checked here.
import CDBus

/// A valid object path, such as `/org/bluez/hci0`.
public struct DBusObjectPath: Hashable, Sendable, Comparable, CustomStringConvertible, ExpressibleByStringLiteral {
    /// The path as it is on the wire.
    public let rawValue: String

    /// The path `string` spells.
    /// - Throws: `DBusError.invalid` when it is not one (D-Bus specification, "Valid Object Paths").
    public init(_ string: String) throws(DBusError) {
        guard DBusName.isAcceptable(string, maximum: DBusLimits.messageBytes, dbus_validate_path) else {
            throw .invalid("'\(DBusName.shown(string))' is not an object path")
        }
        rawValue = string
    }

    init(unchecked string: String) { rawValue = string }

    /// A path written in the source; traps when it is wrong there.
    public init(stringLiteral value: String) {
        do { try self.init(value) } catch { preconditionFailure("object path literal '\(value)'") }
    }

    /// The path above; nil for `/`.
    public var parent: DBusObjectPath? {
        guard rawValue != "/", let slash = rawValue.lastIndex(of: "/") else { return nil }
        return slash == rawValue.startIndex ? "/" : DBusObjectPath(unchecked: String(rawValue[..<slash]))
    }

    /// The last element; empty for `/`.
    public var lastComponent: Substring {
        guard let slash = rawValue.lastIndex(of: "/") else { return "" }
        return rawValue[rawValue.index(after: slash)...]
    }

    /// Whether this path lies below `other` (and is not `other`).
    public func isDescendant(of other: DBusObjectPath) -> Bool {
        if other.rawValue == "/" { return rawValue != "/" }
        return rawValue.utf8.count > other.rawValue.utf8.count + 1 && rawValue.hasPrefix(other.rawValue + "/")
    }

    /// The path of a child.
    /// - Throws: `DBusError.invalid` when `element` may not be part of a path.
    public func appending(_ element: String) throws(DBusError) -> DBusObjectPath {
        try DBusObjectPath(rawValue == "/" ? "/" + element : rawValue + "/" + element)
    }

    /// The path as it is on the wire.
    public var description: String { rawValue }

    /// Byte order, so that a parent comes before its children.
    public static func < (lhs: Self, rhs: Self) -> Bool { lhs.rawValue < rhs.rawValue }
}

/// Checks of the other names (D-Bus specification, "Valid Names").
public enum DBusName {
    typealias Validator = (UnsafePointer<CChar>?, UnsafeMutablePointer<CDBus.DBusError>?) -> dbus_bool_t

    static func isAcceptable(_ string: String, maximum: Int, _ validate: Validator) -> Bool {
        guard !string.isEmpty, string.utf8.count <= maximum, !string.utf8.contains(0) else { return false }
        return validate(string, nil) != 0
    }

    /// What of a stranger's text may stand in a log line, or in an answer.
    public static func shown(_ string: String) -> String {
        String(string.prefix(80).map { $0.isASCII && !$0.isNewline && $0 != "\0" ? $0 : "?" })
    }

    /// Throws unless `name` is a bus name: unique (`:1.5`) or well-known (`org.bluez`).
    public static func checkBus(_ name: String) throws(DBusError) {
        try check(name, dbus_validate_bus_name, "a bus name")
    }

    /// Throws unless `name` is an interface name, such as `org.bluez.Device1`.
    public static func checkInterface(_ name: String) throws(DBusError) {
        try check(name, dbus_validate_interface, "an interface name")
    }

    /// Throws unless `name` is a method's or signal's name.
    public static func checkMember(_ name: String) throws(DBusError) {
        try check(name, dbus_validate_member, "a member name")
    }

    /// Throws unless `name` is an error name.
    public static func checkError(_ name: String) throws(DBusError) {
        try check(name, dbus_validate_error_name, "an error name")
    }

    private static func check(_ name: String, _ validate: Validator, _ what: String) throws(DBusError) {
        guard isAcceptable(name, maximum: DBusLimits.nameBytes, validate) else {
            throw .invalid("'\(shown(name))' is not \(what)")
        }
    }

    /// Whether `name` is a connection's own name, given by the bus.
    public static func isUnique(_ name: String) -> Bool { name.hasPrefix(":") }
}
