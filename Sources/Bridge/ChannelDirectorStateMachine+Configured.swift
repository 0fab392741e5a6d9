// Several configured channels: one of them is active, and a control, a command or a user changes it. Pure.
import FoundationEssentials
import MonotonicTime
import PushToTalkCore

/// Which of the configured channels somebody wants.
public enum ChannelStep: Hashable, Sendable {
    /// The next one; after the last comes the first.
    case up
    /// The one before; before the first comes the last.
    case down
    /// The one that is shown by this name.
    case name(String)
}

/// Changes in quick succession, as from a channel knob.
///
/// The first change is carried out at once. Those that follow within `pause` are carried out as one change after a
/// pause of that length, so that no connection is made to the relay of a channel that is passed over. The channel is
/// announced only then.
struct ChannelChanges: Hashable, Sendable {
    /// Presses closer than this to each other belong together.
    static let pause = Duration.milliseconds(400)

    /// The channel to be on when nobody presses any more; nil: the chosen one.
    private(set) var wanted: Int?
    /// When nobody has pressed for long enough; nil: nobody did.
    private(set) var nextDeadline: Instant?

    /// Notes a press at `now` for the channel `index`.
    ///
    /// - Returns: Whether it is carried out at once.
    mutating func pressed(_ index: Int, at now: Instant) -> Bool {
        let isFirst = nextDeadline == nil
        wanted = isFirst ? nil : index
        nextDeadline = now + Self.pause
        return isFirst
    }

    /// The change is carried out at once and announced at the next deadline.
    mutating func changed(at now: Instant) {
        wanted = nil
        nextDeadline = now
    }

    /// Nothing of it counts any more: another channel was joined, or this one left.
    mutating func drop() { self = ChannelChanges() }

    /// Nobody has pressed for long enough by `now`.
    ///
    /// - Returns: The presses; nil when it is not time yet, or there were none.
    mutating func settle(at now: Instant) -> ChannelChanges? {
        guard let nextDeadline, nextDeadline <= now else { return nil }
        defer { drop() }
        return self
    }
}

extension ChannelDirectorStateMachine {
    /// The most channels that can be configured.
    public static let channelsMax = 16

    /// The configured channel to be on unless something else is.
    public var configured: ChannelMembership? { channels.isEmpty ? nil : channels[chosen] }

    /// The names of the configured channels, in their order.
    public var channelNames: [String] { channels.map(\.descriptor.name) }

    /// The configured channel with this UUID.
    func configured(_ uuid: UUID) -> ChannelMembership? { channels.first { $0.uuid == uuid } }

    mutating func change(_ step: ChannelStep, isPress: Bool, at now: Instant) {
        let index: Int
        do throws(PTChannelError) {
            index = try target(of: step)
        } catch {
            actions.append(.refuse(error))
            return
        }
        if isPress {
            if changes.pressed(index, at: now) { move(to: index) }
        } else {
            move(to: index)
            changes.changed(at: now)
            settleChanges(at: now)
        }
    }

    mutating func settleChanges(at now: Instant) {
        guard let settled = changes.settle(at: now) else { return }
        if let index = settled.wanted { move(to: index) }
        guard let active, active.isConfigured else { return }
        actions.append(.announce(position: chosen + 1, name: active.descriptor.name))
    }

    /// The configured channel that becomes the active one is the chosen one from now on.
    mutating func choose(_ uuid: UUID) {
        guard let index = channels.firstIndex(where: { $0.uuid == uuid }), index != chosen else { return }
        chosen = index
        actions.append(.choose(uuid))
    }

    private func target(of step: ChannelStep) throws(PTChannelError) -> Int {
        guard isOpen else {
            throw PTChannelError(
                .screenTimeRestriction, explanation: "push to talk is disabled at this hour ([policy] in pttd.toml)")
        }
        if let active, !active.isConfigured {
            let whose = active.owner == nil ? "a user" : "a program"
            throw PTChannelError(
                .channelLimitReached,
                explanation:
                    "the channel '\(active.descriptor.name)', which \(whose) joined, is active; leave it first ('pttctl leave')"
            )
        }
        if case .name(let name) = step {
            if let index = channels.firstIndex(where: { $0.descriptor.name == name }) { return index }
            let known = channelNames.map { "'\($0)'" }.joined(separator: ", ")
            throw PTChannelError(
                .channelNotFound,
                explanation: "no channel '\(name)' is configured; \(known.isEmpty ? "none is" : "there are \(known)")")
        }
        guard channels.count > 1 else {
            throw PTChannelError(
                .channelNotFound,
                explanation: "no other channel is configured; write a [[channel]] table for each channel in pttd.toml")
        }
        let from = changes.wanted ?? chosen
        return (from + (step == .up ? 1 : channels.count - 1)) % channels.count
    }

    /// What is transmitted there ends before the channel is left.
    private mutating func move(to index: Int) {
        let target = channels[index]
        wantsConfigured = true
        guard active?.uuid != target.uuid else { return choose(target.uuid) }
        if let active { actions.append(.close(active.uuid, .userRequest)) }
        active = target
        actions.append(.open(target, .developerRequest))
        choose(target.uuid)
    }
}
