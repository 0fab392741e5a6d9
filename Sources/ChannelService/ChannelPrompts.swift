// Carries out what `SpokenPromptsStateMachine` decides: a program speaks, and the audio session plays its sound.

import Audio
import FoundationEssentials
import Logging
import MonotonicTime
import Reactor
import SpokenPrompts

/// The spoken prompts of the channel service. Confined to its loop; holds no rules.
final class ChannelPrompts {
    /// What prompts depend on.
    struct State: Hashable {
        var isBusy: Bool
        var channel: UUID?
        var channelName: String
        var talker: String?
    }

    private let settings: PromptSettings
    let voice: any PromptVoice
    private let audio: any AudioSession
    private let loop: EventLoop
    private let logger: Logger
    private var machine: SpokenPromptsStateMachine
    private var news: ChannelNews<UUID>
    private var state: State?
    private var timer: EventLoop.Timer?
    /// What is said: the number of a prompt whose program or sound has not ended.
    private var saying: UInt32?
    /// The failure that was logged; the same one is not logged again until a prompt was said.
    private var failure: String?

    init(
        _ settings: PromptSettings, voice: any PromptVoice, audio: any AudioSession, loop: EventLoop, logger: Logger
    ) {
        (self.settings, self.voice, self.audio, self.loop, self.logger) = (settings, voice, audio, loop, logger)
        machine = SpokenPromptsStateMachine(isBusy: true, at: .now)
        news = ChannelNews(announcesTalker: settings.announcesTalker)
    }

    /// Something that prompts depend on may be different.
    func look(at state: State) {
        // Each packet of speech comes here.
        guard state != self.state else { return }
        self.state = state
        handle(.busy(state.isBusy))
        if let prompt = news.channel(state.channel, name: state.channelName) { handle(.wanted(prompt)) }
        if let prompt = news.talker(state.talker, at: .now) { handle(.wanted(prompt)) }
    }

    func handle(_ event: SpokenPromptsStateMachine.Event) {
        for action in machine.handle(event, at: .now) {
            switch action {
            case .say(let prompt, let number): say(prompt, number)
            case .stop: stop()
            }
        }
        schedule()
    }

    /// Says nothing any more.
    func close() {
        timer?.cancel()
        stop()
    }

    private func schedule() {
        timer?.cancel()
        timer = machine.nextDeadline.map { deadline in
            loop.schedule(at: deadline) { [weak self] in self?.handle(.deadlineReached) }
        }
    }

    private func stop() {
        saying = nil
        voice.stop()
        audio.stopPrompt()
    }

    private func say(_ prompt: SpokenPrompt, _ number: UInt32) {
        saying = number
        guard let text = prompt.text(in: settings.language) else {
            loop.schedule(at: .now) { [weak self] in self?.handle(.ended(number)) }
            return
        }
        logger.debug("prompt", metadata: ["text": "\(text)"])
        voice.say(text, settings.language) { [weak self] outcome in
            guard let self, saying == number else { return }
            spoken(outcome, number)
        }
    }

    private func spoken(_ outcome: PromptOutcome, _ number: UInt32) {
        switch outcome {
        case .heard: failure = nil
        case .failed(let failure): failed("\(failure)")
        case .sound(let bytes):
            do throws(PromptSoundError) {
                let sound = try PromptSound(wav: bytes)
                failure = nil
                // Its end follows. The audio session tells why it does not play.
                guard !audio.play(sound, number: number) else {
                    return handle(.sounds(number, for: sound.length))
                }
            } catch {
                failed("\(settings.program.rawValue): \(error)")
            }
        }
        handle(.ended(number))
    }

    /// Prompts are not heard, for this reason; logged once.
    func failed(_ reason: String) {
        guard failure != reason else { return }
        failure = reason
        logger.warning("prompts are not spoken: \(reason)")
    }
}
