// TOML 1.0 (toml.io/en/v1.0.0): lines, headers and keys. Values are in TOMLParser+Values.swift.
//
// Own code rather than a library, because settings need the place of every value for their messages, and because the
// one available library brings all of Foundation and a C++ runtime into a daemon that has to fit small boards.

/// Why a text is not TOML.
struct TOMLSyntaxError: Error {
    var offset: Int
    var message: String
    var advice: String
}

/// A parser over bytes that are known to be UTF-8. It ends at the first error.
struct TOMLParser {
    /// Arrays and inline tables within each other.
    static let nestingMax = 32
    /// Parts of a dotted key.
    static let keyPartsMax = 32

    let bytes: [UInt8]
    var index = 0
    var nesting = 0

    init(_ bytes: [UInt8]) {
        self.bytes = bytes
        // A byte-order mark is allowed at the very start.
        if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { index = 3 }
    }

    struct KeyPart {
        var name: String
        var offset: Int
    }

    mutating func parse() throws(TOMLSyntaxError) -> TOMLTable {
        let root = TOMLTable(.header, offset: 0)
        var section = root
        while true {
            skipBlanks()
            guard let byte = peek else { return root }
            switch byte {
            case UInt8(ascii: "#"), UInt8(ascii: "\n"), UInt8(ascii: "\r"):
                break
            case UInt8(ascii: "["):
                section = try header(in: root)
            default:
                try assignment(in: section)
            }
            try endOfLine()
        }
    }

    // MARK: Headers

    private mutating func header(in root: TOMLTable) throws(TOMLSyntaxError) -> TOMLTable {
        let start = index
        index += 1
        let isArray = peek == UInt8(ascii: "[")
        if isArray { index += 1 }
        let path = try key()
        for _ in 0..<(isArray ? 2 : 1) {
            guard peek == UInt8(ascii: "]") else {
                throw error(
                    "the table header is not closed", isArray ? "write [[name]]" : "write [name], alone on its line")
            }
            index += 1
        }
        return try isArray ? element(of: path, in: root, at: start) : table(path, in: root, at: start)
    }

    private func table(_ path: [KeyPart], in root: TOMLTable, at offset: Int) throws(TOMLSyntaxError) -> TOMLTable {
        let (parent, last) = try parent(of: path, in: root)
        guard let entry = parent[last.name] else {
            let table = TOMLTable(.header, offset: offset)
            parent[last.name] = .init(
                key: last.name, keyOffset: last.offset, node: TOMLNode(value: .table(table), offset: offset))
            return table
        }
        guard case .table(let table) = entry.node.value, table.origin == .implied else {
            throw twice(last)
        }
        table.origin = .header
        table.offset = offset
        return table
    }

    private func element(of path: [KeyPart], in root: TOMLTable, at offset: Int) throws(TOMLSyntaxError) -> TOMLTable {
        let (parent, last) = try parent(of: path, in: root)
        let table = TOMLTable(.header, offset: offset)
        let node = TOMLNode(value: .table(table), offset: offset)
        if var entry = parent[last.name] {
            guard entry.isArrayOfTables, case .array(var elements) = entry.node.value else { throw twice(last) }
            elements.append(node)
            entry.node.value = .array(elements)
            parent[last.name] = entry
        } else {
            parent[last.name] = .init(
                key: last.name, keyOffset: last.offset, node: TOMLNode(value: .array([node]), offset: offset),
                isArrayOfTables: true)
        }
        return table
    }

    /// The table that holds the last part of a header's path; missing ones on the way are made.
    private func parent(
        of path: [KeyPart], in root: TOMLTable
    ) throws(TOMLSyntaxError) -> (TOMLTable, KeyPart) {
        var table = root
        for part in path.dropLast() {
            guard let entry = table[part.name] else {
                let next = TOMLTable(.implied, offset: part.offset)
                table[part.name] = .init(
                    key: part.name, keyOffset: part.offset, node: TOMLNode(value: .table(next), offset: part.offset))
                table = next
                continue
            }
            switch entry.node.value {
            case .table(let next) where next.origin != .inline:
                table = next
            case .array(let elements) where entry.isArrayOfTables:
                guard case .table(let next)? = elements.last?.value else { throw twice(part) }
                table = next
            default:
                throw twice(part)
            }
        }
        guard let last = path.last else { throw error("a name is missing", "write [name]") }
        return (table, last)
    }

