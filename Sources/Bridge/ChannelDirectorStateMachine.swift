// Decides which channel is active on the device, and which program is behind it. Pure.
import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import RelayProtocol

/// The rules of "one active channel for the device": the configured channel yields to a join and returns afterwards, a
/// channel survives the death of its program and of the daemon, and a program is started when it is needed. Which of several
/// configured channels is the one is changed by a control or a command (`ChannelDirectorStateMachine+Configured.swift`).
///
/// Events go in, actions come out, to be carried out in order before the next event. When `nextDeadline` has come, it
/// wants `Event.deadlineReached`.
public struct ChannelDirectorStateMachine: Sendable {
    /// How long a channel waits for a program that is gone and cannot be started. One that only such a program could
    /// serve is given up then.
    public static let orphanLimit = Duration.seconds(10)
    /// The most programs that are registered at the same time.
    public static let programsMax = 64

    /// Something that happened.
    public enum Event: Hashable, Sendable {
        /// The daemon starts; this channel was active when it ended, and this configured one was chosen last.
        case started(restoring: ChannelMembership?, chosen: UUID? = nil)
        /// Somebody wants another configured channel. Answered by `refuse`, or by what `open` comes to.
        ///
        /// - Parameter isPress: A control was pressed, perhaps several times in a row: only the last one of them counts.
        case change(ChannelStep, isPress: Bool)
        /// Somebody wants a channel to be the active one. Answered by `refuse`, or by what `open` comes to.
        case join(ChannelJoin)
        /// Somebody wants it left. Answered by `refuse`, or by what `close` comes to.
        case leave(UUID, caller: String)
        /// The channel manager has left the channel by itself (the answer to a push).
        case left(UUID)
        /// The channel's creator has deleted it.
        case ended(UUID)
        /// `Action.open` failed.
        case openFailed(UUID)
        /// A program has a channel manager from now on. Answered by `refuse` when there are too many.
        case registered(BusProgram)
        /// A program has left the bus, or has no channel manager any more.
        case gone(busName: String)
        /// The hours in which push to talk may be used began or ended.
        case hoursChanged(isOpen: Bool)
        /// The time of `nextDeadline` has come.
        case deadlineReached
    }

    /// What is to be done.
    public enum Action: Hashable, Sendable {
        /// Join it with the channel manager, and make its link.
        case open(ChannelMembership, PTChannelJoinReason)
        /// Leave it with the channel manager, for this reason, unless that has been done (nil), and close its link.
        case close(UUID, PTChannelLeaveReason?)
        /// Keep what restores the active channel; replaces what was kept before.
        case remember
        /// Nothing is to be restored any more.
        case forget
        /// Have D-Bus start the program, which registers then.
        case startProgram(name: String)
        /// The program is behind the active channel from now on: report the channel and its state to it.
        case hand(to: BusProgram)
        /// The program that stood behind the active channel is gone.
        case orphan
        /// What this caller transmits ends.
        case release(busName: String)
        /// The event cannot be granted.
        case refuse(PTChannelError)
        /// Keep this configured channel as the chosen one, over restarts.
        case choose(UUID)
        /// Tell the person, without a screen too, which configured channel is the active one now.
        ///
        /// - Parameter position: From 1, in the configuration's order.
        case announce(position: Int, name: String)
        /// The restored channel cannot be joined again.
        case restorationFailed(why: String)
    }

    /// The channels of the configuration in its order, or that of the daemon's own relay.
    public let channels: [ChannelMembership]
    /// What the administrator allows.
    public let policy: JoinPolicy
    /// The active channel; at most one.
    public internal(set) var active: ChannelMembership?
    /// Programs that have a channel manager, by unique name.
    public private(set) var programs: [String: BusProgram] = [:]

    private let relayCarriesPushes: Bool
    var isOpen: Bool
    /// The configured channel is to be there when nothing else is.
    var wantsConfigured = true
    /// Which of `channels` is the configured one now.
    var chosen = 0
    var changes = ChannelChanges()
    /// When a channel is given up that only a program which cannot be started could serve.
    var abandonedAt: Instant?
    var actions: [Action] = []

    /// A device without a channel.
    ///
    /// - Parameters:
    ///   - channels: The channels of the configuration, one of which to be on unless something else is; each has a
    ///     link.
    ///   - relayCarriesPushes: Whether pushes may come from the configured relay. Nobody sends pushes to the daemon's
    ///     own relay.
    ///   - isOpen: Whether the policy's hours allow push to talk now.
    public init(
        channels: [ChannelMembership], policy: JoinPolicy = JoinPolicy(), relayCarriesPushes: Bool = true,
        isOpen: Bool = true
    ) {
        self.relayCarriesPushes = relayCarriesPushes
        self.channels = Array(channels.prefix(Self.channelsMax))
        self.policy = policy
        self.isOpen = isOpen
    }

