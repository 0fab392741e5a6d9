// pttctl accessory gesture, bonded-only and remove: settings of an accessory, and its end.
import ArgumentParser
import PTTBus
import Terminal

/// `pttctl accessory gesture`.
struct AccessoryGesture: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "gesture", abstract: "Set how an accessory's talk control works; without a value, show it.",
        discussion: """
            hold: you are heard while it is held. toggle: one press begins, the next one ends. hybrid: a long press \
            works like hold, and a short press talks until the next one. default: as in the profile.
            """)

    /// What can be set.
    enum Choice: String, CaseIterable, ExpressibleByArgument {
        case hold, toggle, hybrid, `default`
    }

    @OptionGroup var options: BusOptions
    @Argument(help: "Its name, id or address, as 'pttctl accessory list' shows them.", completion: .accessories)
    var accessory: String
    @Argument(help: "How it works.") var gesture: Choice?
    @Flag(help: "Print the accessory as JSON, for scripts.") var json = false

    func run() async throws {
        try await options.withDaemon { daemon in
            let chosen = try ChosenAccessory.find(accessory, in: await daemon.snapshot)
            if let gesture { try await daemon.setGesture(gesture.rawValue, of: chosen.path) }
            let now = gesture == nil ? chosen.properties : try await chosen.again(daemon)
            if json { return Console.say(try jsonText(now)) }
            let words = now.gesture.isEmpty ? "known only after it is recognised" : now.gesture.plain(limit: 16)
            Console.say("\(chosen.title): \(words)")
        }
    }
}

/// `pttctl accessory bonded-only`.
struct AccessoryBondedOnly: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bonded-only", abstract: "Set whether an accessory is used only while it is bonded.",
        discussion: """
            Anyone who copies the address of an accessory that is not bonded can open your microphone. 'on' ignores \
            such presses, and with them those of a button that cannot bond.
            """)

    /// What can be set.
    enum Choice: String, CaseIterable, ExpressibleByArgument {
        case on, off
    }

    @OptionGroup var options: BusOptions
    @Argument(help: "Its name, id or address, as 'pttctl accessory list' shows them.", completion: .accessories)
    var accessory: String
    @Argument(help: "Whether.") var choice: Choice
    @Flag(help: "Print the accessory as JSON, for scripts.") var json = false

    func run() async throws {
        try await options.withDaemon { daemon in
            let chosen = try ChosenAccessory.find(accessory, in: await daemon.snapshot)
            try await daemon.setBondedOnly(choice == .on, of: chosen.path)
            let now = try await chosen.again(daemon)
            if json { return Console.say(try jsonText(now)) }
            let bond = now.bonded ? "it is bonded" : "it is not bonded"
            Console.say(
                "\(chosen.title): \(now.bondedOnly ? "used only while it is bonded" : "used bonded or not"); \(bond)")
            // Switched off, it is only just being looked for anew.
            if now.bondedOnly, !now.problem.isEmpty { Console.say("    \(now.problem.plain())") }
        }
    }
}

/// `pttctl accessory remove`.
struct AccessoryRemove: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "remove", abstract: "Forget an accessory, and have the system's Bluetooth forget it.",
        discussion: "Remove an accessory of pttd.toml in that file.")

    @OptionGroup var options: BusOptions
    @Argument(help: "Its name, id or address, as 'pttctl accessory list' shows them.", completion: .accessories)
    var accessory: String
    @Flag(help: "Print the accessory that was removed as JSON, for scripts.") var json = false

    func run() async throws {
        try await options.withDaemon { daemon in
            let chosen = try ChosenAccessory.find(accessory, in: await daemon.snapshot)
            try await daemon.removeAccessory(chosen.path)
            if json { return Console.say(try jsonText(chosen.properties)) }
            Console.say("removed \(chosen.title)")
        }
    }
}
