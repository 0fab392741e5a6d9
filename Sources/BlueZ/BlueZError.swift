// BlueZ's errors: one type with a kind to act on and words to show.
import DBus

/// A Bluetooth operation that failed.
public struct BlueZError: Error, Hashable, Sendable, CustomStringConvertible {
    /// What to make of it.
    public enum Kind: Hashable, Sendable {
        /// The same is already being done, by us or by another program.
        case inProgress
        /// It is so already.
        case alreadyDone
        /// The link came up and was dropped by this side's controller (`le-connection-abort-by-local`, and
        /// "Software caused connection abort"): common on a busy band, worth another attempt at once.
        case connectionAborted
        /// The other side was not reached, refused, or is gone.
        case unreachable
        /// The device is not connected.
        case notConnected
        /// The adapter is off or not ready yet.
        case notReady
        /// Pairing failed, was refused or timed out.
        case authenticationFailed
        /// BlueZ's configuration or the device's does not permit it, or another program has the characteristic.
        case notPermitted
        /// Adapter, device or BlueZ cannot do it.
        case notSupported
        /// The object is gone, or never was.
        case noSuchObject
        /// What was asked makes no sense to BlueZ.
        case invalidArguments
        /// No answer in time.
        case timedOut
        /// Cancelled by the caller.
        case cancelled
        /// bluetoothd or the bus is not there.
        case unavailable
        /// The bus's policy denies it.
        case accessDenied
        /// An answer that is not what BlueZ documents.
        case malformedAnswer
        /// Anything else.
        case failed
    }

    /// What to make of it.
    public let kind: Kind
    /// BlueZ's own words, or ours.
    public let message: String
    /// What was tried, such as `Connect AA:BB:CC:DD:EE:FF on hci0`.
    public let operation: String

    /// An error.
    public init(_ kind: Kind, _ message: String, during operation: String) {
        self.kind = kind
        self.message = message
        self.operation = operation
    }

    /// What was tried, and the words.
    public var description: String { "\(operation): \(message)" }

    init(_ error: DBusError, during operation: String) {
        switch error {
        case .remote(let name, let message):
            self.init(Self.kind(name: name, message: message), message.isEmpty ? name : message, during: operation)
        case .disconnected, .connectFailed: self.init(.unavailable, error.description, during: operation)
        case .timedOut: self.init(.timedOut, error.description, during: operation)
        case .cancelled: self.init(.cancelled, error.description, during: operation)
        case .invalid: self.init(.invalidArguments, error.description, during: operation)
        case .unexpectedType: self.init(.malformedAnswer, error.description, during: operation)
        case .limitReached, .nameTaken: self.init(.failed, error.description, during: operation)
        }
    }

    /// The kind of a D-Bus error name of BlueZ (src/error.h) with its message.
    static func kind(name: String, message: String) -> Kind {
        switch name {
        case "org.bluez.Error.InProgress": return .inProgress
        case "org.bluez.Error.AlreadyConnected", "org.bluez.Error.AlreadyExists": return .alreadyDone
        case "org.bluez.Error.NotConnected": return .notConnected
        case "org.bluez.Error.NotAvailable" where message == "br-connection-profile-unavailable": return .notSupported
        case "org.bluez.Error.NotReady", "org.bluez.Error.NotAvailable": return .notReady
        case "org.bluez.Error.NotPermitted", "org.bluez.Error.NotAuthorized", "org.bluez.Error.Rejected":
            return .notPermitted
        case "org.bluez.Error.NotSupported", "org.bluez.Error.ProfileUnavailable": return .notSupported
        case "org.bluez.Error.BREDR.KeyMissing", "org.bluez.Error.BREDR.ConnKeyMissing": return .authenticationFailed
        case "org.bluez.Error.DoesNotExist", "org.freedesktop.DBus.Error.UnknownObject",
            "org.freedesktop.DBus.Error.UnknownMethod", "org.freedesktop.DBus.Error.UnknownInterface":
            // BlueZ answers UnknownMethod, not UnknownObject, for the path of an object that is gone.
            return .noSuchObject
        case "org.bluez.Error.InvalidArguments", "org.bluez.Error.InvalidOffset",
            "org.bluez.Error.InvalidValueLength", "org.freedesktop.DBus.Error.InvalidArgs":
            return .invalidArguments
        case "org.bluez.Error.AuthenticationFailed", "org.bluez.Error.AuthenticationCanceled",
            "org.bluez.Error.AuthenticationRejected", "org.bluez.Error.AuthenticationTimeout":
            return .authenticationFailed
        case "org.bluez.Error.ConnectionAttemptFailed": return .unreachable
        case "org.bluez.Error.Canceled": return .cancelled
        case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner":
            return .unavailable
        case "org.freedesktop.DBus.Error.AccessDenied": return .accessDenied
        case "org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.Timeout",
            "org.freedesktop.DBus.Error.TimedOut":
            return .timedOut
        case "org.bluez.Error.Failed": return kind(ofFailure: message)
        default: return .failed
        }
    }

    /// `org.bluez.Error.Failed` says what happened in its message only: a code since 5.63, strerror(3) before.
    private static func kind(ofFailure message: String) -> Kind {
        switch message {
        case "le-connection-abort-by-local", "br-connection-aborted-by-local", "Software caused connection abort":
            return .connectionAborted
        case "le-connection-abort-by-remote", "br-connection-aborted-by-remote", "le-connection-refused",
            "br-connection-refused", "br-connection-page-timeout", "br-connection-timeout",
            "le-connection-link-layer-protocol-error",
            "Connection timed out", "Host is down", "Connection refused", "Connection reset by peer",
            "No route to host", "Input/output error":
            return .unreachable
        case "le-connection-busy", "br-connection-busy", "le-connection-concurrent-connection-limit",
            "br-connection-concurrent-connection-limit", "Operation already in progress", "Operation now in progress",
            "Device or resource busy":
            return .inProgress
        case "le-connection-adapter-not-powered", "br-connection-adapter-not-powered",
            "br-connection-not-supported", "Resource Not Ready", "Network is down":
            return message.hasSuffix("not-supported") ? .notSupported : .notReady
        // The device shows no record of the profile.
        case "br-connection-profile-unavailable", "br-connection-sdp-search", "Protocol not available":
            return .notSupported
        case "br-connection-key-missing": return .authenticationFailed
        case "br-connection-already-connected": return .alreadyDone
        case "br-connection-canceled", "Operation canceled", "le-connection-canceled": return .cancelled
        case "Already notifying", "No discovery started": return .alreadyDone
        case "Not connected", "Transport endpoint is not connected": return .notConnected
        default: return .failed
        }
    }
}
