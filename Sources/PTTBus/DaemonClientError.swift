// Why a client of the daemon did not get what it asked for.
import DBus
import PushToTalkCore

/// Why a client has no daemon to talk to. The description tells the user what to do.
public enum DaemonClientError: Error, CustomStringConvertible {
    /// `org.pttd` is on none of the buses that were looked at.
    case notRunning(looked: [String])
    /// A bus refused, or the call failed.
    case bus(DBusError)

    /// The channel error that the daemon answered; nil when it is another kind of failure.
    public var channelError: PTChannelError? {
        guard case .bus(.remote(let name, let message)) = self else { return nil }
        return PTChannelError(busName: name, message: message)
    }

    /// The instantiation error that the daemon answered; nil when it is another kind of failure.
    public var instantiationError: PTInstantiationError? {
        guard case .bus(.remote(let name, let message)) = self else { return nil }
        return PTInstantiationError(busName: name, message: message)
    }

    /// What is wrong and what to do.
    public var description: String {
        switch self {
        case .notRunning(let looked):
            "pttd is not running (looked for \(PTTBus.name) on the \(looked.joined(separator: " and the "))); "
                + "start it: 'systemctl --user start pttd', or 'sudo systemctl start pttd' for the whole machine"
        case .bus(.remote(_, let message)) where message.hasPrefix(PTTBus.foreignChannelWords): message
        case .bus(.remote(let name, _)) where name.hasSuffix(".AccessDenied"):
            "the bus does not let you talk to pttd; join the group: 'sudo adduser $USER pttd', and log in again"
        case .bus(.connectFailed(let address, let reason)):
            "there is no bus at '\(address)' (\(reason)); leave --bus out, or name 'session' or 'system'"
        case .bus(.timedOut):
            "pttd is on the bus, but does not answer; 'journalctl -u pttd' shows what it did last (with --user for a user's own), "
                + "'systemctl restart pttd' starts it anew"
        case .bus(.disconnected): "the bus is gone, and with it the answer; try again"
        case .bus(.remote(let name, let message))
        where name.hasPrefix(PTTBus.errorPrefix) || name.hasSuffix(".InvalidArgs") || name.hasSuffix(".LimitsExceeded"):
            message
        case .bus(let error): "\(error)"
        }
    }
}
