// PulseAudio's ALSA plug-in: which names stand for it, and how it is opened so that a stream which ran empty can go on.
import CALSA

/// What ALSA's configuration says of a name, with one setting more.
enum PulsePlugin {
    /// Whether `name` stands for the plug-in, however it is set.
    static func isMeant(by name: String) -> Bool {
        var shared: OpaquePointer?
        guard snd_config_update_ref(&shared) >= 0, let shared else { return false }
        defer { snd_config_unref(shared) }
        guard let found = plugin(name, in: shared) else { return false }
        snd_config_delete(found)
        return true
    }

    /// Opens `name` for playback if it stands for PulseAudio's plug-in (type `pulse` of alsa-plugins), with its
    /// `handle_underrun` off; nil for every other name, and where the configuration has that setting already.
    ///
    /// With it on, which is the default, the plug-in reports that the server's queue is empty, and only a new stream
    /// helps, which costs tens of milliseconds while the device renders ahead. With it off the server continues to play
    /// with the next block.
    static func openPlayback(_ name: String) -> OpaquePointer? {
        var shared: OpaquePointer?
        guard snd_config_update_ref(&shared) >= 0, let shared else { return nil }
        defer { snd_config_unref(shared) }
        // A configuration of its own, with nothing but this PCM: the shared one is not to be changed.
        var root: OpaquePointer?
        var pcms: OpaquePointer?
        guard snd_config_top(&root) >= 0, let root else { return nil }
        defer { snd_config_delete(root) }
        guard snd_config_make_compound(&pcms, "pcm", 0) >= 0, let pcms, add(pcms, to: root),
            let definition = definition(of: name, in: shared), add(definition, to: pcms)
        else { return nil }
        var opened: OpaquePointer?
        let result = snd_pcm_open_lconf(&opened, Self.ownName, SND_PCM_STREAM_PLAYBACK, SND_PCM_NONBLOCK, root)
        return result >= 0 ? opened : nil
    }

    private static let ownName = "speaker"

    /// Makes a part of the configuration belong to another, which is deleted with it; what cannot, is deleted at once.
    private static func add(_ part: OpaquePointer, to whole: OpaquePointer) -> Bool {
        guard snd_config_add(whole, part) < 0 else { return true }
        snd_config_delete(part)
        return false
    }

    /// A copy of what `name` is defined as, with the setting added and under `ownName`; the caller deletes it.
    private static func definition(of name: String, in shared: OpaquePointer) -> OpaquePointer? {
        guard let found = plugin(name, in: shared) else { return nil }
        var known: OpaquePointer?
        var setting: OpaquePointer?
        guard snd_config_search(found, "handle_underrun", &known) < 0,
            snd_config_imake_integer(&setting, "handle_underrun", 0) >= 0, let setting, add(setting, to: found),
            snd_config_set_id(found, Self.ownName) >= 0
        else {
            snd_config_delete(found)
            return nil
        }
        return found
    }

    /// A copy of what `name` is defined as, if that is the plug-in; the caller deletes it.
    private static func plugin(_ name: String, in shared: OpaquePointer) -> OpaquePointer? {
        var found: OpaquePointer?
        guard snd_config_search_definition(shared, "pcm", name, &found) >= 0, let found else { return nil }
        var type: OpaquePointer?
        var text: UnsafePointer<CChar>?
        guard snd_config_search(found, "type", &type) >= 0, snd_config_get_string(type, &text) >= 0, let text,
            String(cString: text) == "pulse"
        else {
            snd_config_delete(found)
            return nil
        }
        return found
    }
}
