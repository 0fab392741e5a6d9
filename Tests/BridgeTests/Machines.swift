// The state machines of the module, as most of their tests use them.
import Bridge
import MonotonicTime

extension ChannelDirectorStateMachine {
    /// A director with one configured channel, or none.
    init(
        configured: ChannelMembership?, policy: JoinPolicy = JoinPolicy(), relayCarriesPushes: Bool = true,
        isOpen: Bool = true
    ) {
        self.init(
            channels: configured.map { [$0] } ?? [], policy: policy, relayCarriesPushes: relayCarriesPushes,
            isOpen: isOpen)
    }
}

extension BridgeStateMachine {
    /// For rules that time has no part in.
    mutating func handle(_ event: Event) -> [Action] { handle(event, at: .zero) }
}

extension BridgeStateMachine.Action {
    /// The begin of an ordinary burst.
    static var beginBurst: Self { .beginBurst(priority: 0) }
}
