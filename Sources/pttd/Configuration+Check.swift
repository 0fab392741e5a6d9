// The checks of `pttd --check` beyond the syntax of pttd.toml.
import Accessories
import AccessorySetup
import Audio
import Glibc

extension Configuration {
    /// What is wrong with the profiles and accessories that the file names, and with those that are kept in the state directory; each
    /// in words that say what to do. Nothing is changed.
    func problems(stateDirectory: String) -> [String] {
        var problems = accessories.profileProblems.map { "\($0)" }
        if let directory = accessories.profilesDirectory, !Self.isDirectory(directory) {
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
        var problems: [String] = []
        if let problem = microphone.problem(asA: .microphone) { problems.append("audio.microphone: \(problem)") }
        if let problem = speaker.problem(asA: .speaker) { problems.append("audio.speaker: \(problem)") }
        if let problem = fallbackMicrophone?.problem(asA: .microphone) {
            problems.append("audio.fallback-microphone: \(problem)")
        }
        if let problem = fallbackSpeaker?.problem(asA: .speaker) {
            problems.append("audio.fallback-speaker: \(problem)")
        }
        return problems
    }

    private static func isDirectory(_ path: String) -> Bool {
        var status = stat()
        return stat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
    }
}
