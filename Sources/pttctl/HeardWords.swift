// What a try of a microphone or a speaker found, in words. Pure.
import Audio
import MonotonicTime

/// The words of `pttctl audio test`.
enum HeardWords {
    /// What was heard, and how loud it was.
    static func text(_ levels: SoundLevels) -> String {
        switch levels.verdict {
        case .nothing, .silence: return word(levels.verdict)
        default: break
        }
        var text =
            "\(word(levels.verdict)). Level \(decibels(levels.level)), noise floor \(decibels(levels.noiseFloor))"
        text += ", peak \(decibels(levels.peak))"
        if levels.silentStart >= .milliseconds(100) {
            text += "; nothing but digital silence for the first \(tenths(levels.silentStart.milliseconds / 1_000)) s"
        }
        return text
    }

    private static func word(_ verdict: SoundVerdict) -> String {
        switch verdict {
        case .nothing: "nothing at all"
        case .silence: "only digital silence"
        case .clipped: "clipped sound: the gain is too high"
        case .speech: "speech"
        case .faintSpeech: "faint speech: speak nearer to the microphone, or raise its volume (alsamixer, pavucontrol)"
        case .shortSound: "a short sound in a quiet room, and no speech"
        case .steadySound: "a steady sound such as a fan, hum or hiss, and no speech"
        case .quietRoom: "a quiet room, and no speech"
        }
    }

    private static func decibels(_ level: Float) -> String { "\(Int(level.rounded())) dBFS" }

    /// What to do when the microphone cannot be used as it is; nil: it can.
    static func advice(_ verdict: SoundVerdict) -> String? {
        switch verdict {
        case .nothing: "it gives no samples; unplug it and plug it in again, or restart the sound server"
        case .silence:
            "it gives only digital silence: it is muted, or its Bluetooth link is not up; check the switch on the device, the volume "
                + "(alsamixer, pavucontrol), and whether the headset is connected"
        case .clipped: "it is clipped: lower its volume (alsamixer, pavucontrol) until the level stays below -6 dBFS"
        default: nil
        }
    }

    /// What a device did.
    static func text(_ report: SoundDeviceReport) -> String {
        var parts: [String] = []
        if let form = report.form {
            parts = ["\(form.rate) Hz", form.channels == 1 ? "1 channel" : "\(form.channels) channels"]
        }
        parts.append("first sample after \(Int(report.firstSample.milliseconds.rounded())) ms")
        if report.interruptions > 0 {
            parts.append(report.interruptions == 1 ? "1 interruption" : "\(report.interruptions) interruptions")
        }
        return parts.joined(separator: ", ")
    }

    /// Why a device cannot be used, and what to do.
    static func text(_ error: AudioError, holders: [SoundHolder]) -> String {
        guard case .deviceBusy(let device, _) = error, let daemon = holders.first(where: { $0.program == "pttd" })
        else { return "\(error)" }
        // A user's own daemon runs as that user, the system's as a user of its own.
        let isUsers = (daemon.user ?? 0) >= 1_000
        let stop = isUsers ? "systemctl --user stop pttd" : "sudo systemctl stop pttd"
        return
            "\(device) is held by pttd itself (process \(daemon.process)); 'pttctl status' shows what it does. To test the device, stop "
            + "pttd for so long: \(stop), and afterwards \(stop.replacing("stop", with: "start"))"
    }
}
