// How the channel manager's tones sound.

import Audio
import PushToTalkCore

extension Tone {
    /// How a tone of the channel manager sounds.
    init(_ tone: ChannelTone) {
        switch tone {
        case .microphoneOn: self = .micOn
        case .microphoneOff: self = .micOff
        case .denied: self = .deny
        case .talkTimeWarning: self = .warning
        }
    }
}
