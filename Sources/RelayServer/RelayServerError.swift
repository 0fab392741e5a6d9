// What can keep a relay from running, in words that say what to do.
import Glibc
import QUIC
import Reactor
import RelayProtocol

/// Why a relay does not run, or cannot do what was asked.
public enum RelayServerError: Error, Equatable, Sendable, CustomStringConvertible {
    /// No thread or descriptor is left for the relay's loop.
    case system(SystemError)
    /// The port cannot be opened.
    case listen(String, QUICError)
    /// The listening address is not a numeric IP address.
    case badAddress(String)
    /// The relay has more channels than its limit.
    case tooManyChannels(limit: Int)
    /// Two channels have the same identifier.
    case repeatedChannel(ChannelID)
    /// The relay has no such channel.
    case unknownChannel(ChannelID)
    /// The relay is not running, so its port is not known.
    case notRunning
    /// The relay is running already.
    case alreadyRunning
    /// No invitation can be made with that host.
    case invitation(InvitationLinkError)

    /// Why a port is not opened, without the names of calls.
    private static func reason(_ error: QUICError) -> String {
        guard case .socket(let error, _) = error else { return "\(error)" }
        return switch error.code {
        case EADDRINUSE: "another program listens there, perhaps another relay"
        case EACCES, EPERM: "this user has no permission; ports below 1024 need CAP_NET_BIND_SERVICE"
        default: String(cString: strerror(error.code))
        }
    }

    /// What is wrong and what to do.
    public var description: String {
        switch self {
        case .system(let error):
            "the relay's thread cannot start (\(error)); raise the limits of processes and open files (ulimit)"
        case .listen(let address, let error):
            "the relay cannot listen on UDP \(address): \(Self.reason(error)); choose another port with --listen ADDRESS:PORT"
        case .badAddress(let text):
            "'\(text)' is not a numeric IP address to listen on; use 0.0.0.0, ::, 127.0.0.1 or an address of this machine"
        case .tooManyChannels(let limit):
            "the relay may serve \(limit) channels, and has more; raise 'channels' in [limits]"
        case .repeatedChannel(let id): "two channels have the identifier \(id); give each its own"
        case .unknownChannel(let id): "the relay has no channel \(id)"
        case .notRunning: "the relay is not running, so its port is not known; start it first"
        case .alreadyRunning: "the relay is running already"
        case .invitation(let error): "\(error)"
        }
    }
}
