// Where a program's settings file is looked for.
import Glibc

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

    private static func variable(_ name: String) -> String? {
        guard let value = getenv(name).map({ String(cString: $0) }), !value.isEmpty else { return nil }
        return value
    }
}
