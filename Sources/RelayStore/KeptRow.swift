// Rows of the tables. They are validated, because they may be damaged or written by another program.
import SQLite

/// A row has a value that this program does not write.
struct DamagedRow: Error, CustomStringConvertible {
    let table: String
    let column: String

    var description: String { "its table '\(table)' has a row with an invalid '\(column)'" }
}

/// One row of a table. An invalid value is an error; it is neither guessed nor skipped.
struct KeptRow {
    private let table: String
    private let row: Row

    init(_ row: Row, of table: String) {
        self.row = row
        self.table = table
    }

    /// The value of a column.
    func value<T: DatabaseValue>(_ column: String) throws(DamagedRow) -> T {
        guard let value = row[column].flatMap({ T($0) }) else {
            throw DamagedRow(table: table, column: column)
        }
        return value
    }

    /// The same for a column that may be empty.
    func value<T: DatabaseValue>(_ column: String) throws(DamagedRow) -> T? {
        if row[column] == .null { return nil }
        return try value(column) as T
    }

    /// What `read` makes of the text in a column; nil: it is damaged.
    func value<T>(_ column: String, _ read: (String) -> T?) throws(DamagedRow) -> T {
        guard let value = read(try value(column)) else { throw DamagedRow(table: table, column: column) }
        return value
    }
}
