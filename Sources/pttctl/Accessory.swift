// pttctl accessory …: the buttons and microphones that the daemon looks after.
import ArgumentParser
import PTTBus
import Terminal

/// `pttctl accessory`.
struct AccessoryCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "accessory", abstract: "Look after talk buttons.", subcommands: [AccessoryList.self],
        defaultSubcommand: AccessoryList.self)
}

/// `pttctl accessory list`.
struct AccessoryList: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "List the accessories, whether presses arrive, and what to do if not.")

    @OptionGroup var options: BusOptions
    @Flag(help: "Print JSON, for scripts.") var json = false

    func run() async throws {
        try await options.withDaemon { daemon in
            let snapshot = await daemon.snapshot
            let accessories = snapshot.accessories.sorted { $0.key < $1.key }.map(\.value)
            if json { return Console.say(try jsonText(accessories)) }
            if accessories.isEmpty {
                Console.say(
                    "No accessory is configured. Add one to pttd.toml: [accessory.button] with its address; see docs/installers.md."
                )
            }
            for accessory in accessories {
                Console.say(Self.line(accessory))
                if !accessory.problem.isEmpty { Console.say("    \(accessory.problem)") }
            }
        }
    }

    static func line(_ accessory: AccessoryProperties) -> String {
        var parts = [accessory.name.isEmpty ? accessory.address : accessory.name]
        if !accessory.address.isEmpty, parts[0] != accessory.address { parts.append(accessory.address) }
        parts.append(accessory.profileTitle.isEmpty ? "not recognised yet" : accessory.profileTitle)
        parts.append(
            accessory.held ? "HELD" : accessory.ready ? "ready" : accessory.connected ? "connected" : "not connected")
        if let battery = accessory.battery { parts.append("battery \(battery) %") }
        return parts.joined(separator: "  ")
    }
}