    private func twice(_ part: KeyPart) -> TOMLSyntaxError {
        TOMLSyntaxError(
            offset: part.offset, message: "'\(part.name)' is already defined",
            advice: "keep one definition, or write [[\(part.name)]] everywhere for a list of tables")
    }

    // MARK: Assignments

    mutating func assignment(in section: TOMLTable) throws(TOMLSyntaxError) {
        let path = try key()
        guard peek == UInt8(ascii: "=") else {
            throw error("'=' is missing after the key", "write key = value")
        }
        index += 1
        skipBlanks()
        var table = section
        for part in path.dropLast() {
            if let entry = table[part.name] {
                guard case .table(let next) = entry.node.value, next.origin == .dotted else { throw twice(part) }
                table = next
            } else {
                let next = TOMLTable(.dotted, offset: part.offset)
                table[part.name] = .init(
                    key: part.name, keyOffset: part.offset, node: TOMLNode(value: .table(next), offset: part.offset))
                table = next
            }
        }
        guard let last = path.last else { throw error("a name is missing", "write key = value") }
        guard table[last.name] == nil else { throw twice(last) }
        let node = try value()
        table[last.name] = .init(key: last.name, keyOffset: last.offset, node: node)
    }

    /// A key with its dots, and the blanks behind it.
    private mutating func key() throws(TOMLSyntaxError) -> [KeyPart] {
        var parts: [KeyPart] = []
        while true {
            skipBlanks()
            let start = index
            let name: String
            switch peek {
            case UInt8(ascii: "\""): name = try basicString()
            case UInt8(ascii: "'"): name = try literalString()
            default:
                while let byte = peek, Self.isBareKey(byte) { index += 1 }
                guard index > start else {
                    throw error(
                        "a key is expected here", "keys are letters, digits, '-' and '_', or text in quotes")
                }
                name = String(decoding: bytes[start..<index], as: UTF8.self)
            }
            parts.append(KeyPart(name: name, offset: start))
            guard parts.count <= Self.keyPartsMax else {
                throw error("the key has more than \(Self.keyPartsMax) parts", "use fewer dots")
            }
            skipBlanks()
            guard peek == UInt8(ascii: ".") else { return parts }
            index += 1
        }
    }

    // MARK: Characters

    var peek: UInt8? { index < bytes.count ? bytes[index] : nil }

    func peek(at distance: Int) -> UInt8? {
        index + distance < bytes.count ? bytes[index + distance] : nil
    }

    func follows(_ text: StaticString) -> Bool {
        text.withUTF8Buffer { wanted in
            index + wanted.count <= bytes.count && bytes[index..<index + wanted.count].elementsEqual(wanted)
        }
    }

    mutating func skipBlanks() {
        while peek == UInt8(ascii: " ") || peek == UInt8(ascii: "\t") { index += 1 }
    }

    /// A comment, if there is one, and the end of the line or file.
    mutating func endOfLine() throws(TOMLSyntaxError) {
        skipBlanks()
        try comment()
        if peek == nil { return }
        guard try newline() else {
            throw error(
                "there is more on the line than one setting", "put each setting on a line of its own, text in quotes")
        }
    }

    mutating func comment() throws(TOMLSyntaxError) {
        guard peek == UInt8(ascii: "#") else { return }
        while let byte = peek, byte != UInt8(ascii: "\n") {
            if byte == UInt8(ascii: "\r"), peek(at: 1) == UInt8(ascii: "\n") { return }
            guard !Self.isControl(byte) else { throw error("a control character in a comment", "remove it") }
            index += 1
        }
    }

    /// Consumes a line end if there is one.
    mutating func newline() throws(TOMLSyntaxError) -> Bool {
        switch peek {
        case UInt8(ascii: "\n"):
            index += 1
            return true
        case UInt8(ascii: "\r"):
            guard peek(at: 1) == UInt8(ascii: "\n") else {
                throw error("a carriage return without a line feed", "save the file with Unix line ends")
            }
            index += 2
            return true
        default:
            return false
        }
    }

    func error(_ message: String, _ advice: String, at offset: Int? = nil) -> TOMLSyntaxError {
        TOMLSyntaxError(offset: offset ?? index, message: message, advice: advice)
    }

    static func isControl(_ byte: UInt8) -> Bool { (byte < 0x20 && byte != UInt8(ascii: "\t")) || byte == 0x7F }

    static func isBareKey(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
            true
        default: false
        }
    }
}
