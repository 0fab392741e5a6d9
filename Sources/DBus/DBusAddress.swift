// Which bus to connect to.
import Glibc

/// A bus to connect to.
public enum DBusAddress: Hashable, Sendable, CustomStringConvertible {
    /// The machine's bus: `DBUS_SYSTEM_BUS_ADDRESS`, or the well-known socket.
    case system
    /// The user's bus: `DBUS_SESSION_BUS_ADDRESS`, or `bus` in `XDG_RUNTIME_DIR`.
    case session
    /// A bus at an address in libdbus's form, such as `unix:path=/run/some/bus`.
    case address(String)

    /// The address in libdbus's form; nil when there is none, as for a session bus outside a session.
    public var resolved: String? {
        switch self {
        case .system: return environment("DBUS_SYSTEM_BUS_ADDRESS") ?? "unix:path=/var/run/dbus/system_bus_socket"
        case .session:
            // Never "autolaunch:", which would start a bus of its own.
            if let address = environment("DBUS_SESSION_BUS_ADDRESS") { return address }
            guard let directory = environment("XDG_RUNTIME_DIR") else { return nil }
            var status = stat()
            guard stat(directory + "/bus", &status) == 0 else { return nil }
            return "unix:path=\(Self.escape(directory))/bus"
        case .address(let address): return address
        }
    }

    /// A path as part of an address, with what is special there escaped (D-Bus specification, "Server Addresses").
    public static func escape(_ path: String) -> String {
        var result = ""
        for byte in path.utf8 {
            let character = Character(Unicode.Scalar(byte))
            if character.isASCII, character.isLetter || character.isNumber || "-_/.\\*".contains(character) {
                result.append(character)
            } else {
                let digits = String(byte, radix: 16)
                result += "%" + (digits.count == 1 ? "0" : "") + digits
            }
        }
        return result
    }

    private func environment(_ name: String) -> String? {
        guard let value = getenv(name) else { return nil }
        let string = String(cString: value)
        return string.isEmpty ? nil : string
    }

    /// The bus's name, for logs.
    public var description: String {
        switch self {
        case .system: return "system bus"
        case .session: return "session bus"
        case .address(let address): return address
        }
    }
}
