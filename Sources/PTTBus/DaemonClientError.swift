// The errors of a client of the daemon.
import DBus
import PushToTalkCore
import Vocabulary

/// Why a client cannot reach the daemon. The description says what to do.
public enum DaemonClientError: Error, CustomStringConvertible {
    /// `org.pttd` is on none of the buses that were looked at.
    case notRunning(looked: [String])
    /// A bus refused, or the call failed.
    case bus(DBusError)

    /// The channel error that the daemon answered; nil when it is another kind of failure.
    public var channelError: PTChannelError? { answered() }

    /// The instantiation error that the daemon answered; nil when it is another kind of failure.
    public var instantiationError: PTInstantiationError? { answered() }

    /// The accessory error that the daemon answered; nil when it is another kind of failure.
    public var accessoryError: AccessoryError? { answered() }

    private func answered<Failure: BusError>() -> Failure? {
        guard case .bus(.remote(let name, let message)) = self else { return nil }
        return Failure(busName: name, message: message)
    }

    /// As if the daemon had answered this.
    static func refused(_ error: some BusError) -> DaemonClientError {
        let reply = PTTBus.reply(error)
        return .bus(.remote(name: reply.name, message: reply.message))
    }

    /// Whether the daemon has no object at the path that was called.
    var isUnknownObject: Bool {
        if case .bus(.remote(let name, _)) = self { name.hasSuffix(".UnknownObject") } else { false }
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
            "pttd is on the bus, but does not answer; 'journalctl -u pttd' shows its log (with --user for a user's own), "
                + "'systemctl restart pttd' restarts it"
        case .bus(.disconnected): "the bus connection was lost before the answer came; try again"
        case .bus(.remote(let name, let message))
        where name.hasPrefix(PTTBus.errorPrefix) || name.hasSuffix(".InvalidArgs") || name.hasSuffix(".LimitsExceeded"):
            message
        case .bus(let error): "\(error)"
        }
    }
}
