// When to try again to connect a device after it failed. Pure.
import MonotonicTime

/// What to do after an attempt to connect failed.
public enum ConnectRetry: Hashable, Sendable {
    /// Try again after this time. If the device is reported connected meanwhile, there is nothing to do.
    case after(Duration)
    /// Try again once the adapter is on.
    case whenAdapterPowered
    /// Try again when BlueZ reports the device (again), or bluetoothd is back.
    case whenDeviceAppears
    /// Do not try by ourselves: the user or an administrator has to do something.
    case never
}

/// Decides from the errors of `connect` how to go on.
///
/// Source of the rules: BlueZ reports `le-connection-abort-by-local` for links that did come up (retry at once, a few
/// times), `InProgress` when an attempt of ours, of another program or of its own auto-connection is under way (wait
/// for that one), and a device that is asleep as a time-out (back off: it is the auto-connection's work to find it).
public struct ConnectRetryPolicy: Hashable, Sendable {
    /// Attempts in a row that follow an aborted link at once.
    public static let immediateMaximum = 5
    /// The pause before such an attempt: BlueZ needs to report the aborted link's end first.
    public static let immediateDelay = Duration.milliseconds(100)
    /// The wait for another attempt that is under way.
    public static let inProgressDelay = Duration.seconds(2)
    /// The pauses after other failures; the last one stays.
    public static let backoff: [Duration] = [
        .milliseconds(400), .milliseconds(800), .milliseconds(1600), .milliseconds(3200), .milliseconds(6400),
        .seconds(30),
    ]

    private var aborted = 0
    private var failed = 0

    /// A policy for a device that has not failed.
    public init() {}

    /// The services of the device are usable: its failures are forgotten.
    public mutating func succeeded() { self = ConnectRetryPolicy() }

    /// What to do after `error`.
    public mutating func failed(with error: BlueZError) -> ConnectRetry {
        switch error.kind {
        case .connectionAborted where aborted < Self.immediateMaximum:
            aborted += 1
            return .after(Self.immediateDelay)
        case .alreadyDone: return .after(Self.inProgressDelay)
        case .inProgress: return .after(Self.inProgressDelay)
        case .notReady: return .whenAdapterPowered
        case .noSuchObject, .unavailable: return .whenDeviceAppears
        case .notSupported, .notPermitted, .accessDenied, .authenticationFailed, .invalidArguments, .cancelled:
            return .never
        case .connectionAborted, .unreachable, .notConnected, .timedOut, .malformedAnswer, .failed:
            defer { failed = min(failed + 1, Self.backoff.count - 1) }
            return .after(Self.backoff[failed])
        }
    }
}
