// The table [audio] of pttd.toml: microphone and speaker.
import Audio
import ChannelService
import Headsets
import Settings

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
        SettingType<String>.string(lengthMax: 16)
            .map(placeholder: .automatic) { text throws(SettingRefusal) in
                guard let start = MicrophoneStart(rawValue: text) else {
                    throw SettingRefusal(
                        "\"\(text)\" is not a way to start the microphone",
                        "write \"auto\", \"at-once\" or \"when-heard\"")
                }
                return start
            }
    }

    /// A text rather than a number, so that the unit is with it: `"6 dB"`.
    private static var gain: SettingType<MicrophoneGain> {
        SettingType<String>.string(lengthMax: 16)
            .map(placeholder: .automatic) { text throws(SettingRefusal) in
                switch text {
                case "auto": return .automatic
                case "off": return .off
                default:
                    let number = text.hasSuffix("dB") ? text.dropLast(2) : text[...]
                    let digits = number.last == " " ? number.dropLast() : number
                    guard let decibels = Int(digits), MicrophoneGain.decibels.contains(decibels) else {
                        throw SettingRefusal(
                            "\"\(text)\" is not a gain",
                            "write \"auto\", \"off\", or decibels from -20 to 30 such as \"6 dB\"")
                    }
                    return .fixed(decibels: Float(decibels))
                }
            }
    }
}
