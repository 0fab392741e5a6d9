// Adds and removes members and channels while a relay runs.
import Reactor
import RelayProtocol

extension RelayServer {
    /// Answers `RelayServerConfiguration.enrol`. Answers and removals take effect in the order of the calls.
    public nonisolated func enrolled(
        _ connection: ConnectionID, _ enrolment: RelayEnrolment, _ verdict: RelayEnrolmentVerdict
    ) {
        loop.execute { [weak self] in
            self?.assumeIsolated { $0.engine?.handle(.enrolled(connection, enrolment, verdict)) }
        }
    }

    /// Removes a member from a channel: its connections are closed and the media key is renewed before this returns.
    public func revoke(_ member: MemberID, from channel: ChannelID) {
        engine?.handle(.revoke(member, from: channel))
    }

    /// The same for several at once, with one new media key.
    public func revoke(_ members: [MemberID], from channel: ChannelID) {
        engine?.handle(.revokeAll(members, from: channel))
    }

    /// Lets a member that was removed come again.
    public func readmit(_ member: MemberID, to channel: ChannelID, as membership: RelayMembership) {
        engine?.handle(.readmit(member, to: channel, as: membership))
    }

    /// Keeps other bursts of a channel from now on; members read it when they join again.
    ///
    /// - Returns: Whether that is something else than before; `nil`: it does not run, or has no such channel.
    @discardableResult
    public func setRetention(_ retention: BurstRetention, of channel: ChannelID) -> Bool? {
        guard let engine, let known = engine.core.channelConfigurations.first(where: { $0.id == channel }) else {
            return nil
        }
        guard known.retention != retention else { return false }
        engine.handle(.setRetention(retention, of: channel))
        return true
    }

    /// Serves one more channel, or one that nobody has joined with another configuration.
    ///
    /// - Returns: Whether it is served so; false at the limit of channels, or when members are on it.
    public func serve(_ channel: RelayChannelConfiguration) -> Bool { engine?.core.serve(channel) ?? false }

    /// Changes a channel's rules as soon as nobody talks on it, and informs its members.
    ///
    /// - Returns: Whether the rules differ from the previous ones; nil when the channel is not served.
    public func setRules(_ rules: FloorRules, of channel: ChannelID) -> Bool? {
        guard let engine, let number = engine.core.channelNumbers[channel] else { return nil }
        let isNew = engine.core.channels[number].configuration.rules != rules
        engine.handle(.setRules(rules, of: channel))
        return isNew
    }

    /// Lets a newcomer into a channel whose creator is asked (`RelayMilestone.joinPending`), or not. Nothing happens when it waits no
    /// more.
    public func admit(_ isAdmitted: Bool, _ member: MemberID, to channel: ChannelID) {
        engine?.handle(.admit(isAdmitted, member, to: channel))
    }

    /// Deletes a channel: its members get `phrase` and do not reconnect, and its invitation is no longer given out.
    public func end(_ channel: ChannelID, _ phrase: String) { engine?.handle(.end(channel, phrase)) }

    /// The members that are connected to `channel`, by the names that they have now; nil when it is not served.
    public func connectedMembers(of channel: ChannelID) -> [MemberID: DisplayName]? {
        engine?.core.connectedMembers(of: channel)
    }
}