    /// When the machine wants `Event.deadlineReached`; nil: it waits for events only.
    public var nextDeadline: Instant? {
        guard let abandonedAt else { return changes.nextDeadline }
        return changes.nextDeadline.map { min($0, abandonedAt) } ?? abandonedAt
    }

    /// The program behind the active channel, while it is registered.
    public var owner: BusProgram? { active?.owner?.busName.flatMap { programs[$0] } }

    /// The invitation that serves a membership: its own, or the configured one. Of a channel whose media are the
    /// program's it is the way for pushes only.
    public func link(of membership: ChannelMembership) -> InvitationLink? {
        if let link = membership.link { return link }
        let isServed = !membership.hasApplicationMedia || relayCarriesPushes
        guard isServed else { return nil }
        // Pushes come by the first one's relay, whichever is chosen: a token is registered there.
        return (configured(membership.uuid) ?? (membership.hasApplicationMedia ? channels.first : nil))?.link
    }

    /// Handles an event and returns the actions to carry out, in order.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .started(let membership, let uuid):
            if let index = channels.firstIndex(where: { $0.uuid == uuid }) { chosen = index }
            start(restoring: membership, at: now)
        case .change(let step, let isPress): change(step, isPress: isPress, at: now)
        case .join(let join): self.join(join)
        case .leave(let uuid, let caller): leave(uuid, caller: caller)
        case .left(let uuid):
            if active?.uuid == uuid { end(nil) }
        case .ended(let uuid):
            // A channel of the configuration stays, and says why it cannot be used: its owner may come back with it.
            if let active, active.uuid == uuid, !active.isConfigured { end(.systemPolicy) }
        case .openFailed(let uuid): openFailed(uuid)
        case .registered(let program): register(program)
        case .gone(let busName): gone(busName, at: now)
        case .hoursChanged(let isOpen): hoursChanged(isOpen)
        case .deadlineReached:
            if let abandonedAt, abandonedAt <= now { abandon() }
            settleChanges(at: now)
        }
        defer { actions.removeAll(keepingCapacity: true) }
        return actions
    }

    // MARK: Start

    private mutating func start(restoring kept: ChannelMembership?, at now: Instant) {
        guard var membership = kept, !seededFault("nothing-is-restored") else { return returnToConfigured() }
        if let why = obstacle(to: membership) {
            actions += [.restorationFailed(why: why), .forget]
            return returnToConfigured()
        }
        membership.owner?.busName = nil
        active = membership
        actions.append(.open(membership, .channelRestoration))
        if let name = membership.owner?.name, !name.isEmpty { actions.append(.startProgram(name: name)) }
        giveUpUnlessServed(at: now)
    }

    private func obstacle(to membership: ChannelMembership) -> String? {
        guard isOpen else { return "the hours of push to talk are over" }
        if let refusal = policy.refusal(application: membership.owner?.name) { return refusal.explanation }
        guard membership.hasApplicationMedia || link(of: membership) != nil else {
            return "its invitation is no longer known"
        }
        return nil
    }

    private mutating func returnToConfigured() {
        if seededFault("the-configured-channel-does-not-return"), !actions.isEmpty { return }
        guard active == nil, isOpen, wantsConfigured, let configured else { return }
        active = configured
        actions.append(.open(configured, .developerRequest))
    }

    // MARK: Join and leave

    private mutating func join(_ join: ChannelJoin) {
        let membership: ChannelMembership
        do throws(PTChannelError) {
            membership = try admit(join)
        } catch {
            actions.append(.refuse(error))
            return
        }
        if let active {
            let isReplaced = active.uuid == join.replacing
            actions.append(.close(active.uuid, isReplaced ? leaveReason(of: join.caller) : .systemPolicy))
        }
        abandonedAt = nil
        wantsConfigured = wantsConfigured || membership.isConfigured
        active = membership
        actions += [.open(membership, .developerRequest), membership.isConfigured ? .forget : .remember]
        changes.drop()
        if membership.isConfigured { choose(membership.uuid) }
    }

    private func admit(_ join: ChannelJoin) throws(PTChannelError) -> ChannelMembership {
        let program = programs[join.caller]
        guard let uuid = join.uuid ?? join.link?.channel.uuid else {
            throw PTChannelError(.unknown, explanation: "name the channel by its UUID, or give its ptt:// link")
        }
        guard join.link.map({ $0.channel.uuid == uuid }) ?? true else {
            throw PTChannelError(.unknown, explanation: "the invitation is for another channel than the UUID")
        }
        guard isOpen else {
            throw PTChannelError(
                .screenTimeRestriction, explanation: "push to talk is disabled at this hour ([policy] in pttd.toml)")
        }
        let isReturn = program == nil && join.link == nil && configured(uuid) != nil
        if !isReturn, let refusal = policy.refusal(application: program?.name) { throw refusal }
        guard program == nil || join.isForeground else { throw PTChannelError(.appNotForeground) }
        try checkLimit(uuid, program, join)
        if isReturn, let configured = configured(uuid) { return configured }

        let link = join.link ?? configured(uuid)?.link
        let isApplications = join.wantsApplicationMedia ?? (link == nil)
        guard !isApplications || program != nil else {
            let explanation = "no invitation to this channel is known; give its ptt:// link"
            throw PTChannelError(.unknown, explanation: explanation)
        }
        guard isApplications || link != nil else {
            let explanation =
                "pttd carries sound only for channels that it has an invitation to; give a ptt:// link"
            throw PTChannelError(.unknown, explanation: explanation)
        }
        var descriptor = join.descriptor
        if descriptor.name.isEmpty, let link {
            descriptor = PTChannelDescriptor(name: link.channelName.text, image: descriptor.image)
        }
        return ChannelMembership(
            uuid: uuid, descriptor: descriptor,
            owner: program.map { ChannelOwner(name: $0.name, busName: $0.busName) },
            hasApplicationMedia: isApplications, link: join.link)
    }

    /// The configured channel yields, and so does the one that the join is to replace. A channel that nobody answers for is
    /// taken over by the program that joins it.
    private func checkLimit(_ uuid: UUID, _ program: BusProgram?, _ join: ChannelJoin) throws(PTChannelError) {
        guard let active else { return }
        let isSame = active.uuid == uuid && program == nil && (join.link == nil || join.link == active.link)
        if active.isConfigured, !isSame { return }
        if active.uuid != uuid, active.uuid == join.replacing { return }
        if active.uuid == uuid, active.isUnowned, program != nil { return }
        let explanation: String? =
            active.uuid == uuid
            ? "this channel is joined already; to join it by another link, leave it first ('pttctl leave')"
            : "the channel '\(active.descriptor.name)' is active; leave it first ('pttctl leave')"
        throw PTChannelError(.channelLimitReached, explanation: explanation)
    }

    private mutating func leave(_ uuid: UUID, caller: String) {
        guard let active, active.uuid == uuid else {
            actions.append(.refuse(PTChannelError(.channelNotFound)))
            return
        }
        if active.isConfigured { wantsConfigured = false }
        end(leaveReason(of: caller))
    }

    /// Why the active channel is left when that caller wants it.
    private func leaveReason(of caller: String) -> PTChannelLeaveReason {
        active?.owner?.busName == caller ? .developerRequest : .userRequest
    }

    mutating func end(_ reason: PTChannelLeaveReason?) {
        guard let ended = active else { return }
        active = nil
        abandonedAt = nil
        changes.drop()
        actions.append(.close(ended.uuid, reason))
        if !ended.isConfigured, !seededFault("a-channel-that-was-left-is-restored") { actions.append(.forget) }
        returnToConfigured()
    }

    private mutating func openFailed(_ uuid: UUID) {
        guard let failed = active, failed.uuid == uuid else { return }
        // The configured one is not tried in a loop.
        if failed.isConfigured { wantsConfigured = false }
        end(nil)
    }

    private mutating func hoursChanged(_ isOpen: Bool) {
        self.isOpen = isOpen
        if seededFault("the-hours-end-and-nothing-happens") { return }
        isOpen ? returnToConfigured() : end(.systemPolicy)
    }

    // MARK: Programs

    private mutating func register(_ program: BusProgram) {
        // The same program a second time: its earlier registration is void.
        for old in programs.values
        where old.busName == program.busName || (!program.name.isEmpty && old.name == program.name) {
            programs[old.busName] = nil
            if old.busName != program.busName { actions.append(.release(busName: old.busName)) }
        }
        guard programs.count < Self.programsMax else {
            let explanation =
                "\(Self.programsMax) programs already have a channel manager, which is the limit; end one of them"
            actions.append(.refuse(PTChannelError(.unknown, explanation: explanation)))
            return
        }
        programs[program.busName] = program
        guard let owner = active?.owner,
            [owner.busName, owner.formerBusName].contains(program.busName)
                || (!owner.name.isEmpty && owner.name == program.name)
        else { return }
        abandonedAt = nil
        active?.owner = ChannelOwner(name: program.name, busName: program.busName)
        actions.append(.hand(to: program))
        if owner.name != program.name || program.name.isEmpty { actions.append(.remember) }
    }

    private mutating func gone(_ busName: String, at now: Instant) {
        guard programs.removeValue(forKey: busName) != nil else { return }
        if seededFault("a-program-that-is-gone-talks-on") { return }
        actions.append(.release(busName: busName))
        guard active?.owner?.busName == busName else { return }
        active?.owner?.busName = nil
        actions.append(.orphan)
        giveUpUnlessServed(at: now)
    }

    private mutating func giveUpUnlessServed(at now: Instant) {
        guard let active, active.isUnowned, active.hasApplicationMedia || active.owner?.formerBusName != nil else {
            return
        }
        abandonedAt = now + Self.orphanLimit
    }

    private mutating func abandon() {
        abandonedAt = nil
        // From now on somebody else may have that name.
        active?.owner?.formerBusName = nil
        if active?.hasApplicationMedia == true { end(.systemPolicy) }
    }
}
