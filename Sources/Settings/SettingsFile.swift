// From a file, or bytes, to a program's own settings type.
#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

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
    public static let sizeMax = 256 * 1024

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
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw unreadable(path, errno) }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 16 * 1024)
        while true {
            let count = readBytes(descriptor, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw unreadable(path, errno) }
            if count == 0 { return bytes }
            bytes += buffer[..<count]
            guard bytes.count <= sizeMax else {
                throw SettingsError([
                    SettingsProblem(
                        file: path, message: "the file is larger than \(sizeMax) bytes", advice: "split or shorten it")
                ])
            }
        }
    }

    private static func unreadable(_ path: String, _ code: Int32) -> SettingsError {
        let advice =
            switch code {
            case ENOENT: "create it, or name another one"
            case EACCES, EPERM: "let the daemon's user read it: chmod o+r, or chgrp to its group"
            case EISDIR: "name a file in it"
            default: ""
            }
        return SettingsError([
            SettingsProblem(file: path, message: "cannot be read: \(String(cString: strerror(code)))", advice: advice)
        ])
    }
}

/// read(2), whose name the methods of `SettingsFile` hide.
private func readBytes(_ descriptor: Int32, _ buffer: UnsafeMutableRawPointer, _ count: Int) -> Int {
    read(descriptor, buffer, count)
}
