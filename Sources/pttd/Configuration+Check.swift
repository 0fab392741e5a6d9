// The checks of `pttd --check` beyond the syntax of pttd.toml.
import Accessories
import AccessorySetup
import Audio
import ChannelService
import Files

extension Configuration {
    /// What is wrong with the profiles and accessories that the file names, and with those that are kept in the state directory; each
    /// in words that say what to do. Nothing is changed.
    func problems() -> [String] {
        var problems = accessories.profileProblems.map { "\($0)" }
        if let directory = accessories.profilesDirectory, FileFacts(of: directory)?.kind != .directory {
            problems.append("accessories.profiles: \(directory) is not a directory; create it, or remove the key")
        }
        let kept = AccessoryStore(directory: stateDirectory, setsAside: false).restore(accessories)
        problems += kept.problems
        var owners: [String: String] = [:]
        for accessory in kept.settings.accessories {
            guard let address = accessory.address else { continue }
            if let owner = owners.updateValue(accessory.id.text, forKey: address) {
                problems.append(
                    "accessories \"\(owner)\" and \"\(accessory.id.text)\" have the same address \(address), but a device is "
                        + "one accessory only; remove one of the two")
            }
        }
        return problems
    }

    /// The problems of the microphone and the speaker, as far as opening them shows, each with its setting.
    func deviceProblems() -> [String] {
        let devices: [(AudioDevice?, AudioDevice.Use, setting: String)] = [
            (sound.microphone, .microphone, "microphone"), (sound.speaker, .speaker, "speaker"),
            (sound.fallbackMicrophone, .microphone, "fallback-microphone"),
            (sound.fallbackSpeaker, .speaker, "fallback-speaker"),
        ]
        return devices.compactMap { device, use, setting in
            device?.problem(asA: use).map { "audio.\(setting): \($0)" }
        }
    }
}
