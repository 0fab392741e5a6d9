// What is spoken to a person who looks at no screen.

import FoundationEssentials
import PushToTalkCore
import SpokenPrompts
import Vocabulary

extension ChannelService {
    /// Has the changes of the channel and of its connection spoken, and what `say` is given; nil: nothing.
    public func setPrompts(_ settings: PromptSettings?) {
        setPrompts(settings) { $0.makeVoice(on: loop) }
        if let problem = settings?.program.problem { prompts?.failed("\(problem)") }
    }

    /// - Parameter voice: Makes the voice that speaks.
    func setPrompts(_ settings: PromptSettings?, voice: (PromptSettings) -> any PromptVoice) {
        prompts?.close()
        prompts = nil
        guard let settings, !isClosed else { return }
        prompts = ChannelPrompts(settings, voice: voice(settings), audio: audio, loop: loop, logger: logger)
        connectAudio()
        followPrompts()
    }

    /// Says this as soon as nobody talks; unless prompts are spoken, nothing.
    public func say(_ prompt: SpokenPrompt) {
        guard !isClosed else { return }
        prompts?.handle(.wanted(prompt))
    }

    /// Brings prompts in line with what goes on: called after everything that happens.
    func followPrompts() {
        guard let prompts else { return }
        prompts.look(
            at: ChannelPrompts.State(
                isBusy: isBusy, channel: machine.channel?.uuid, channelName: machine.channel?.descriptor.name ?? "",
                talker: machine.activeRemoteParticipant?.name))
    }

    /// Whether somebody talks or waits to, a tone sounds, a call has the audio, or a program has the devices. Each tone has an audio
    /// session, which ends with it.
    private var isBusy: Bool {
        machine.audioSession != .inactive || machine.transmission != nil || machine.waiting != nil
            || machine.isCapturing || machine.activeRemoteParticipant != nil || !listening.participants.isEmpty
            || machine.isCallActive || machine.isInterrupted || machine.channel?.media == .application
    }
}

extension SpokenPrompt {
    /// What is said after a tone, which has told the same to those who know it; nil: the tone is enough.
    init?(after tone: Tone) {
        switch tone {
        case .linkLost: self = .connectionLost
        case .linkBack: self = .connectedAgain
        default: return nil
        }
    }
}
