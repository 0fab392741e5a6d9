// pttctl audio …: finds and tries microphones and speakers. It works without the daemon.
import ArgumentParser
import Audio
import Settings
import Terminal

/// `pttctl audio`.
struct AudioCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "audio", abstract: "Find and try microphones and speakers.",
        discussion: """
            'pttctl audio list' shows the names for [audio] in pttd.toml, and 'test' tries a microphone and a speaker. \
            These commands work without the daemon.
            """,
        subcommands: [AudioList.self, AudioTest.self], defaultSubcommand: AudioList.self)
}

/// Which configuration is looked at.
struct SoundConfigurationOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp("The configuration file; by default the one that pttd reads.", valueName: "file"),
        completion: .file(extensions: ["toml"]))
    var config: String?

    /// The devices of the configuration; nil when no file can be read. One that is named must be readable.
    func devices() throws -> ConfiguredSound? {
        if let config {
            do throws(SettingsError) {
                return try ConfiguredSound(path: config)
            } catch {
                Console.complain("\(error)")
                throw ExitCode.failure
            }
        }
        return SettingsPlaces.first(of: SettingsPlaces.paths(of: "pttd", name: "pttd.toml"))
            .flatMap { try? ConfiguredSound(path: $0) }
    }
}

/// The microphones and speakers that a configuration names.
struct ConfiguredSound: Equatable {
    /// Nil: that of whatever is worn.
    var microphone: AudioDevice?
    var speaker: AudioDevice?
    /// Those that stand in for the two.
    var fallbackMicrophone: AudioDevice?
    var fallbackSpeaker: AudioDevice?

    /// Every device with its use and the name of its setting.
    var all: [(device: AudioDevice, use: AudioDevice.Use, setting: String)] {
        let named: [(AudioDevice?, AudioDevice.Use, String)] = [
            (microphone, .microphone, "microphone"), (speaker, .speaker, "speaker"),
            (fallbackMicrophone, .microphone, "fallback-microphone"), (fallbackSpeaker, .speaker, "fallback-speaker"),
        ]
        return named.compactMap { device, use, setting in device.map { ($0, use, setting) } }
    }

    /// Reads the table [audio] of the file at `path`, and nothing else of it.
    init(path: String) throws(SettingsError) {
        let names = try SettingsFile.read(path: path) { root in
            root.isReadInPart()
            let audio = root.table("audio")
            audio?.isReadInPart()
            return ["microphone", "speaker", "fallback-microphone", "fallback-speaker"].map { name in
                audio?.optional(name, Self.device(orWorn: !name.hasPrefix("fallback")))
            }
        }
        (microphone, speaker) = (names[0] ?? Self.standard, names[1] ?? Self.standard)
        (fallbackMicrophone, fallbackSpeaker) = (names[2] ?? nil, names[3] ?? nil)
    }

    /// What is tried in place of a worn microphone, which sounds for presses only.
    var testedMicrophone: AudioDevice { microphone ?? fallbackMicrophone ?? Self.standard }
    /// The same of the speaker.
    var testedSpeaker: AudioDevice { speaker ?? fallbackSpeaker ?? Self.standard }

    /// What pttd uses when nothing else is said.
    static let standard = AudioDevice.alsa("default")

    /// A device by its name; nil: "accessory".
    private static func device(orWorn: Bool) -> SettingType<AudioDevice?> {
        SettingType<String>.string(lengthMax: 1_024)
            .map(placeholder: standard) { text throws(SettingRefusal) in
                if orWorn, text == "accessory" { return nil }
                do throws(AudioError) {
                    return try AudioDevice(text)
                } catch {
                    throw SettingRefusal("\(error)", "'pttctl audio list' shows the names")
                }
            }
    }
}

extension AudioDevice {
    /// Its name as an installer writes it.
    var shortName: String {
        switch self {
        case .alsa(let name): name
        case .wav: description
        }
    }
}

extension AudioDevice.Use {
    /// The name of the setting.
    var word: String { "\(self)" }
}
