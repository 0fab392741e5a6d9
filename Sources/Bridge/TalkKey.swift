// Who holds the talk key: accessories, callers on the bus, the desktop, the channel's program. Pure.
import Accessories
import MonotonicTime

/// The one talk key of the machine, pressed by any number of holders at once.
///
/// `HeldSources` has the rule for the transmission (invariant I3); this is the rule for what a transmission uses up. When a transmission ends by
/// itself (limit, refusal, lost relay), everyone who still holds has to let go and press again: a finger that never moved must not
/// start the next burst.
public struct TalkKey: Sendable {
    /// Who may hold the key.
    public enum Holder: Hashable, Sendable {
        /// A talk control of an accessory. The accessories' own controls are OR-ed before they come here.
        case accessories
        /// A caller on the bus, by its unique name.
        case caller(String)
        /// The system's own user interface: the tray icon's menu, a notification's button.
        case userInterface
        /// The program behind the channel, by its unique name: not a press, but its request to transmit.
        case program(String)
    }

    /// The most callers that may hold at once; further ones are refused.
    public static let holderLimit = 64

    private var held = HeldSources<Holder>()
    /// Those whose press was used up by a transmission that has ended.
    private var spent: Set<Holder> = []

    /// A key that nobody holds.
    public init() {}

    /// Those who hold the key and count.
    public var holders: Set<Holder> { held.sources }

    /// Whether anybody's press counts.
    public var isHeld: Bool { !held.isEmpty }

    /// An emergency control is, or was, among those who hold the key.
    public var isUrgent: Bool { held.isUrgent }

    /// `holder` presses. A second press without a release is no edge, but may be more urgent. Nil when that changes nothing.
    public mutating func press(_ holder: Holder, _ urgency: TransmitUrgency = .normal) -> HeldSources<Holder>.Change? {
        guard !spent.contains(holder), holders.contains(holder) || holders.count < Self.holderLimit else { return nil }
        return held.begin(holder, urgency)
    }

    /// `holder` lets go, or is gone. Nil while others hold, or when it did not.
    public mutating func release(_ holder: Holder) -> HeldSources<Holder>.Change? {
        spent.remove(holder)
        return held.end(holder)
    }

    /// The transmission ended, or never began, without a release: every press so far is used up.
    ///
    /// Only callers have to release first. Accessories are informed and report only their next new press. A request of
    /// a program or a click is always new.
    ///
    /// - Parameter emergency: An emergency control of an accessory is held, and goes on counting.
    public mutating func transmissionEnded(keepingEmergency emergency: Bool = false) {
        if seededFault("a-used-up-press-counts") { return }
        for case .caller(let caller) in holders { spent.insert(.caller(caller)) }
        held = HeldSources()
        if emergency { _ = held.begin(.accessories, .emergency) }
    }

    /// Whether `holder` presses, counted or used up.
    public func isPressed(by holder: Holder) -> Bool {
        holders.contains(holder) || spent.contains(holder)
    }
}
