// In which order a press of an accessory's talk control, and its end, are told to those that follow it.
import Accessories

/// Those that follow whether an accessory's talk control is held. On the loop.
struct PressFollowers: Sendable {
    /// What a press needs beside the channel: the worn headset, and the radio for itself.
    let began: @Sendable (AccessorySource) -> Void
    /// The channel. It may refuse a begin at once: then it ends by `endedBySystem`, before this returns.
    let channel: @Sendable (AccessoryIntent) -> Void
    /// No press counts any more.
    let ended: @Sendable () -> Void

    /// The accessories begin or end, or become urgent.
    func wants(_ intent: AccessoryIntent) {
        if case .transmitBegan(let source, _) = intent { began(source) }
        channel(intent)
        if intent.isEnd { ended() }
    }

    /// What is held is used up. The accessories tell no end of it.
    func endedBySystem() { ended() }
}
