// The PCM names that ALSA knows, for the list of devices.
import CALSA
import Glibc

/// A name that ALSA's configuration offers, with what it says of it.
struct ALSAHint: Equatable {
    var name: String
    /// What it is, for people, in lines; empty when ALSA does not say.
    var description = ""
    var isMicrophone = true
    var isSpeaker = true
}

enum ALSANames {
    /// Maximum number of names that are looked at.
    static let hintsMax = 512

    private static let converters: Set = ["lavrate", "samplerate", "speexrate", "speex", "upmix", "vdownmix"]

    /// ALSA's hints (`aplay -L`), each name once, in ALSA's order. Empty when ALSA has no configuration. It reads files, for tens of
    /// milliseconds.
    static func hints() -> [ALSAHint] {
        var list: UnsafeMutablePointer<UnsafeMutableRawPointer?>?
        guard snd_device_name_hint(-1, "pcm", &list) == 0, let list else { return [] }
        defer { snd_device_name_free_hint(list) }
        var found: [ALSAHint] = []
        var index = 0
        while index < hintsMax, let hint = list[index] {
            index += 1
            guard let name = text("NAME", of: hint) else { continue }
            // Rate converters and mixers need a device of their own behind them: no use to who looks for one.
            if converters.contains(name) || found.contains(where: { $0.name == name }) { continue }
            // Without a direction it has both.
            let direction = text("IOID", of: hint)
            found.append(
                ALSAHint(
                    name: name, description: text("DESC", of: hint) ?? "", isMicrophone: direction != "Output",
                    isSpeaker: direction != "Input"))
        }
        return found
    }

    private static func text(_ key: String, of hint: UnsafeMutableRawPointer) -> String? {
        guard let text = snd_device_name_get_hint(hint, key) else { return nil }
        defer { free(text) }
        return String(cString: text)
    }
}
