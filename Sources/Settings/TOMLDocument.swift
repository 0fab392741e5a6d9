// A parsed TOML document: values that remember where they stand in the text. The parsing is toml++'s (toml.io/en/v1.0.0).
import CTOML

/// A value and the place at which it begins.
struct TOMLNode {
    var value: TOMLValue
    var position: SourcePosition
}

/// A value of TOML 1.0.
enum TOMLValue {
    case string(String)
    case integer(Int64)
    case float(Double)
    case boolean(Bool)
    /// No setting is a date or a time, so what it says is not kept.
    case dateOrTime
    case array([TOMLNode])
    case table(TOMLTable)

    /// What it is, in words for a message.
    var kind: String {
        switch self {
        case .string: "a string"
        case .integer: "an integer"
        case .float: "a number with a fraction"
        case .boolean: "a boolean"
        case .dateOrTime: "a date or time"
        case .array: "an array"
        case .table: "a table"
        }
    }
}

/// A table with its keys in the order of the text.
final class TOMLTable {
    struct Entry {
        var key: String
        var keyPosition: SourcePosition
        var node: TOMLNode
    }

    /// Where the header or the brace stands.
    let position: SourcePosition
    private(set) var entries: [Entry] = []
    private var indexes: [String: Int] = [:]

    init(position: SourcePosition) {
        self.position = position
    }

    subscript(key: String) -> Entry? { indexes[key].map { entries[$0] } }

    fileprivate func append(_ entry: Entry) {
        indexes[entry.key] = entries.count
        entries.append(entry)
    }
}

/// Why a text is not TOML.
struct TOMLSyntaxError: Error {
    var message: String
    var position: SourcePosition
}

/// The document in `bytes`.
func parseTOML(_ bytes: [UInt8]) throws(TOMLSyntaxError) -> TOMLTable {
    let builder = TOMLBuilder()
    var error = ptt_toml_error()
    let parsed = withExtendedLifetime(builder) {
        var visitor = TOMLBuilder.visitor(for: builder)
        return bytes.withUnsafeBufferPointer { buffer in
            buffer.withMemoryRebound(to: CChar.self) { ptt_toml_parse($0.baseAddress, $0.count, &visitor, &error) }
        }
    }
    guard parsed, let root = builder.root else {
        let message = withUnsafeBytes(of: error.message) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
        throw TOMLSyntaxError(message: message, position: SourcePosition(error.position))
    }
    return root
}

extension SourcePosition {
    /// toml++ says 0 for places that a document does not have, its root for one.
    fileprivate init(_ position: ptt_toml_position) {
        self.init(line: max(1, Int(position.line)), column: max(1, Int(position.column)))
    }
}

/// Builds the tree from the walk.
private final class TOMLBuilder {
    private enum Open {
        case table(TOMLTable)
        case array([TOMLNode], SourcePosition)
    }

    private(set) var root: TOMLTable?
    private var open: [Open] = []
    /// Keys whose value is still open, innermost last.
    private var keys: [(name: String, position: SourcePosition)] = []

    private func add(_ value: TOMLValue, at position: SourcePosition) {
        let node = TOMLNode(value: value, position: position)
        switch open.last {
        case .table(let table):
            guard let key = keys.popLast() else { return }
            table.append(TOMLTable.Entry(key: key.name, keyPosition: key.position, node: node))
        case .array(var elements, let start):
            open.removeLast()
            elements.append(node)
            open.append(.array(elements, start))
        case nil:
            if case .table(let table) = value { root = table }
        }
    }

    private func close() {
        switch open.popLast() {
        case .table(let table): add(.table(table), at: table.position)
        case .array(let elements, let position): add(.array(elements), at: position)
        case nil: break
        }
    }

    static func visitor(for builder: TOMLBuilder) -> ptt_toml_visitor {
        func text(_ pointer: UnsafePointer<CChar>?, _ length: Int) -> String {
            UnsafeRawBufferPointer(start: pointer, count: length).withMemoryRebound(to: UInt8.self) {
                String(decoding: $0, as: UTF8.self)
            }
        }
        func target(_ context: UnsafeMutableRawPointer?) -> TOMLBuilder {
            Unmanaged<TOMLBuilder>.fromOpaque(context!).takeUnretainedValue()
        }
        return ptt_toml_visitor(
            context: Unmanaged.passUnretained(builder).toOpaque(),
            key: { context, name, length, at in
                target(context).keys.append((text(name, length), SourcePosition(at)))
            },
            begin_table: { context, at in
                target(context).open.append(.table(TOMLTable(position: SourcePosition(at))))
            },
            end_table: { target($0).close() },
            begin_array: { context, at in target(context).open.append(.array([], SourcePosition(at))) },
            end_array: { target($0).close() },
            string: { context, value, length, at in
                target(context).add(.string(text(value, length)), at: SourcePosition(at))
            },
            integer: { target($0).add(.integer($1), at: SourcePosition($2)) },
            floating: { target($0).add(.float($1), at: SourcePosition($2)) },
            boolean: { target($0).add(.boolean($1), at: SourcePosition($2)) },
            date_or_time: { target($0).add(.dateOrTime, at: SourcePosition($1)) })
    }
}
