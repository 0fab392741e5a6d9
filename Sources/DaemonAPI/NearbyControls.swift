// The interface between channels nearby on the bus and the rules behind them.
import FoundationEssentials
import PTTBus
import PushToTalkCore

/// The requests of the bus about channels nearby. `DaemonAPI` checks the form of the arguments, counts callers, and
/// makes one request for all of them. Channels are identified by the ids of the last `DaemonAPI.update(nearby:)`, or of
/// one a moment before.
public protocol NearbyControls: Actor {
    /// Starts browsing for the first caller, or stops it after the last one. Report the channels with
    /// `DaemonAPI.update(nearby:)`.
    func setBrowsing(_ isOn: Bool) async

    /// Creates a channel that this machine hosts, announces it and makes it the active one.
    ///
    /// - Parameters:
    ///   - name: Nil: made from the machine's name.
    ///   - admission: How somebody gets in.
    /// - Returns: The channel's UUID.
    func createChannel(
        _ name: String?, admission: NearbyAdmission, by caller: BusCaller
    ) async throws(PTChannelError) -> UUID

    /// Makes a channel nearby the active one. That takes up to `PTTBusLimits.nearbyJoinTime` when its creator is asked.
    ///
    /// - Parameter code: Of a locked channel; nil: none.
    /// - Returns: The channel's UUID.
    func joinChannel(_ id: String, code: String?, by caller: BusCaller) async throws(PTChannelError) -> UUID

    /// Gives up the joins of that caller that wait for a creator's answer.
    func cancelJoining(by caller: BusCaller) async

    /// Admits a newcomer to a channel of this machine, or refuses it.
    ///
    /// - Parameter id: `NearbyNewcomerDescription.id`.
    func decide(_ isAdmitted: Bool, about id: String, by caller: BusCaller) async throws(PTChannelError)

    /// Ends a channel that this machine hosts.
    func deleteChannel(_ id: String, by caller: BusCaller) async throws(PTChannelError)
}
