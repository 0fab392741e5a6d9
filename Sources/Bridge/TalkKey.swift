// Who holds the talk key: accessories, callers on the bus, the desktop, the channel's program. Pure.
import MonotonicTime

/// The one talk key of the machine, pressed by any number of holders at once.
///
/// The first holder begins the transmission and the last one to let go ends it (invariant I3). When a transmission ends by
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

    /// What a change of the key asks for.
    public enum Change: Equatable, Sendable {
        /// The first holder pressed: begin.
        case begin
        /// The last holder let go: stop.
        case stop
        /// Somebody else holds it as well: nothing to do.
        case none
    }

    /// The most callers that may hold at once; further ones are refused.
    public static let holderLimit = 64

    /// Those who hold the key and count.
    public private(set) var holders: Set<Holder> = []
    /// Those whose press was used up by a transmission that has ended.
    private var spent: Set<Holder> = []

    /// A key that nobody holds.
    public init() {}

    /// Whether anybody's press counts.
    public var isHeld: Bool { !holders.isEmpty }

    /// `holder` presses. A second press without a release is not an edge.
    public mutating func press(_ holder: Holder) -> Change {
        guard !spent.contains(holder), !holders.contains(holder), holders.count < Self.holderLimit else { return .none }
        holders.insert(holder)
        return holders.count == 1 ? .begin : .none
    }

    /// `holder` lets go, or is gone.
    public mutating func release(_ holder: Holder) -> Change {
        if seededFault("the-talk-key-is-not-released") { return .none }
        spent.remove(holder)
        if seededFault("one-release-ends-all-presses") { holders = [holder] }
        guard holders.remove(holder) != nil else { return .none }
        return holders.isEmpty ? .stop : .none
    }

    /// The transmission ended, or never began, without a release: every press so far is used up.
    ///
    /// Only callers have to release first. Accessories are informed and report only their next new press. A request of
    /// a program or a click is always new.
    public mutating func transmissionEnded() {
        if seededFault("a-used-up-press-counts") { return }
        for case .caller(let caller) in holders { spent.insert(.caller(caller)) }
        holders.removeAll()
    }

    /// Whether `holder` presses, counted or used up.
    public func isPressed(by holder: Holder) -> Bool {
        holders.contains(holder) || spent.contains(holder)
    }
}
