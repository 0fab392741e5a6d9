// pttctl audio list: the microphones and speakers of this machine, by the names to write into pttd.toml.
import ArgumentParser
import Audio
import PTTBus
import Terminal

/// `pttctl audio list`.
struct AudioList: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "List microphones and speakers by the names to write into pttd.toml.",
        discussion: """
            The names stay the same after a restart. In brackets: what pttd.toml uses the device for. Each device is \
            opened and closed again; nothing is recorded or played. Headsets and speaker microphones that are worn, and \
            that a running pttd uses with their accessory, come last, under the name "accessory".
            """)

    @OptionGroup var options: BusOptions
    @OptionGroup var configuration: SoundConfigurationOptions
    @Flag(help: "Print JSON, for scripts.") var json = false

    func run() async throws {
        var entries = SoundEntry.all(SoundDevices.all(), configured: try configuration.devices()) {
            $0.problem(asA: $1)
        }
        entries += await options.accessoriesIfRunning().compactMap(SoundEntry.init(worn:))
        if json { return Console.say(try jsonText(entries)) }
        Self.lines(entries).forEach { Console.say($0) }
    }

    /// The widest name that is padded for.
    private static let nameColumnsMax = 48

    static func lines(_ entries: [SoundEntry]) -> [String] {
        func columns(_ text: (SoundEntry) -> String) -> Int {
            min(nameColumnsMax, entries.map { text($0).columns }.max() ?? 0)
        }
        let (names, uses) = (columns { $0.shownName }, columns { $0.uses })
        var lines: [String] = []
        for entry in entries {
            let mark = entry.configured.isEmpty ? "" : "  [pttd.toml: \(entry.configured.joined(separator: ", "))]"
            let name = entry.shownName.columns <= names ? entry.shownName.fitted(names) : entry.shownName
            lines.append("\(name)  \(entry.uses.fitted(uses))  \(entry.title.plain(limit: 80))\(mark)")
            lines += entry.notes.map { "    \($0.plain())" }
        }
        if entries.allSatisfy({ $0.kind != "card" }) { lines.append("There is no sound card.") }
        lines.append("To try one: pttctl audio test --microphone NAME --speaker NAME")
        return lines
    }
}

/// A device in the list.
struct SoundEntry: Encodable, Equatable {
    struct Holder: Encodable, Equatable {
        /// Absent where the system does not show it to this user.
        var program: String?
        var process: Int
        var use: String
        /// Who it is, for people.
        var words: String

        private enum CodingKeys: CodingKey { case program, process, use }

        init(_ holder: SoundHolder) {
            (program, process, use, words) = (holder.program, holder.process, holder.use.word, holder.words())
        }
    }

    var name: String
    var title: String
    /// "card", "server", "bluetooth", "worn" for what belongs to an accessory, or "other" for what only the configuration names.
    var kind: String
    var usb = false
    var microphone: Bool
    var speaker: Bool
    /// Which settings of pttd.toml mean it: "microphone", "speaker", "fallback-microphone", "fallback-speaker".
    var configured: [String] = []
    /// Why it cannot be opened, in a few words; empty while it can.
    var problem = ""
    /// Who holds it now.
    var holders: [Holder] = []
    /// A name in pttd.toml that may mean another device later; empty if there is none.
    var numberedName = ""

    /// The entries of `devices`, and of what only the configuration names. `look` finds the problem of the latter.
    static func all(
        _ devices: [SoundDevice], configured: ConfiguredSound?,
        look: (AudioDevice, AudioDevice.Use) -> AudioError?
    ) -> [SoundEntry] {
        var entries = devices.map(SoundEntry.init)
        guard let configured else { return entries }
        for (device, use, setting) in configured.all {
            let text = device.shortName
            // A card has a name for each direction where their devices differ.
            let meant = devices.indices.filter { devices[$0].isMeant(by: text) }
            let fitting = meant.first { use == .microphone ? devices[$0].isMicrophone : devices[$0].isSpeaker }
            if let index = fitting ?? meant.first {
                entries[index].configured.append(setting)
                if SoundDevice.isNumbered(text) { entries[index].numberedName = text }
            } else if let index = entries.firstIndex(where: { $0.name == text }) {
                entries[index].configured.append(setting)
                entries[index].microphone = entries[index].microphone || use == .microphone
                entries[index].speaker = entries[index].speaker || use == .speaker
                if entries[index].problem.isEmpty { entries[index].problem = look(device, use)?.inShort ?? "" }
            } else {
                var entry = SoundEntry(
                    name: text, title: device.isFile ? "a WAV file" : "named in pttd.toml only", kind: "other",
                    microphone: use == .microphone, speaker: use == .speaker, configured: [setting])
                entry.problem = look(device, use)?.inShort ?? ""
                entries.append(entry)
            }
        }
        return entries
    }

    /// What it is, in a word or two.
    var uses: String {
        switch (microphone, speaker) {
        case (true, true): "microphone, speaker"
        case (true, false): "microphone"
        case (false, true): "speaker"
        case (false, false): "unknown"
        }
    }

    var shownName: String { name.plain(limit: 128) }

    /// What is to be known of it, a line each.
    var notes: [String] {
        var notes: [String] = []
        if !problem.isEmpty { notes.append(problem) }
        for holder in holders {
            notes.append("held by \(holder.words) as a \(holder.use)")
        }
        if !numberedName.isEmpty {
            notes.append("pttd.toml says \(numberedName), a number that may change; write \(name)")
        }
        return notes
    }
}

extension SoundEntry {
    init(_ device: SoundDevice) {
        self.init(
            name: device.name, title: device.title, kind: device.kind.rawValue, usb: device.isUSB,
            microphone: device.isMicrophone, speaker: device.isSpeaker, problem: device.problemInShort,
            holders: device.holders.map(Holder.init))
    }
}

extension AudioDevice {
    fileprivate var isFile: Bool { if case .wav = self { true } else { false } }
}

extension SoundEntry {
    /// The sound of an accessory, as the daemon tells it; nil when it has none.
    init?(worn accessory: AccessoryProperties) {
        guard !accessory.sound.isEmpty else { return nil }
        let name = accessory.name.isEmpty ? accessory.address : accessory.name
        self.init(
            name: "accessory", title: "\(name): \(accessory.sound)", kind: "worn", microphone: true, speaker: true)
    }
}
