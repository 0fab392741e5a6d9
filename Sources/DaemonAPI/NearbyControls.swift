// What the bus can ask about channels nearby: the seam between serving them and the rules behind it.
import FoundationEssentials
import PTTBus
import PushToTalkCore

/// What the bus can ask about channels nearby. `DaemonAPI` has checked the arguments' form, counts callers, and asks once for all of them;
/// channels are named by the ids that `DaemonAPI.update(nearby:)` told last, or did a moment ago.
public protocol NearbyControls: Actor {
    /// The first caller browses, or the last one does not any more. What is found is told by `DaemonAPI.update(nearby:)`.
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

    /// Lets a newcomer into a channel of this machine, or does not.
    ///
    /// - Parameter id: `NearbyNewcomerDescription.id`.
    func decide(_ isAdmitted: Bool, about id: String, by caller: BusCaller) async throws(PTChannelError)

    /// Ends a channel that this machine hosts.
    func deleteChannel(_ id: String, by caller: BusCaller) async throws(PTChannelError)
}
