// I6: the order in which a delegate is called, as docs/push-to-talk.md has it. An account of its own beside the rules'.
import PushToTalkCore

struct CallbackOrder {
    private var isJoined = false
    private var isTransmitting = false
    private var isActive = false

    /// Nil: it may come now; else what is wrong about it.
    mutating func accept(_ callback: DelegateCallback) -> String? {
        switch callback {
        case .didJoinChannel:
            if isJoined { return "while a channel is joined" }
            isJoined = true
        case .didLeaveChannel:
            if !isJoined { return "without a channel" }
            if isTransmitting { return "during a transmission" }
            if isActive { return "with an active session" }
            isJoined = false
        case .didBeginTransmitting:
            if !isJoined { return "without a channel" }
            if isTransmitting { return "during a transmission" }
            isTransmitting = true
        case .didEndTransmitting:
            if !isTransmitting { return "without a transmission" }
            isTransmitting = false
        case .didActivateAudioSession:
            if isActive { return "with an active session" }
            if !isJoined { return "without a channel" }
            isActive = true
        case .didDeactivateAudioSession:
            if !isActive { return "without an active session" }
            isActive = false
        default: break
        }
        return nil
    }
}
