// BlueALSA (org.bluealsa): the only service on Linux that passes on a headset's AT commands.
import DBus

/// The hands-free profile's commands, through bluealsa(8).
public enum BlueALSA {
    static let service = "org.bluealsa"
    static let root: DBusObjectPath = "/org/bluealsa"
    static let terminal = "org.bluealsa.RFCOMM1"
    static let manager = "org.bluealsa.Manager1"
    private static let timeout = Duration.seconds(5)

    /// Opens a connected headset's stream of AT commands, those that BlueALSA does not answer itself: a socket of packets, one command
    /// each. BlueALSA gives it to one program at a time.
    ///
    /// - Parameter connection: The system bus.
    /// - Throws: Why there is none, in words for people.
    public static func openCommands(
        of device: DeviceIdentifier, on connection: DBusConnection
    ) async throws(BlueALSAError) -> DBusDescriptor {
        do throws(DBusError) {
            let answer = try await connection.call(
                destination: service, path: path(of: device), interface: terminal, method: "Open", timeout: timeout,
                startsService: false)
            guard answer.count == 1, let descriptor = answer[0].descriptorValue else {
                throw .unexpectedType(expected: "h", got: answer.signature.rawValue)
            }
            return descriptor
        } catch {
            throw await reason(error, device, connection)
        }
    }

    /// Asks it for a sign of life.
    ///
    /// - Returns: Whether one came, be it an error.
    public static func ping(on connection: DBusConnection) async -> Bool {
        do throws(DBusError) {
            // A property is told by its main loop, a ping would be answered beside it.
            _ = try await connection.getProperty(
                "Profiles", of: manager, destination: service, path: root, timeout: BlueZTimeout.short)
            return true
        } catch {
            if case .timedOut = error { return false }
            return true
        }
    }

    /// Where BlueALSA has a device's commands: the path below the adapter is BlueZ's.
    static func path(of device: DeviceIdentifier) -> DBusObjectPath {
        let parts = [device.adapter.name, String(device.path.lastComponent), "rfcomm"]
        return parts.reduce(root) { BlueZClient.child($0, $1) }
    }

    private static func reason(
        _ error: DBusError, _ device: DeviceIdentifier, _ connection: DBusConnection
    ) async -> BlueALSAError {
        guard case .remote(let name, let message) = error else {
            return .failed(error.description)
        }
        switch name {
        case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner":
            return .notRunning
        case "org.freedesktop.DBus.Error.AccessDenied":
            return .notAllowed
        case "org.freedesktop.DBus.Error.UnknownObject", "org.freedesktop.DBus.Error.UnknownMethod",
            "org.freedesktop.DBus.Error.UnknownInterface":
            return await lacksHandsFree(connection) ? .withoutHandsFree : .noHeadset
        default:
            return message.lowercased().contains("busy") ? .busy : .failed(message.isEmpty ? name : message)
        }
    }

    /// Whether BlueALSA says that it runs without the profiles of headsets (4.0: "HFP-AG", "HSP-AG").
    private static func lacksHandsFree(_ connection: DBusConnection) async -> Bool {
        let answer = try? await connection.getProperty(
            "Profiles", of: manager, destination: service, path: root, timeout: timeout)
        guard let profiles = answer?.get([String].self) else { return false }
        return !profiles.contains { $0.lowercased() == "hfp-ag" || $0.lowercased() == "hsp-ag" }
    }
}

/// Why there are no AT commands, and what to do.
public enum BlueALSAError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The service is not on the bus.
    case notRunning
    /// The bus does not let us speak to it.
    case notAllowed
    /// It runs, but not for headsets.
    case withoutHandsFree
    /// It has not got this headset: not connected, or another program has its hands-free profile.
    case noHeadset
    /// Another program has opened the commands.
    case busy
    /// Something else, in its words.
    case failed(String)

    /// What is wrong and what helps.
    public var description: String {
        switch self {
        case .notRunning:
            "its button uses the hands-free profile, which only BlueALSA passes on: install bluez-alsa-utils, and have "
                + "bluealsa.service run 'bluealsa -p hfp-ag' (PipeWire keeps such buttons to itself)"
        case .notAllowed:
            "this user may not use BlueALSA: add the user to the group audio"
        case .withoutHandsFree:
            "BlueALSA runs without the hands-free profile: have bluealsa.service run 'bluealsa -p hfp-ag'"
        case .noHeadset:
            "BlueALSA does not have the hands-free connection: have bluealsa.service run 'bluealsa -p hfp-ag', and, if PipeWire has taken "
                + "the profile, set bluez5.hfphsp-backend = \"none\" in WirePlumber"
        case .busy:
            "another program has opened the hands-free commands, such as bluealsa-rfcomm: close it"
        case .failed(let words): "BlueALSA does not pass on the button's commands: \(words)"
        }
    }
}
