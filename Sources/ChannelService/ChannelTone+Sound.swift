// How the channel manager's tones sound.

import Audio
import PushToTalkCore

extension Tone {
    /// The highest position that is counted; what is beyond sounds like it.
    static let positionMax = 19

    /// The sounds of a tone of the channel manager, one after the other.
    static func sounds(of tone: ChannelTone) -> [Tone] {
        switch tone {
        case .microphoneOn: [.micOn]
        case .microphoneOff: [.micOff]
        case .waiting: [.wait]
        case .denied: [.deny]
        case .talkTimeWarning: [.warning]
        case .deviceFailed: [.fault]
        case .channel(let position): counting(min(max(1, position), positionMax))
        }
    }

    /// A long sound for each five, and a short one for each of the rest.
    private static func counting(_ number: Int) -> [Tone] {
        Array(repeating: .countFive, count: number / 5) + Array(repeating: .count, count: number % 5)
    }
}
