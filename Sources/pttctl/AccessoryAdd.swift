// pttctl accessory add: adds a button, step by step.
import ArgumentParser
import PTTBus
import Terminal
import Vocabulary

/// The gestures of a talk control, in their form on a command line.
enum GestureName: String, CaseIterable, ExpressibleByArgument {
    case hold, toggle, hybrid

    var gesture: Gesture? { Gesture(rawValue: rawValue) }
}

/// `pttctl accessory add`.
struct AccessoryAdd: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "add", abstract: "Add a Bluetooth button: connect it, recognise it, and remember it.",
        discussion: """
            It is paired only if its profile says so. Press the button when the search begins, and again when it falls \
            asleep: most buttons advertise only for a short while after a press. At the end it prints notes about the \
            button.
            """)

    @OptionGroup var options: BusOptions
    @Argument(help: "The Bluetooth address, or the name that it advertises, as 'pttctl accessory scan' shows them.")
    var device: String
    @Option(help: "The accessory's name; by default the device's own name.") var name: String?
    @Option(
        help: "The profile's id; by default the one that matches.",
        completion: .custom { _, _, _ in await Completion.profiles() })
    var profile: String?
    @Option(help: "How its talk control works; by default as in the profile.") var gesture: GestureName?
    @Flag(help: "Use it only while it is bonded, since its address alone can be forged.") var bondedOnly = false
    @Flag(help: "Pair it, even if the profile does not ask for it.") var pair = false
    @Flag(help: "Print the accessory and the notes as JSON, for scripts.") var json = false

    func validate() throws {
        guard !device.isEmpty else { throw ValidationError("Give the button's address or name.") }
        try Self.check(name)
    }

    static func check(_ name: String?) throws {
        guard let name else { return }
        guard !name.isEmpty else { throw ValidationError("--name is empty; leave it out for the device's own name.") }
        guard name.utf8.count <= PTTBusLimits.accessoryNameBytes else {
            throw ValidationError(
                "--name has \(name.utf8.count) bytes; at most \(PTTBusLimits.accessoryNameBytes) are accepted.")
        }
    }

    /// The shape of `--json`.
    private struct Document: Encodable {
        var accessory: AccessoryProperties
        var notes: [String]
    }

    func run() async throws {
        let isQuiet = json
        try await options.withDaemon { daemon in
            let address = try await DeviceFinder.address(device, daemon) { if !isQuiet { Console.say($0) } }
            try await daemon.watch { event in
                guard case .accessory(.addProgress(address, let step)) = event, !isQuiet else { return }
                Console.say(Self.words(step))
            }
            let added = try await daemon.addAccessory(
                AccessoryAddition(
                    address: address, name: name, profileID: profile, gesture: gesture?.gesture,
                    isBondedOnly: bondedOnly, pairs: pair ? true : nil))
            try await daemon.refresh()
            let properties = await daemon.snapshot.accessories[added.path] ?? AccessoryProperties()
            if json { return Console.say(try jsonText(Document(accessory: properties, notes: added.notes))) }
            for line in Self.lines(properties, notes: added.notes) { Console.say(line) }
        }
    }

    /// Lines of one note that are shown.
    static let linesMax = 20

    static func words(_ step: AddStep) -> String {
        switch step {
        case .searching: "searching: press the button now"
        case .connecting: "connecting"
        case .pairing: "pairing"
        case .recognising: "recognising it"
        case .subscribing: "subscribing to its buttons"
        }
    }

    static func lines(_ accessory: AccessoryProperties, notes: [String]) -> [String] {
        var lines = ["added: " + AccessoryList.line(accessory)]
        for note in notes {
            // Lines to be copied stand alone.
            for (index, line) in note.split(separator: "\n").prefix(linesMax).enumerated() {
                lines.append((index == 0 ? "note: " : "    ") + line.plain(limit: 1_024))
            }
        }
        lines.append("Try it; nothing is transmitted meanwhile: pttctl accessory test \(accessory.id.shellWord)")
        return lines
    }
}
