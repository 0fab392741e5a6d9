// Finds a settings file, and reads it, or bytes, into a program's own settings type.
import Files
import Glibc

/// Reads settings files: TOML 1.0, strictly.
///
/// ```swift
/// let settings = try SettingsFile.read(path: "/etc/pttd/pttd.toml") { root in
///     let audio = root.table("audio")
///     return DaemonSettings(
///         tail: audio?.value("tail", .duration(in: .zero ... .seconds(2)), default: .milliseconds(200)) ?? …
/// }
/// ```
public enum SettingsFile {
    /// A settings file is not larger than this.
    public static let sizeMax = 4 * 1024 * 1024

    /// Reads the file at `path`.
    ///
    /// - Parameter body: Asks the root table for what it needs. What it returns is used only if nothing was wrong.
    /// - Throws: `SettingsError` with every problem: the file cannot be read, is not TOML, lacks keys, has unknown ones …
    public static func read<Settings>(
        path: String, _ body: (SettingsTable) -> Settings
    ) throws(SettingsError) -> Settings {
        try read(bytes: try contents(of: path), file: path, body)
    }

    /// Reads settings from a text.
    ///
    /// - Parameter file: The name to use in messages.
    public static func read<Settings>(
        text: String, file: String, _ body: (SettingsTable) -> Settings
    ) throws(SettingsError) -> Settings {
        try read(bytes: Array(text.utf8), file: file, body)
    }

    /// Reads settings from bytes, which should be UTF-8.
    ///
    /// - Parameter file: The name to use in messages.
    public static func read<Settings>(
        bytes: [UInt8], file: String, _ body: (SettingsTable) -> Settings
    ) throws(SettingsError) -> Settings {
        guard bytes.count <= sizeMax else {
            throw SettingsError([
                SettingsProblem(
                    file: file, message: "the file has \(bytes.count) bytes", advice: "\(sizeMax) are the limit")
            ])
        }
        let table: TOMLTable
        do throws(TOMLSyntaxError) {
            table = try parseTOML(bytes)
        } catch {
            // The parser's words for a value that is neither number, date nor quoted.
            let unquoted = error.message.contains("could not determine value type")
            throw SettingsError([
                SettingsProblem(
                    file: file, position: error.position, message: "is not TOML: \(error.message)",
                    advice: unquoted ? "text needs quotes" : "toml.io shows how it is written")
            ])
        }
        let reading = SettingsReading(file: file)
        let root = SettingsTable(table, path: "", reading: reading)
        let settings = body(root)
        reading.reportUnknownKeys()
        guard reading.problems.isEmpty else { throw SettingsError(reading.problems) }
        return settings
    }

    /// The bytes of the file at `path`.
    ///
    /// - Throws: `SettingsError` that says why it cannot be read, or that it is larger than `sizeMax`.
    public static func contents(of path: String) throws(SettingsError) -> [UInt8] {
        do throws(FileError) {
            return try RegularFile.read(path, byteCountMax: sizeMax)
        } catch {
            throw SettingsError([
                SettingsProblem(
                    file: path, message: "cannot be read: \(error.reason)", advice: error.advice, cause: error)
            ])
        }
    }
}

/// The places of settings files.
public enum SettingsPlaces {
    /// Where the file `name` of `program` is looked for when none is named: the user's own, but not root's, and then the system's.
    public static func paths(of program: String, name: String) -> [String] {
        var paths: [String] = []
        if getuid() != 0, let folder = variable("XDG_CONFIG_HOME") ?? variable("HOME").map({ $0 + "/.config" }) {
            paths.append("\(folder)/\(program)/\(name)")
        }
        return paths + ["/etc/\(program)/\(name)"]
    }

    /// The first of `paths` that is there; nil: none. A symbolic link is there although its file is missing: that may be on a disk that is
    /// not mounted yet, and another file or the defaults would be the wrong settings.
    public static func first(of paths: [String]) -> String? { paths.first(where: AtomicFile.exists) }

    /// A variable of the environment; nil: it is not there, or empty.
    public static func variable(_ name: String) -> String? {
        guard let value = getenv(name).map({ String(cString: $0) }), !value.isEmpty else { return nil }
        return value
    }
}
