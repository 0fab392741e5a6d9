// A parsed TOML document: values that remember where they stand in the text.

/// A value and the byte offset at which it begins.
struct TOMLNode {
    var value: TOMLValue
    var offset: Int
}

/// A value of TOML 1.0. Dates and times are refused by the parser: no setting is one.
enum TOMLValue {
    case string(String)
    case integer(Int64)
    case float(Double)
    case boolean(Bool)
    case array([TOMLNode])
    case table(TOMLTable)

    /// What it is, in words for a message.
    var kind: String {
        switch self {
        case .string: "a string"
        case .integer: "an integer"
        case .float: "a number with a fraction"
        case .boolean: "a boolean"
        case .array: "an array"
        case .table: "a table"
        }
    }
}

/// A table under construction and afterwards; a reference, because headers and dotted keys come back to it.
final class TOMLTable {
    /// How it came to be, which decides who may still add to it.
    enum Origin {
        /// Named on the way to a deeper header, `[a.b]` makes `a`; a header may still define it.
        case implied
        /// Defined by `[a]` or `[[a]]`, or the root.
        case header
        /// Made by a dotted key `a.b = 1`; only dotted keys of the same section add to it.
        case dotted
        /// `{ … }`: complete as written.
        case inline
    }

    struct Entry {
        var key: String
        var keyOffset: Int
        var node: TOMLNode
        /// The entry is an array made by `[[…]]` headers, to which more may be added.
        var isArrayOfTables = false
    }

    var origin: Origin
    /// Where the header or the brace stands.
    var offset: Int
    private(set) var entries: [Entry] = []
    private var indexes: [String: Int] = [:]

    init(_ origin: Origin, offset: Int) {
        self.origin = origin
        self.offset = offset
    }

    subscript(key: String) -> Entry? {
        get { indexes[key].map { entries[$0] } }
        set {
            guard let newValue else { return }
            if let index = indexes[key] {
                entries[index] = newValue
            } else {
                indexes[key] = entries.count
                entries.append(newValue)
            }
        }
    }
}

/// The text, for turning byte offsets into lines and columns.
struct SourceText {
    let bytes: [UInt8]
    private let lineStarts: [Int]

    init(_ bytes: [UInt8]) {
        self.bytes = bytes
        lineStarts = [0] + bytes.indices.filter { bytes[$0] == UInt8(ascii: "\n") }.map { $0 + 1 }
    }

    func position(of offset: Int) -> SourcePosition {
        let offset = min(max(0, offset), bytes.count)
        var low = 0
        var high = lineStarts.count
        while high - low > 1 {
            let middle = (low + high) / 2
            if lineStarts[middle] <= offset { low = middle } else { high = middle }
        }
        // UTF-8 continuation bytes are not columns.
        let column = bytes[lineStarts[low]..<offset].count { $0 & 0xC0 != 0x80 }
        return SourcePosition(line: low + 1, column: column + 1)
    }
}
