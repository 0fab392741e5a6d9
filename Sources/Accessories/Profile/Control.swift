// What a key of an accessory is for, and what pressing it does to a transmission.

/// A key or button of an accessory, by what it is for.
public enum Control: String, CaseIterable, Hashable, Sendable {
    /// The talk button.
    case ptt
    /// A second talk button.
    case ptt2
    /// The emergency button.
    case emergency
    /// The first free key, left on an AINA.
    case soft1
    /// The second free key, right on an AINA.
    case soft2
    /// The third free key.
    case soft3
    /// The fourth free key.
    case soft4
    /// The call or multi-function key.
    case call
    /// The group or menu key.
    case group
    /// Next channel.
    case channelUp = "channel-up"
    /// Previous channel.
    case channelDown = "channel-down"
    /// Louder.
    case volumeUp = "volume-up"
    /// Quieter.
    case volumeDown = "volume-down"
    /// The microphone's mute key.
    case mute
    /// Forward: next title, next group.
    case next
    /// Back: previous title, previous group.
    case previous
    /// Digits of a keypad.
    case digit0 = "0"
    case digit1 = "1"
    case digit2 = "2"
    case digit3 = "3"
    case digit4 = "4"
    case digit5 = "5"
    case digit6 = "6"
    case digit7 = "7"
    case digit8 = "8"
    case digit9 = "9"
    /// Letters of a keypad, as in DTMF.
    case letterA = "a"
    case letterB = "b"
    case letterC = "c"
    case letterD = "d"
    /// `*` of a keypad.
    case star
    /// `#` of a keypad.
    case pound

    /// What it does unless a profile or the configuration says otherwise.
    public var defaultAction: ControlAction {
        switch self {
        case .ptt, .ptt2: .transmit
        case .emergency: .emergency
        case .channelUp: .channelUp
        case .channelDown: .channelDown
        default: .none
        }
    }
}
