// Reads a table key by key. Problems are collected, so that a user sees all of them at once.
import FoundationEssentials

/// What is shared by the tables of one file while it is read.
final class SettingsReading {
    let file: String
    private(set) var problems: [SettingsProblem] = []
    private var tables: [SettingsTable] = []

    init(file: String) {
        self.file = file
    }

    func register(_ table: SettingsTable) { tables.append(table) }

    func report(at position: SourcePosition, key: String, _ message: String, _ advice: String) {
        problems.append(
            SettingsProblem(
                file: file, position: position, key: key, message: message, advice: advice))
    }

    /// Keys that nobody asked for are mistakes: a misspelt setting must not be ignored in silence.
    func reportUnknownKeys() {
        for table in tables { table.reportUnknownKeys() }
    }
}

/// A table of a settings file, for the time of `SettingsFile.read`.
///
/// Asking for a key makes it a known one; keys that were never asked for are reported as unknown. A problem never
/// stops the reading: a placeholder is returned, and the whole file is refused at the end.
public final class SettingsTable {
    private let table: TOMLTable
    private let reading: SettingsReading
    /// The dotted path of this table; empty for the file itself.
    public let path: String
    private var asked: Set<String> = []
    private var askedInOrder: [String] = []
    /// One of each, so that what several readers ask of a table is known to all of them.
    private var subtables: [String: SettingsTable] = [:]

    init(_ table: TOMLTable, path: String, reading: SettingsReading) {
        self.table = table
        self.path = path
        self.reading = reading
        reading.register(self)
    }

    // MARK: Values

    /// The value of a key that must be there.
    public func required<Value>(_ key: String, _ type: SettingType<Value>) -> Value {
        guard let entry = ask(key) else {
            reading.report(
                at: table.position, key: dotted(key), "is missing", "add: \(key) = …, \(type.expected)")
            return type.placeholder
        }
        return read(entry, type) ?? type.placeholder
    }

    /// The value of a key, or nil when the file does not say.
    public func optional<Value>(_ key: String, _ type: SettingType<Value>) -> Value? {
        ask(key).flatMap { read($0, type) }
    }

    /// The value of a key, or `fallback` when the file does not say.
    public func value<Value>(_ key: String, _ type: SettingType<Value>, default fallback: Value) -> Value {
        optional(key, type) ?? fallback
    }

    private func read<Value>(_ entry: TOMLTable.Entry, _ type: SettingType<Value>) -> Value? {
        do throws(LocatedRefusal) {
            return try type.read(entry.node)
        } catch {
            reading.report(
                at: error.position, key: dotted(entry.key), error.refusal.message, error.refusal.advice)
            return nil
        }
    }

    // MARK: Tables

    /// The table `[key]`, or nil when the file has none.
    public func table(_ key: String) -> SettingsTable? {
        if let known = subtables[key] { return known }
        guard let entry = ask(key) else { return nil }
        guard case .table(let table) = entry.node.value else {
            reading.report(
                at: entry.node.position, key: dotted(key), "is \(entry.node.value.kind)",
                "write a table: [\(dotted(key))] on a line of its own, its keys below")
            return nil
        }
        let subtable = SettingsTable(table, path: dotted(key), reading: reading)
        subtables[key] = subtable
        return subtable
    }

    /// The tables of `[[key]]`, in the order of the file.
    public func tables(_ key: String, countMax: Int = 256) -> [SettingsTable] {
        guard let entry = ask(key) else { return [] }
        let advice = "write [[\(dotted(key))]] on a line of its own for each, its keys below"
        guard case .array(let nodes) = entry.node.value else {
            reading.report(at: entry.node.position, key: dotted(key), "is \(entry.node.value.kind)", advice)
            return []
        }
        guard nodes.count <= countMax else {
            reading.report(
                at: entry.node.position, key: dotted(key), "has \(nodes.count) tables", "\(countMax) are the limit")
            return []
        }
        return nodes.enumerated().compactMap { index, node in
            guard case .table(let table) = node.value else {
                reading.report(at: node.position, key: dotted(key), "is \(node.value.kind)", advice)
                return nil
            }
            return SettingsTable(table, path: "\(dotted(key))[\(index + 1)]", reading: reading)
        }
    }

    /// The tables of `[[key]]`, in the order of the file, or the one of `[key]`.
    public func oneOrMoreTables(_ key: String, countMax: Int = 256) -> [SettingsTable] {
        guard case .table? = ask(key)?.node.value else { return tables(key, countMax: countMax) }
        return table(key).map { [$0] } ?? []
    }

    /// The tables `[key.NAME]` by their names, in the order of the file.
    public func namedTables(_ key: String, countMax: Int = 256) -> [(name: String, table: SettingsTable)] {
        guard let outer = table(key) else { return [] }
        guard outer.table.entries.count <= countMax else {
            reading.report(
                at: outer.table.position, key: dotted(key), "has \(outer.table.entries.count) tables",
                "\(countMax) are the limit")
            return []
        }
        return outer.table.entries.compactMap { entry in
            outer.table(entry.key).map { (name: entry.key, table: $0) }
        }
    }

    /// The keys that the file has here, in its order, for tables whose keys are names of the user's.
    public var keys: [String] { table.entries.map(\.key) }

    /// Whether the file says anything for `key`. Makes it a known one.
    public func contains(_ key: String) -> Bool { ask(key) != nil }

    /// Reports a problem that only the caller can see, two keys that contradict each other, say.
    ///
    /// - Parameter key: The key it is about; nil for the table as a whole.
    public func problem(_ key: String?, _ message: String, _ advice: String) {
        guard let key else {
            return reading.report(at: table.position, key: path, message, advice)
        }
        reading.report(at: table[key]?.node.position ?? table.position, key: dotted(key), message, advice)
    }

    // MARK: Keys

    private func ask(_ key: String) -> TOMLTable.Entry? {
        if asked.insert(key).inserted { askedInOrder.append(key) }
        return table[key]
    }

    private func dotted(_ key: String) -> String { path.isEmpty ? key : "\(path).\(key)" }

    /// Takes every key of this table for a known one. For a reader of a part of a file that another program reads whole.
    public func isReadInPart() { asked.formUnion(table.entries.map(\.key)) }

    func reportUnknownKeys() {
        for entry in table.entries where !asked.contains(entry.key) {
            let advice: String
            if let near = nearestName(to: entry.key, among: askedInOrder) {
                advice = "did you mean '\(near)'?"
            } else if askedInOrder.isEmpty {
                advice = "remove it"
            } else {
                advice = "known here: \(askedInOrder.joined(separator: ", "))"
            }
            reading.report(at: entry.keyPosition, key: dotted(entry.key), "is not known", advice)
        }
    }
}
