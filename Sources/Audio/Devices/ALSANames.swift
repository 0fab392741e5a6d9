// The PCM names that ALSA knows, for the error message of a name that it does not.
import CALSA
import Glibc

enum ALSANames {
    /// Maximum number of names in the message.
    static let countMax = 32

    private static let converters: Set = ["lavrate", "samplerate", "speexrate", "speex", "upmix", "vdownmix"]

    /// The names of ALSA's hints (`aplay -L`), each once, in ALSA's order. Empty when ALSA has no configuration.
    static func all() -> [String] {
        var hints: UnsafeMutablePointer<UnsafeMutableRawPointer?>?
        guard snd_device_name_hint(-1, "pcm", &hints) == 0, let hints else { return [] }
        defer { snd_device_name_free_hint(hints) }
        var names: [String] = []
        var index = 0
        while names.count < countMax, let hint = hints[index] {
            index += 1
            guard let text = snd_device_name_get_hint(hint, "NAME") else { continue }
            defer { free(text) }
            let name = String(cString: text)
            // Rate converters and mixers need a device of their own behind them: no use to who looks for one.
            if converters.contains(name) { continue }
            if !names.contains(name) { names.append(name) }
        }
        return names
    }
}
