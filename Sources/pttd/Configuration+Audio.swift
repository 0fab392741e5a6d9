// The table [audio] of pttd.toml: microphone, speaker and spoken prompts.
import Audio
import ChannelService
import Headsets
import Settings
import SpokenPrompts

extension Configuration {
    mutating func readAudio(_ audio: SettingsTable) {
        sound.fallbackMicrophone = audio.optional("fallback-microphone", Self.device)
        sound.fallbackSpeaker = audio.optional("fallback-speaker", Self.device)
        switch audio.optional("microphone", Self.choice) {
        case .device(let device): (sound.microphone, followsMicrophone) = (device, false)
        case .accessory:
            // What stands in for a worn device is the configured one.
            sound.microphone = sound.fallbackMicrophone ?? sound.microphone
            sound.fallbackMicrophone = nil
        case nil: break
        }
        switch audio.optional("speaker", Self.choice) {
        case .device(let device): (sound.speaker, followsSpeaker) = (device, false)
        case .accessory:
            sound.speaker = sound.fallbackSpeaker ?? sound.speaker
            sound.fallbackSpeaker = nil
        case nil: break
        }
        bluetoothLink = audio.value(
            "bluetooth-link", .oneOf([("on-press", .onPress), ("kept", .kept)]), default: bluetoothLink)
        sound.capture.isWatched = audio.value("microphone-watch", .boolean, default: true)
        sound.capture.microphoneStart = audio.value("microphone-start", Self.microphoneStart, default: .automatic)
        sound.capture.gain = audio.value("gain", Self.gain, default: .automatic)
        sound.capture.suppressesNoise = audio.value("noise-suppression", .boolean, default: false)
        sound.cancelsEcho = audio.value("echo-cancellation", .boolean, default: false)
        sound.tail = audio.value("release-tail", .duration(in: .zero ... .seconds(2)), default: sound.tail)
        sound.playsTones = audio.value("tones", .boolean, default: true)
        readPrompts(audio)
    }

    /// A device by name, or whatever the person wears.
    private enum Choice {
        case accessory
        case device(AudioDevice)
    }

    private static var choice: SettingType<Choice> {
        SettingType<String>.string(lengthMax: 1_024)
            .map(placeholder: Choice.accessory) { text throws(SettingRefusal) in
                text == "accessory" ? .accessory : .device(try device(text))
            }
    }

    private static var device: SettingType<AudioDevice> {
        SettingType<String>.string(lengthMax: 1_024)
            .map(placeholder: AudioDevice.alsa("default")) { text throws(SettingRefusal) in try device(text) }
    }

    private static func device(_ text: String) throws(SettingRefusal) -> AudioDevice {
        do {
            return try AudioDevice(text)
        } catch {
            throw SettingRefusal(
                "\(error)", "write an ALSA name such as \"default\" or \"plughw:Headset\", or \"wav:/path\"")
        }
    }

    private static var microphoneStart: SettingType<MicrophoneStart> {
        .text(
            lengthMax: 16, placeholder: .automatic, isNot: "a way to start the microphone",
            "write \"auto\", \"at-once\" or \"when-heard\""
        ) { MicrophoneStart(rawValue: $0) }
    }

    /// A text rather than a number, so that the unit is with it: `"6 dB"`.
    private static var gain: SettingType<MicrophoneGain> {
        .text(
            lengthMax: 16, placeholder: .automatic, isNot: "a gain",
            "write \"auto\", \"off\", or decibels from -20 to 30 such as \"6 dB\""
        ) { text in
            switch text {
            case "auto": return .automatic
            case "off": return .off
            default:
                let number = text.hasSuffix("dB") ? text.dropLast(2) : text[...]
                guard let decibels = Int(number.last == " " ? number.dropLast() : number),
                    MicrophoneGain.decibels.contains(decibels)
                else { return nil }
                return .fixed(decibels: Float(decibels))
            }
        }
    }

    // MARK: Spoken prompts

    private mutating func readPrompts(_ audio: SettingsTable) {
        let program: PromptProgram? = audio.optional("voice", .oneOf)
        let language = audio.optional("voice-language", Self.language)
        let announcesTalker = audio.optional("announce-talker", .boolean)
        guard let program else {
            if language != nil { refuse("voice-language", in: audio) }
            if announcesTalker == true { refuse("announce-talker", in: audio) }
            return
        }
        prompts = PromptSettings(
            program: program, language: language ?? PromptLanguage(environment: Self.environment),
            announcesTalker: announcesTalker ?? false)
    }

    private func refuse(_ key: String, in audio: SettingsTable) {
        audio.problem(
            key, "nothing is spoken without a voice",
            "add voice = \"\(PromptProgram.espeak.rawValue)\" to [audio], or remove this key")
    }

    /// What keeps prompts from being spoken, in words that say what to do.
    func promptProblems() -> [String] { prompts?.program.problem.map { ["audio.voice: \($0)"] } ?? [] }

    private static var language: SettingType<PromptLanguage> {
        let known = PromptLanguage.allCases.map { "\"\($0.rawValue)\"" }.joined(separator: ", ")
        return .text(
            lengthMax: 35, placeholder: .english, isNot: "a language",
            "write one of \(known); others are spoken in English"
        ) { PromptLanguage.isTag($0) ? PromptLanguage(tag: $0) : nil }
    }
}
