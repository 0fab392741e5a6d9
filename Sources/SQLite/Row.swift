// Values as SQLite keeps them.
import CSQLite

/// A value of a column.
public enum Value: Hashable, Sendable {
    /// None.
    case null
    /// A whole number.
    case integer(Int64)
    /// Another number.
    case real(Double)
    /// Text that is UTF-8.
    case text(String)
    /// Bytes, or text that is not UTF-8.
    case bytes([UInt8])
}

extension Value {
    /// A copy of SQLite's value.
    init(of handle: OpaquePointer) {
        switch sqlite3_value_type(handle) {
        case SQLITE_INTEGER: self = .integer(sqlite3_value_int64(handle))
        case SQLITE_FLOAT: self = .real(sqlite3_value_double(handle))
        case SQLITE_TEXT:
            // The text first: it makes the count that of UTF-8.
            let start = sqlite3_value_text(handle)
            let bytes = UnsafeBufferPointer(start: start, count: Int(sqlite3_value_bytes(handle)))
            self = String(validating: bytes, as: UTF8.self).map { .text($0) } ?? .bytes(Array(bytes))
        case SQLITE_BLOB:
            let start = sqlite3_value_blob(handle)
            self = .bytes(Array(UnsafeRawBufferPointer(start: start, count: Int(sqlite3_value_bytes(handle)))))
        default: self = .null
        }
    }
}

/// What can be given to a statement and read from a row.
public protocol DatabaseValue {
    /// How it is kept.
    var value: Value { get }
    /// Made of what is kept; nil: that is something else. Nothing is converted.
    init?(_ value: Value)
}

extension Value: DatabaseValue {
    /// See `DatabaseValue`.
    public var value: Value { self }
    /// See `DatabaseValue`.
    public init?(_ value: Value) { self = value }
}

extension DatabaseValue where Self: FixedWidthInteger {
    /// See `DatabaseValue`. What is larger than SQLite's numbers is the largest of them.
    public var value: Value { .integer(Int64(clamping: self)) }
    /// See `DatabaseValue`.
    public init?(_ value: Value) {
        guard case .integer(let number) = value else { return nil }
        self.init(exactly: number)
    }
}

extension Int64: DatabaseValue {}
extension Int: DatabaseValue {}
extension UInt8: DatabaseValue {}
extension UInt16: DatabaseValue {}
extension UInt64: DatabaseValue {}

extension Bool: DatabaseValue {
    /// See `DatabaseValue`.
    public var value: Value { .integer(self ? 1 : 0) }
    /// See `DatabaseValue`.
    public init?(_ value: Value) {
        switch value {
        case .integer(0): self = false
        case .integer(1): self = true
        default: return nil
        }
    }
}

extension String: DatabaseValue {
    /// See `DatabaseValue`.
    public var value: Value { .text(self) }
    /// See `DatabaseValue`.
    public init?(_ value: Value) {
        guard case .text(let text) = value else { return nil }
        self = text
    }
}

/// A row that a statement has found. It is whole: it may be kept after the next one is read.
public struct Row: Sendable {
    let columns: [String]
    /// The values of all columns, in their order.
    public let values: [Value]

    /// The value of the column; nil: there is no such column.
    public subscript(column: String) -> Value? {
        columns.firstIndex(of: column).map { values[$0] }
    }
}
